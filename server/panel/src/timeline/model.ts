// A timeline as typed arrays, sorted by row (a track's depth) and start. Visible spans are found by binary search, and
// drawing allocates nothing.

import { PHASES, type Place } from "../document";

export interface Track {
  name: string;
  kind: string;
  /** Rows of this track: `rows[firstRow]` up to, but excluding, `rows[endRow]`. */
  firstRow: number;
  endRow: number;
  spans: number;
  /** Time during which at least one of its spans is active. */
  busyNs: number;
}

/** Spans of one depth of a track: from `first` up to, but excluding, `end`. */
export interface Row {
  track: number;
  depth: number;
  first: number;
  end: number;
}

export interface Timeline {
  simulated: boolean;
  durationNs: number;
  names: string[];
  tracks: Track[];
  rows: Row[];
  start: Float64Array;
  end: Float64Array;
  /** The latest end of the row's spans up to this one. Ascending, which `end` need not be. */
  reach: Float64Array;
  name: Uint32Array;
  file: Int32Array;
  line: Int32Array;
  phase: Uint8Array;
  /** The span that launched it; -1 if there is none. */
  launch: Int32Array;
  size: number;
  /** The number of spans that the server left out. */
  leftOut: number;
  /** The number of spans that this page left out: damaged, or too deep to draw. */
  dropped: number;
}

/** The maximum stack depth drawn. */
export const DEPTHS = 48;

const SPANS = 400_000;
const TRACKS = 500;
const CHARACTERS = 500;

/** Decodes a timeline. Returns null if the value is not one. */
export function decode(value: unknown): Timeline | null {
  const it = value as {
    simulated?: unknown;
    duration_ns?: unknown;
    names?: unknown;
    tracks?: unknown;
    spans?: Partial<Record<string, unknown>>;
    left_out?: unknown;
  } | null;
  if (typeof it !== "object" || it === null || typeof it.spans !== "object") return null;
  const columns = it.spans;
  const track = numbers(columns.track);
  const depth = numbers(columns.depth);
  const begin = numbers(columns.start_ns);
  const lasts = numbers(columns.duration_ns);
  const name = numbers(columns.name);
  const file = numbers(columns.file);
  const line = numbers(columns.line);
  const phase = numbers(columns.phase);
  // Documents of an earlier version have no launches.
  const launch = numbers(columns.launch);
  const all = Math.min(...[track, depth, begin, lasts, name, file, line, phase].map((column) => column.length));
  const tracks: Track[] = (Array.isArray(it.tracks) ? (it.tracks as unknown[]) : []).slice(0, TRACKS).map((one) => {
    const { name: called, kind } = (one ?? {}) as { name?: unknown; kind?: unknown };
    return { name: text(called), kind: text(kind), firstRow: 0, endRow: 0, spans: 0, busyNs: 0 };
  });

  // A counting sort by row preserves the columns' order by start.
  const counts = new Uint32Array(tracks.length * DEPTHS + 1);
  const rowOf = new Int32Array(Math.min(all, SPANS));
  let latest = 0;
  for (let at = 0; at < rowOf.length; at += 1) {
    const of = track[at]!;
    const deep = depth[at]!;
    const from = begin[at]!;
    const long = lasts[at]!;
    const sound = Number.isInteger(of) && of >= 0 && of < tracks.length && Number.isInteger(deep) && deep >= 0;
    if (!sound || deep >= DEPTHS || !(from >= 0) || !(long >= 0) || !Number.isFinite(from + long)) {
      rowOf[at] = -1;
      continue;
    }
    rowOf[at] = of * DEPTHS + deep;
    counts[rowOf[at]! + 1]! += 1;
    latest = Math.max(latest, from + long);
  }
  for (let row = 1; row < counts.length; row += 1) counts[row]! += counts[row - 1]!;
  const size = counts[counts.length - 1]!;
  const next = counts.slice();
  const timeline: Timeline = {
    simulated: it.simulated === true,
    durationNs: Math.max(latest, typeof it.duration_ns === "number" && it.duration_ns > 0 ? it.duration_ns : 0, 1),
    names: (Array.isArray(it.names) ? (it.names as unknown[]) : []).map(text),
    tracks,
    rows: [],
    start: new Float64Array(size),
    end: new Float64Array(size),
    reach: new Float64Array(size),
    name: new Uint32Array(size),
    file: new Int32Array(size),
    line: new Int32Array(size),
    phase: new Uint8Array(size),
    launch: new Int32Array(size).fill(-1),
    size,
    leftOut: typeof it.left_out === "number" && it.left_out > 0 ? Math.floor(it.left_out) : 0,
    dropped: all - size,
  };
  const { start, end, reach } = timeline;
  const placed = new Int32Array(rowOf.length).fill(-1);
  for (let at = 0; at < rowOf.length; at += 1) {
    if (rowOf[at]! < 0) continue;
    const to = next[rowOf[at]!]!++;
    placed[at] = to;
    start[to] = begin[at]!;
    end[to] = begin[at]! + lasts[at]!;
    timeline.name[to] = name[at]!;
    timeline.file[to] = file[at]!;
    timeline.line[to] = line[at]!;
    timeline.phase[to] = phase[at]! < PHASES.length ? phase[at]! : PHASES.length - 1;
  }
  for (let at = 0; at < Math.min(placed.length, launch.length); at += 1) {
    if (placed[at]! >= 0) timeline.launch[placed[at]!] = placed[launch[at]!] ?? -1;
  }
  tracks.forEach((of, index) => {
    of.firstRow = timeline.rows.length;
    for (let deep = 0; deep < DEPTHS; deep += 1) {
      const first = counts[index * DEPTHS + deep]!;
      const last = counts[index * DEPTHS + deep + 1]!;
      if (last > first) timeline.rows.push({ track: index, depth: deep, first, end: last });
      of.spans += last - first;
    }
    of.endRow = timeline.rows.length;
  });
  for (const row of timeline.rows) {
    if (!ascending(start, row)) {
      sortRow(timeline, row);
      // The document is damaged, and launches refer to the order before.
      timeline.launch.fill(-1);
    }
    let far = 0;
    for (let at = row.first; at < row.end; at += 1) {
      far = Math.max(far, end[at]!);
      reach[at] = far;
    }
  }
  for (const of of tracks) of.busyNs = busy(timeline, of);
  return timeline;
}

/** Returns the row's first span that may end after `time`. */
export function firstAfter(timeline: Timeline, row: Row, time: number): number {
  let low = row.first;
  let high = row.end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (timeline.reach[middle]! > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Returns the row's span at `time`, else the longest span at most `slack` away, else -1. */
export function spanAt(timeline: Timeline, row: Row, time: number, slack: number): number {
  let best = -1;
  let bestLong = -1;
  for (let at = firstAfter(timeline, row, time - slack); at < row.end; at += 1) {
    if (timeline.start[at]! > time + slack) break;
    const inside = timeline.start[at]! <= time && timeline.end[at]! >= time;
    const long = timeline.end[at]! - timeline.start[at]! + (inside ? timeline.durationNs : 0);
    if (timeline.end[at]! >= time - slack && long > bestLong) {
      best = at;
      bestLong = long;
    }
  }
  return best;
}

/** Returns the row of a span. */
export function rowOf(timeline: Timeline, span: number): number {
  let low = 0;
  let high = timeline.rows.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (timeline.rows[middle]!.end > span) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function placeOf(timeline: Timeline, span: number): Place | null {
  const file = timeline.file[span]!;
  const line = timeline.line[span]!;
  return file >= 0 && line >= 1 ? { file, line } : null;
}

/** Returns the longest spans of the tracks that do work, longest first. */
export function longest(timeline: Timeline, most: number): number[] {
  const found: number[] = [];
  const long = (span: number) => timeline.end[span]! - timeline.start[span]!;
  let least = 0;
  for (const row of timeline.rows) {
    const kind = timeline.tracks[row.track]!.kind;
    if (kind === "phases" || kind === "idle") continue;
    for (let at = row.first; at < row.end; at += 1) {
      if (found.length >= most && long(at) <= least) continue;
      found.push(at);
      if (found.length < 2 * most) continue;
      found.sort((a, b) => long(b) - long(a));
      found.length = most;
      least = long(found[most - 1]!);
    }
  }
  return found.sort((a, b) => long(b) - long(a) || a - b).slice(0, most);
}

function numbers(value: unknown): ArrayLike<number> {
  return Array.isArray(value) ? (value as number[]) : [];
}

function text(value: unknown): string {
  return typeof value === "string" ? value.slice(0, CHARACTERS) : "";
}

function ascending(start: Float64Array, row: Row): boolean {
  for (let at = row.first + 1; at < row.end; at += 1) if (start[at]! < start[at - 1]!) return false;
  return true;
}

function sortRow(timeline: Timeline, row: Row): void {
  const order = Array.from({ length: row.end - row.first }, (_, at) => row.first + at);
  order.sort((a, b) => timeline.start[a]! - timeline.start[b]!);
  for (const column of [timeline.start, timeline.end, timeline.name, timeline.file, timeline.line, timeline.phase]) {
    const sorted = order.map((at) => column[at]!);
    sorted.forEach((value, at) => {
      column[row.first + at] = value;
    });
  }
}

// Deeper spans lie within those of the first depth.
function busy(timeline: Timeline, track: Track): number {
  const top = timeline.rows[track.firstRow];
  if (top === undefined) return 0;
  let sum = 0;
  let until = 0;
  for (let at = top.first; at < top.end; at += 1) {
    const from = Math.max(until, timeline.start[at]!);
    if (timeline.end[at]! <= from) continue;
    sum += timeline.end[at]! - from;
    until = timeline.end[at]!;
  }
  return sum;
}
