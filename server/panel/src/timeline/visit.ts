// Merges the spans of a row into boxes for a zoom level: never many more boxes than pixels.

import { firstAfter, type Row, type Timeline } from "./model";

/**
 * Calls `box` for each box of the row between `from` and `to`, from left to right. A span of at
 * least `pixel` nanoseconds is one box. Shorter spans that nearly touch are merged into one box,
 * which represents the longest of them. `count` is the number of merged spans.
 */
export function visit(
  timeline: Timeline,
  row: Row,
  from: number,
  to: number,
  pixel: number,
  box: (start: number, end: number, span: number, count: number) => void,
): void {
  const { start, end, phase } = timeline;
  let at = firstAfter(timeline, row, from);
  while (at < row.end && start[at]! < to) {
    const left = start[at]!;
    let right = end[at]!;
    if (right - left >= pixel) {
      box(left, right, at, 1);
      at += 1;
      continue;
    }
    const first = at;
    let main = at;
    at += 1;
    while (at < row.end && start[at]! < to) {
      const long = end[at]! - start[at]!;
      if (long >= pixel || start[at]! - right >= pixel) break;
      // A box wider than a pixel keeps its own colour.
      if (right - left >= pixel && phase[at] !== phase[main]) break;
      if (long > end[main]! - start[main]!) main = at;
      right = Math.max(right, end[at]!);
      at += 1;
    }
    box(left, right, main, at - first);
  }
}
