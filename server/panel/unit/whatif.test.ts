import { describe, expect, test } from "vitest";

import { at, measuredSpeedup, scaleOf } from "../src/whatif/bar";
import { readWhatIfs, type WhatIf } from "../src/whatif/document";
import { accuracy, change, measuredWords, reach, reasons, replay, times } from "../src/whatif/words";

const range = (value: number) => ({ low: value * 0.9, value, high: value * 1.1 });

const row = (name: string, more: object = {}) => ({
  name,
  title: `Title of ${name}`,
  speedup: range(2),
  time_ns: range(50e6),
  peak_bytes: range(2e9),
  lines: [{ file: 0, line: 12 }],
  edit: { possible: true, why: null },
  ...more,
});

const read = (more: object) => readWhatIfs({ before: { time_ns: 100e6, peak_bytes: 3e9 }, ...more })!;
const rows = (...given: object[]) => read({ rows: given }).rows;
const one = (more: object = {}): WhatIf => rows(row("a", more))[0]!;

describe("the document", () => {
  test("is read in its order", () => {
    const whatIfs = read({ replay_error: 0.004, rows: [row("b"), row("a")], recompute: [{ time_ns: 1, peak_bytes: 2, lines: [] }], measuring: "b" });
    expect(whatIfs.rows.map(({ name }) => name)).toEqual(["b", "a"]);
    expect(whatIfs).toMatchObject({ replayError: 0.004, measuring: "b", accuracy: null, message: null });
    expect(whatIfs.recompute).toEqual([{ timeNs: 1, peakBytes: 2, lines: [], isAnEdit: false }]);
  });

  test("may be missing or invalid", () => {
    for (const strange of [null, undefined, 3, [], "x"]) expect(readWhatIfs(strange)).toBeNull();
    expect(readWhatIfs({ rows: 3, refusals: [null, {}], recompute: [{ time_ns: -1 }], accuracy: { pairs: 0 }, before: 7 })).toEqual({
      replayError: null,
      message: null,
      before: { timeNs: null, peakBytes: null },
      rows: [],
      combinations: [],
      refusals: [],
      recompute: [],
      accuracy: null,
      measuring: null,
      notes: [],
    });
    expect(rows(row(""), row("a", { speedup: null }), row("b", { speedup: { value: 0 } }), row("c"), row("c"), {})).toHaveLength(1);
    expect(one({ lines: [{ file: -1, line: 1 }, 7], notes: ["", 3, "x"], edit: null, measured: { time_ns: 0 } })).toMatchObject({
      lines: [],
      notes: ["x"],
      edit: { possible: false, why: null },
      measured: null,
    });
  });

  test("adds a reason to a refusal without one", () => {
    expect(read({ refusals: [{ name: "fp8" }] }).refusals).toEqual([{ title: "fp8", why: "for an unknown reason" }]);
  });
});

describe("the bars", () => {
  test("use a logarithmic scale from 1×", () => {
    const scale = { low: 0.5, high: 2 };
    expect([0.5, 1, 2].map((speedup) => at(speedup, scale))).toEqual([0, 0.5, 1]);
    expect([at(0.01, scale), at(100, scale), at(0, scale)]).toEqual([0, 1, 0]);
  });

  test("share a scale that covers all ranges, up to a limit", () => {
    expect(scaleOf(rows(row("a"), row("b", { speedup: { low: 0.6, value: 0.7, high: 0.8 } })))).toEqual({ low: 0.6, high: 2.2 });
    expect(scaleOf(rows(row("a", { speedup: { low: 1e-9, value: 1, high: 1e9 } })))).toEqual({ low: 0.25, high: 8 });
    expect(scaleOf([])).toEqual({ low: 0.95, high: 1.3 });
  });

  test("show the measured speedup for the same number of samples", () => {
    const measured = { beforeNs: null, timeNs: 40e6, peakBytes: null, whenMs: null };
    expect(measuredSpeedup(one(), measured, 100e6)).toBeCloseTo(2.5);
    // The machine is slower now: compare with the baseline of the same measurement.
    expect(measuredSpeedup(one(), { ...measured, beforeNs: 80e6 }, 100e6)).toBeCloseTo(2);
    expect(measuredSpeedup(one({ time_ns: null }), measured, 100e6)).toBeNull();
  });
});

describe("the words", () => {
  test("format a speedup, a range and a change", () => {
    expect([1.8371, 0.5, 12.34].map(times)).toEqual(["1.84×", "0.50×", "12.3×"]);
    expect(reach(range(2), times)).toBe("1.80× to 2.20×");
    expect(reach({ low: 2, value: 2, high: 2 }, times)).toBe("2.00×");
    expect([change(100, 69), change(100, 104), change(100, 100.2), change(null, 5), change(0, 5)]).toEqual(["−31%", "+4%", "", "", ""]);
  });

  test("describe the simulation error", () => {
    expect(replay(read({ replay_error: 0.004 }))).toBe("The simulation reproduces the recorded iteration within 0.4%.");
    expect(replay(read({ replay_error: 0 }))).toContain("within 0.1%");
    expect(replay(read({ replay_error: 0.12 }))).toBe("The simulation is 12% off the recorded iteration: treat these predictions as a guess.");
    expect(replay(read({}))).toContain("unknown");
  });

  test("describe the error of earlier predictions", () => {
    expect(accuracy(null)).toBe("No prediction has been measured here yet.");
    expect(accuracy({ pairs: 1, meanError: 0.06, largestError: 0.06 })).toBe("The one prediction measured here was 6% off.");
    expect(accuracy({ pairs: 7, meanError: 0.06, largestError: 0.14 })).toBe(
      "The 7 predictions measured here were 6% off on average, and 14% at most.",
    );
  });

  test("compare a measurement with its prediction", () => {
    const measured = (beforeNs: number | null, timeNs: number, peakBytes: number | null) =>
      measuredWords(one(), { beforeNs, timeNs, peakBytes, whenMs: null }, 100e6);
    expect(measured(null, 50e6, 2.1e9)).toEqual({ time: "50 ms, as predicted", peak: "2.1 GB, 5% more than predicted", isWithin: true });
    expect(measured(100e6, 40e6, null)).toEqual({
      time: "40 ms instead of 100 ms, 20% less than predicted and out of range",
      peak: null,
      isWithin: false,
    });
    expect(measured(80e6, 40e6, null).time).toBe("40 ms instead of 80 ms, as predicted");
  });

  test("explain why actions are disabled", () => {
    const whatIfs = read({ rows: [row("a"), row("b"), row("c", { edit: { possible: false, why: "it is there already" } })] });
    const [a, b, c] = whatIfs.rows;
    expect(reasons(a!, whatIfs, true)).toEqual({ apply: null, measure: null });
    expect(reasons(a!, whatIfs, false).measure).toContain("no editor");
    expect(reasons(c!, whatIfs, true)).toEqual({ apply: "it is there already", measure: "it is there already" });
    const measuring = { ...whatIfs, measuring: "a" };
    expect(reasons(a!, measuring, true)).toEqual({ apply: null, measure: "measurement in progress" });
    expect(reasons(b!, measuring, true).measure).toBe("measuring Title of a");
  });
});
