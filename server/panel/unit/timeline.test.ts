import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

import { find, step } from "../src/timeline/find";
import { flowsOf } from "../src/timeline/flows";
import { decode, firstAfter, longest, spanAt, type Timeline } from "../src/timeline/model";
import { sums } from "../src/timeline/sums";
import { visit } from "../src/timeline/visit";

type Span = [track: number, depth: number, start: number, duration: number, phase?: number];

function timeline(spans: Span[], tracks = ["host", "stream"]): Timeline {
  const column = (at: number) => spans.map((span) => span[at] ?? 1);
  const made = decode({
    schema: 1,
    duration_ns: 100,
    names: ["op"],
    tracks: tracks.map((kind) => ({ name: kind, kind })),
    spans: {
      track: column(0),
      depth: column(1),
      start_ns: column(2),
      duration_ns: column(3),
      name: spans.map(() => 0),
      file: spans.map(() => 0),
      line: spans.map((_, at) => at + 1),
      phase: column(4),
    },
    left_out: 0,
  });
  if (made === null) throw new Error("no timeline");
  return made;
}

/** Returns the boxes of a row as `start-end`, with `×n` for a box of several spans. */
function boxes(of: Timeline, row: number, from: number, to: number, pixel: number): string[] {
  const found: string[] = [];
  visit(of, of.rows[row]!, from, to, pixel, (start, end, span, count) => {
    found.push(`${start}-${end}${count > 1 ? `×${count} line ${of.line[span]}` : ""}`);
  });
  return found;
}

describe("decoding", () => {
  it("orders spans by track, depth and start", () => {
    const of = timeline([
      [0, 0, 0, 50],
      [0, 1, 10, 10],
      [0, 0, 60, 10],
      [1, 0, 5, 5],
    ]);
    expect(of.rows.map(({ track, depth, first, end }) => [track, depth, first, end])).toEqual([
      [0, 0, 0, 2],
      [0, 1, 2, 3],
      [1, 0, 3, 4],
    ]);
    expect([...of.line]).toEqual([1, 3, 2, 4]);
    expect(of.tracks.map(({ busyNs, spans }) => [busyNs, spans])).toEqual([
      [60, 3],
      [5, 1],
    ]);
  });

  it("drops damaged spans and counts them", () => {
    const of = timeline([
      [0, 0, 0, 10],
      [9, 0, 0, 10],
      [0, -1, 0, 10],
      [0, 0, Number.NaN, 10],
      [0, 99, 0, 10],
      [0, 0, 20, -5],
    ]);
    expect([of.size, of.dropped]).toEqual([1, 5]);
    expect(decode(null)).toBeNull();
    expect(decode({ spans: {} })?.size).toBe(0);
  });

  it("sorts the spans of an unsorted row", () => {
    const of = timeline([
      [0, 0, 50, 10],
      [0, 0, 0, 10],
    ]);
    expect([...of.start]).toEqual([0, 50]);
    expect([...of.line]).toEqual([2, 1]);
  });

  it("reads a real timeline", () => {
    const real = decode(JSON.parse(readFileSync(join(import.meta.dirname, "../fixtures/timeline.json"), "utf8")));
    expect(real?.dropped).toBe(0);
    expect(real?.size).toBeGreaterThan(100);
    expect(real?.tracks[0]?.kind).toBe("phases");
  });
});

describe("looking up", () => {
  it("finds active spans, even after the start of an earlier long span", () => {
    const of = timeline([
      [0, 0, 0, 90],
      [0, 0, 10, 5],
      [0, 0, 50, 5],
    ]);
    expect(firstAfter(of, of.rows[0]!, 40)).toBe(0);
    expect(spanAt(of, of.rows[0]!, 70, 1)).toBe(0);
    expect(spanAt(of, of.rows[0]!, 95, 1)).toBe(-1);
  });

  it("falls back to the longest span within the slack", () => {
    const of = timeline([
      [0, 0, 10, 1],
      [0, 0, 12, 3],
    ]);
    expect(spanAt(of, of.rows[0]!, 11.5, 2)).toBe(1);
  });

  it("lists the longest spans", () => {
    const of = timeline(
      Array.from({ length: 90 }, (_, at): Span => [0, 0, at, ((at * 37) % 89) + 1]),
    );
    expect(longest(of, 3).map((span) => of.end[span]! - of.start[span]!)).toEqual([89, 88, 87]);
  });
});

describe("drawing", () => {
  const row: Span[] = [
    [0, 0, 0, 10],
    [0, 0, 10, 1],
    [0, 0, 11, 1],
    [0, 0, 12, 2],
    [0, 0, 30, 1],
    [0, 0, 40, 20],
  ];

  it("draws each span as a box if there is room", () => {
    expect(boxes(timeline(row), 0, 0, 100, 0.5)).toEqual(["0-10", "10-11", "11-12", "12-14", "30-31", "40-60"]);
  });

  it("merges short neighbours into a box for the longest of them", () => {
    expect(boxes(timeline(row), 0, 0, 100, 4)).toEqual(["0-10", "10-14×3 line 4", "30-31", "40-60"]);
  });

  it("draws only what is in view", () => {
    expect(boxes(timeline(row), 0, 13, 35, 0.5)).toEqual(["12-14", "30-31"]);
  });

  it("does not merge different phases if a box has a pixel", () => {
    const phases = timeline(Array.from({ length: 40 }, (_, at): Span => [0, 0, at, 1, at < 20 ? 1 : 2]));
    expect(boxes(phases, 0, 0, 40, 4).length).toBe(2);
  });

  it("never draws many more boxes than there are pixels", () => {
    const many = timeline(Array.from({ length: 50_000 }, (_, at): Span => [0, 0, at / 500, 1 / 600, at % 5]));
    expect(boxes(many, 0, 0, 100, 0.1).length).toBeLessThan(1_100);
  });

  it("loses no time: boxes cover every span", () => {
    const of = timeline(row);
    for (const pixel of [0.1, 1, 3, 15, 200]) {
      const drawn: [number, number][] = [];
      visit(of, of.rows[0]!, 0, 100, pixel, (start, end) => drawn.push([start, end]));
      for (const [, , start, long] of row) {
        expect(drawn.some(([left, right]) => left <= start && right >= start + long)).toBe(true);
      }
    }
  });
});

describe("searching", () => {
  const of = decode({
    duration_ns: 100,
    names: ["aten::conv2d", "aten::relu", "gemm kernel"],
    tracks: [{ name: "host", kind: "host" }, { name: "stream", kind: "stream" }],
    spans: {
      track: [0, 0, 0, 1],
      depth: [0, 0, 0, 0],
      start_ns: [0, 20, 60, 10],
      duration_ns: [10, 10, 10, 40],
      name: [0, 1, 0, 2],
      file: [0, 0, 0, 0],
      line: [1, 1, 1, 1],
      phase: [1, 1, 1, 1],
    },
  })!;

  it("finds names with all words, in time order", () => {
    const found = find(of, "ATEN conv")!;
    expect(found.spans.map((span) => of.start[span])).toEqual([0, 60]);
    expect(found.totalNs).toBe(20);
    expect(find(of, "  ")).toBeNull();
    expect(find(of, "aten kernel")!.spans).toEqual([]);
  });

  it("steps through matches and around the end", () => {
    const found = find(of, "conv")!;
    const [first, second] = found.spans as [number, number];
    expect(step(of, found, -1, false)).toBe(first);
    expect(step(of, found, first, false)).toBe(second);
    expect(step(of, found, second, false)).toBe(first);
    expect(step(of, found, first, true)).toBe(second);
    // From a span that does not match: the next one after it.
    expect(step(of, found, 1, false)).toBe(second);
    expect(step(of, find(of, "nothing")!, -1, false)).toBe(-1);
  });
});

describe("flows", () => {
  const document = (launch: number[], start = [0, 5, 20, 50]) => decode({
    duration_ns: 100,
    names: ["op"],
    tracks: [{ name: "host", kind: "host" }, { name: "stream", kind: "stream" }],
    spans: {
      track: [0, 0, 1, 1],
      depth: [0, 1, 0, 0],
      start_ns: start,
      duration_ns: [20, 5, 10, 10],
      name: [0, 0, 0, 0],
      file: [0, 0, 0, 0],
      line: [1, 1, 1, 1],
      phase: [1, 1, 1, 1],
      launch,
    },
  })!;

  it("lead from a launch to its kernel, also from the operator around the launch", () => {
    const of = document([-1, -1, 1, -1]);
    expect(flowsOf(of, 2)).toEqual([{ from: 1, to: 2 }]);
    expect(flowsOf(of, 1)).toEqual([{ from: 1, to: 2 }]);
    expect(flowsOf(of, 0)).toEqual([{ from: 1, to: 2 }]);
    expect(flowsOf(of, 3)).toEqual([]);
    expect(flowsOf(of, -1)).toEqual([]);
  });

  it("are unknown in a document without launches, or with absurd or unsorted ones", () => {
    expect(flowsOf(document([]), 2)).toEqual([]);
    expect(flowsOf(document([9, -5, 1e12, Number.NaN]), 2)).toEqual([]);
    expect(flowsOf(document([-1, -1, 1, -1], [0, 5, 60, 50]), 2)).toEqual([]);
  });
});

describe("the sums of a range", () => {
  it("count what is inside, and nested spans once for the track", () => {
    const of = timeline([
      [0, 0, 0, 50],
      [0, 1, 10, 10],
      [0, 0, 60, 20],
      [1, 0, 5, 5],
    ]);
    const found = sums(of, { start: 15, end: 70 }, 5);
    expect(found.tracks).toEqual([{ track: 0, busyNs: 45 }]);
    expect(found.names).toEqual([{ name: 0, track: 0, calls: 3, totalNs: 50 }]);
    expect(sums(of, { start: 0, end: 100 }, 1)).toMatchObject({ more: 1, names: [{ track: 0, calls: 3, totalNs: 80 }] });
    expect(sums(of, { start: 90, end: 95 }, 5)).toMatchObject({ tracks: [], names: [] });
  });
});
