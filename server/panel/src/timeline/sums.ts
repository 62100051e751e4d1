// What runs within a range of time: how long each track is busy, and the total of each name.

import { length, type Range } from "../range";
import { firstAfter, type Timeline } from "./model";

export interface TrackSum {
  track: number;
  /** Nanoseconds within the range in which at least one of its spans is active. */
  busyNs: number;
}

export interface NameSum {
  name: number;
  track: number;
  calls: number;
  /** Nanoseconds within the range, what is called below included. */
  totalNs: number;
}

export interface RangeSums {
  range: Range;
  tracks: TrackSum[];
  /** Highest total first. */
  names: NameSum[];
  /** The number of names beyond `most`. */
  more: number;
}

/** Adds up the spans within a range; those at its edges count with the part that is inside. */
export function sums(timeline: Timeline, range: Range, most: number): RangeSums {
  const tracks: TrackSum[] = [];
  const byName = new Map<number, NameSum>();
  timeline.tracks.forEach((track, index) => {
    let busyNs = 0;
    for (let of = track.firstRow; of < track.endRow; of += 1) {
      const row = timeline.rows[of]!;
      let until = range.start;
      for (let span = firstAfter(timeline, row, range.start); span < row.end && timeline.start[span]! < range.end; span += 1) {
        const from = Math.max(range.start, timeline.start[span]!);
        const to = Math.min(range.end, timeline.end[span]!);
        if (to <= from) continue;
        if (of === track.firstRow && to > until) {
          busyNs += to - Math.max(from, until);
          until = to;
        }
        if (track.kind === "phases" || track.kind === "idle") continue;
        const key = timeline.name[span]! * timeline.tracks.length + index;
        const sum = byName.get(key) ?? { name: timeline.name[span]!, track: index, calls: 0, totalNs: 0 };
        sum.calls += 1;
        sum.totalNs += to - from;
        byName.set(key, sum);
      }
    }
    if (busyNs > 0) tracks.push({ track: index, busyNs });
  });
  const names = [...byName.values()].sort((a, b) => b.totalNs - a.totalNs || a.name - b.name);
  return { range, tracks, names: names.slice(0, most), more: Math.max(0, names.length - most) };
}

/** Returns the share of a range that a time is. */
export function shareOf(range: Range, timeNs: number): number {
  return length(range) > 0 ? timeNs / length(range) : 0;
}
