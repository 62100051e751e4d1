import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

import { csv } from "../src/export/csv";
import { fileName } from "../src/export/menu";
import { perfettoTrace } from "../src/export/perfetto";
import { decode } from "../src/timeline/model";

describe("CSV", () => {
  it("quotes what needs it, and leaves out what is unknown", () => {
    const rows = [
      { name: 'a, "b"', size: 1.5 as number | null },
      { name: "two\nlines", size: null },
    ];
    expect(csv([["name", ({ name }) => name], ["size_bytes", ({ size }) => size]], rows)).toBe(
      'name,size_bytes\r\n"a, ""b""",1.5\r\n"two\nlines",\r\n',
    );
  });

  it("has no cells that a spreadsheet would run", () => {
    const text = csv([["name", (name: string) => name]], ["=1+1", "+1", "-1", "@x", "\tx", "x=1"]);
    expect(text).toBe("name\r\n'=1+1\r\n'+1\r\n'-1\r\n'@x\r\n'\tx\r\nx=1\r\n");
  });
});

describe("names of files", () => {
  it("say the project, the day and the content", () => {
    expect(fileName("gpt", Date.UTC(2026, 10, 27, 12), "kernels.csv")).toBe("gpt-2026-11-27-kernels.csv");
    expect(fileName("größe", null, "kernels.csv")).toBe("größe-kernels.csv");
  });

  it("have no path", () => {
    expect(fileName("../../etc/x y", null, "trace.json")).toBe("etc-x-y-trace.json");
    expect(fileName("...", Number.NaN, "trace.json")).toBe("project-trace.json");
    expect(fileName("a".repeat(500), null, "trace.json").length).toBeLessThan(100);
  });
});

describe("the Perfetto trace", () => {
  const timeline = decode(JSON.parse(readFileSync(join(import.meta.dirname, "../fixtures/timeline-gpu.json"), "utf8")))!;
  const memory = { peakBytes: 2, capacityBytes: null, durationNs: 10, peakAtNs: 5, curve: [[0, 1], [5, 2]] as [number, number][], atPeak: [], holders: [], tensors: [], explanation: "" };
  const trace = JSON.parse(perfettoTrace({ timeline, memory, name: "p", placeName: ({ file, line }) => `${file}:${line}` })) as {
    traceEvents: Record<string, unknown>[];
  };
  const events = (ph: string) => trace.traceEvents.filter((event) => event.ph === ph);

  it("has each track as a named thread, in order", () => {
    const names = events("M").filter(({ name }) => name === "thread_name").map(({ args }) => (args as { name: string }).name);
    expect(names).toEqual(timeline.tracks.map(({ name }) => name));
  });

  it("has each span with its phase and line, in microseconds", () => {
    expect(events("X")).toHaveLength(timeline.size);
    const first = events("X").find(({ args }) => (args as { line?: string }).line !== undefined)!;
    expect(first).toMatchObject({ pid: 1, cat: (first.args as { phase: string }).phase });
    expect((first.args as { line: string }).line).toMatch(/^\d+:\d+$/);
    const last = Math.max(...events("X").map(({ ts, dur }) => (ts as number) + (dur as number)));
    expect(last).toBeCloseTo(Math.max(...timeline.end) / 1000);
  });

  it("nests the spans of a thread, as trace viewers require", () => {
    for (const row of timeline.rows.filter(({ depth }) => depth > 0)) {
      const above = timeline.rows.find((other) => other.track === row.track && other.depth === row.depth - 1)!;
      for (let at = row.first; at < row.end; at += 1) {
        const isInside = Array.from({ length: above.end - above.first }, (_, index) => above.first + index).some(
          (outer) => timeline.start[outer]! <= timeline.start[at]! && timeline.end[outer]! >= timeline.end[at]!,
        );
        expect(isInside).toBe(true);
      }
    }
  });

  it("has an arrow from each launch to its kernel", () => {
    const launched = Array.from(timeline.launch, (launch, span) => ({ launch, span })).filter(({ launch }) => launch >= 0);
    expect(launched.length).toBeGreaterThan(0);
    const ends = (ph: string) => events(ph).map(({ id, ts }) => [id, ts]);
    expect(ends("s")).toEqual(launched.map(({ launch, span }) => [span, timeline.start[launch]! / 1000]));
    expect(ends("f")).toEqual(launched.map(({ span }) => [span, timeline.start[span]! / 1000]));
    for (const { id, tid } of events("s")) expect(events("f").find((end) => end.id === id)!.tid).not.toBe(tid);
  });

  it("has memory as a counter", () => {
    expect(events("C").map(({ ts, args }) => [ts, args])).toEqual([[0, { bytes: 1 }], [0.005, { bytes: 2 }]]);
  });
});
