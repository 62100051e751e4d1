// Finds spans by name.

import type { Timeline } from "./model";

export interface Finding {
  /** By span: 1 if it matches. */
  marks: Uint8Array;
  /** The matching spans, by start. */
  spans: number[];
  /** Sum of their times in nanoseconds. Spans within each other count several times. */
  totalNs: number;
}

/** Finds the spans whose name contains every word of the query. Returns null if the query is empty. */
export function find(timeline: Timeline, query: string): Finding | null {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return null;
  const matches = timeline.names.map((name) => {
    const lower = name.toLowerCase();
    return words.every((word) => lower.includes(word));
  });
  const marks = new Uint8Array(timeline.size);
  const spans: number[] = [];
  let totalNs = 0;
  for (let span = 0; span < timeline.size; span += 1) {
    if (matches[timeline.name[span]!] !== true) continue;
    marks[span] = 1;
    spans.push(span);
    totalNs += timeline.end[span]! - timeline.start[span]!;
  }
  spans.sort((a, b) => timeline.start[a]! - timeline.start[b]! || a - b);
  return { marks, spans, totalNs };
}

/** Returns the match that follows `span` in time, or precedes it, around the end. -1 without matches. */
export function step(timeline: Timeline, found: Finding, span: number, back: boolean): number {
  const { spans } = found;
  if (spans.length === 0) return -1;
  const at = spans.indexOf(span);
  if (at >= 0) return spans[(at + (back ? spans.length - 1 : 1)) % spans.length]!;
  if (span < 0) return back ? spans[spans.length - 1]! : spans[0]!;
  const after = spans.findIndex((one) => timeline.start[one]! >= timeline.start[span]!);
  const next = after < 0 ? 0 : after;
  return back ? spans[(next + spans.length - 1) % spans.length]! : spans[next]!;
}
