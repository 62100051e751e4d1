// The visible part of an axis, and how zooming and panning move it.

export interface Range {
  start: number;
  end: number;
}

export function length(range: Range): number {
  return range.end - range.start;
}

/** Moves and shrinks a range to fit within `whole`. */
export function within(range: Range, whole: Range, least: number): Range {
  const size = Math.min(length(whole), Math.max(least, length(range)));
  const start = Math.min(Math.max(range.start, whole.start), whole.end - size);
  return { start, end: start + size };
}

/** Scales by `factor` (below 1 zooms in) around `at`, which stays fixed on the screen. */
export function zoom(range: Range, whole: Range, at: number, factor: number, least: number): Range {
  const size = Math.min(length(whole), Math.max(least, length(range) * factor));
  const share = length(range) > 0 ? (at - range.start) / length(range) : 0.5;
  const start = at - share * size;
  return within({ start, end: start + size }, whole, least);
}

export function pan(range: Range, whole: Range, by: number): Range {
  return within({ start: range.start + by, end: range.end + by }, whole, length(range));
}
