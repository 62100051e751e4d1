// A timeline as a trace that https://ui.perfetto.dev opens (Chrome's JSON format).

import { PHASES, type Memory } from "../document";
import { placeOf, rowOf, type Timeline } from "../timeline/model";
import type { Place } from "../values";

/** All tracks are threads of one process. */
const PROCESS = 1;

export interface TraceSource {
  timeline: Timeline;
  memory: Memory | null;
  /** Shown as the name of the process. */
  name: string;
  placeName: (place: Place) => string;
}

/** Returns the trace. Its times are microseconds with fractions. */
export function perfettoTrace({ timeline, memory, name, placeName }: TraceSource): string {
  const events: unknown[] = [{ ph: "M", pid: PROCESS, name: "process_name", args: { name } }];
  timeline.tracks.forEach((track, index) => {
    const thread = { ph: "M", pid: PROCESS, tid: index + 1 };
    events.push({ ...thread, name: "thread_name", args: { name: track.name } });
    events.push({ ...thread, name: "thread_sort_index", args: { sort_index: index } });
  });
  for (let span = 0; span < timeline.size; span += 1) {
    events.push(spanEvent(timeline, span, placeName), ...launchEvents(timeline, span));
  }
  for (const [atNs, bytes] of memory?.curve ?? []) {
    events.push({ ph: "C", pid: PROCESS, name: "allocated memory", ts: atNs / 1000, args: { bytes } });
  }
  const leftOut = timeline.leftOut + timeline.dropped;
  return JSON.stringify({
    displayTimeUnit: "ms",
    otherData: { source: "Ridgeline", simulated_gpu: timeline.simulated, spans_left_out: leftOut },
    traceEvents: events,
  });
}

/** The arrow from the call that launched a span on the GPU to the span; the two ends refer to the spans that run then. */
function launchEvents(timeline: Timeline, span: number): unknown[] {
  const launch = timeline.launch[span]!;
  if (launch < 0) return [];
  const end = (of: number): object => ({
    pid: PROCESS,
    tid: threadOf(timeline, of),
    id: span,
    name: "launch",
    cat: "launch",
    ts: timeline.start[of]! / 1000,
  });
  return [{ ...end(launch), ph: "s" }, { ...end(span), ph: "f", bp: "e" }];
}

function threadOf(timeline: Timeline, span: number): number {
  return timeline.rows[rowOf(timeline, span)]!.track + 1;
}

function spanEvent(timeline: Timeline, span: number, placeName: (place: Place) => string): unknown {
  const start = timeline.start[span]!;
  const place = placeOf(timeline, span);
  const phase = PHASES[timeline.phase[span]!] ?? "other";
  return {
    ph: "X",
    pid: PROCESS,
    tid: threadOf(timeline, span),
    name: timeline.names[timeline.name[span]!] ?? "(no name)",
    cat: phase,
    ts: start / 1000,
    dur: (timeline.end[span]! - start) / 1000,
    args: place === null ? { phase } : { phase, line: placeName(place) },
  };
}
