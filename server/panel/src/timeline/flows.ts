// The launches of GPU work: from a call on the host to the kernel or copy that it started.

import { rowOf, type Timeline } from "./model";

/** The maximum number of flows of a selected span. */
const MOST = 100;

export interface Flow {
  /** The launching call on the host. */
  from: number;
  /** The work on the GPU. */
  to: number;
}

/** Returns the flows of a span: the one that launched it, or those that it launched itself or in calls within it. */
export function flowsOf(timeline: Timeline, span: number): Flow[] {
  if (span < 0) return [];
  const launch = timeline.launch[span]!;
  if (launch >= 0) return [{ from: launch, to: span }];
  const track = timeline.rows[rowOf(timeline, span)]!.track;
  const { firstRow, endRow } = timeline.tracks[track]!;
  const first = timeline.rows[firstRow]!.first;
  const last = timeline.rows[endRow - 1]!.end;
  const found: Flow[] = [];
  for (let to = 0; to < timeline.size && found.length < MOST; to += 1) {
    const from = timeline.launch[to]!;
    if (from < first || from >= last) continue;
    if (timeline.start[from]! >= timeline.start[span]! && timeline.end[from]! <= timeline.end[span]!) found.push({ from, to });
  }
  return found;
}
