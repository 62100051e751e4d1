import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

import { readDocument, UnknownSchema } from "../src/document";

const fixture = (name: string) =>
  JSON.parse(readFileSync(join(import.meta.dirname, "../fixtures", name), "utf8")) as Record<string, unknown>;

it("reads all of a real document", () => {
  const panel = readDocument(fixture("document.json"));
  expect(panel.recording?.breakdowns.map(({ key }) => key)).toEqual(["module", "line", "phase"]);
  expect(panel.recording?.memory?.curve.length).toBeGreaterThan(10);
  expect(panel.history.length).toBeGreaterThan(0);
  const savings = panel.recording?.bottleneck?.savings ?? [];
  expect(savings.map(({ cause }) => cause)).toEqual(["operators", "compute", "host_code"]);
  expect(savings[0]).toMatchObject({ atMostNs: 95789667, place: { file: 1, line: 22 } });
  expect(panel.recording?.bottleneck?.text).toMatch(/^Overhead-bound: 51% /);
  expect(panel.recording?.utilization[0]?.name).toBe("iteration");
  expect(panel.whatIfs?.rows.map(({ name }) => name)).toEqual(["zero-grad-none", "amp-bf16"]);
  expect(panel.whatIfs?.rows[0]?.measured).toMatchObject({ beforeNs: 10e6, timeNs: 5.5e6 });
  expect(panel.whatIfs).toMatchObject({ replayError: 0.004, measuring: "amp-bf16", accuracy: { pairs: 1 }, notes: ["The recording is a small one"] });
  expect(panel.whatIfs?.recompute).toHaveLength(3);
});

it("reads ranks and corrects invalid values", () => {
  const rank = { rank: 1, time_ns: 9, computing_ns: 7, exchange_ns: 3, waiting_ns: 2, batch_size: 8, peak_bytes: 5 };
  const line = { name: "train.py:5", place: { file: 0, line: 5 }, mean_ns: 2, least: { rank: 0, time_ns: 1 }, most: { rank: 1, time_ns: 3 } };
  const read = (ranks: unknown) => readDocument({ schema: 1, recording: { ranks } }).recording?.ranks;
  expect(read({ world_size: 2, ranks: [rank], lines: [line] })).toEqual({
    worldSize: 2,
    ranks: [{ rank: 1, timeNs: 9, computingNs: 7, exchangeNs: 3, waitingNs: 2, batchSize: 8, peakBytes: 5 }],
    lines: [
      { name: "train.py:5", place: { file: 0, line: 5 }, meanNs: 2, least: { rank: 0, timeNs: 1 }, most: { rank: 1, timeNs: 3 } },
    ],
  });
  expect(read({ world_size: "two", ranks: [{ time_ns: -1, exchange_ns: "x" }], lines: [{ least: 3 }] })).toMatchObject({
    worldSize: 0,
    ranks: [{ timeNs: 0, exchangeNs: null }],
    lines: [{ name: "", place: null, least: { rank: 0, timeNs: 0 } }],
  });
  expect(read(null)).toBeNull();
});

it("rejects another version", () => {
  expect(() => readDocument({ schema: 2 })).toThrow(UnknownSchema);
  expect(() => readDocument(null)).toThrow(UnknownSchema);
});

it("accepts an empty document", () => {
  const panel = readDocument({ schema: 1 });
  expect(panel).toMatchObject({ project: "project", recording: null, history: [], status: { state: "idle", run: null } });
});

it("corrects invalid values", () => {
  const panel = readDocument({
    schema: 1,
    recording: {
      duration_ns: -5,
      batch_size: "many",
      breakdowns: [
        {
          key: "module",
          nodes: [
            { name: "a", parent: 7, time_ns: 1e300, phases: [null, "x"], place: { file: -1, line: 2 } },
            { name: 5, parent: 0, time_ns: Number.NaN, place: { file: 0, line: 1.5 } },
            null,
          ],
        },
      ],
      memory: { curve: [[10, 5], "x", [3, 7]], duration_ns: null },
      kernels: { 0: "no list" },
      bottleneck: { text: 7, savings: [{ cause: "x", at_most_share: "much", at_most_ns: -1, place: 3 }, { at_most_share: 7 }, "y"] },
      utilization: [{ name: null, facts: "no list" }],
    },
  });
  const nodes = panel.recording?.breakdowns[0]?.nodes;
  expect(nodes?.map(({ name, parent, timeNs, place }) => ({ name, parent, timeNs, place }))).toEqual([
    { name: "a", parent: -1, timeNs: Number.MAX_SAFE_INTEGER, place: null },
    { name: "(no name)", parent: 0, timeNs: 0, place: null },
    { name: "(no name)", parent: -1, timeNs: 0, place: null },
  ]);
  expect(nodes?.[0]?.phases).toEqual([0, 0, 0, 0, 0]);
  expect(panel.recording?.memory).toMatchObject({ curve: [[10, 5], [10, 7]], durationNs: 10 });
  expect(panel.recording?.bottleneck).toMatchObject({
    savings: [{ cause: "x", atMostShare: 0, atMostNs: 0, place: null }, { atMostShare: 1 }, { atMostShare: 0 }],
  });
  expect(panel.recording?.utilization).toEqual([{ name: "", facts: [] }]);
  expect(panel.recording).toMatchObject({ durationNs: 0, batchSize: null, kernels: [] });
});

it("counts the nodes it left out", () => {
  const nodes = Array.from({ length: 50_010 }, (_, at) => ({ name: `n${at}`, parent: -1, time_ns: 1 }));
  const panel = readDocument({ schema: 1, recording: { breakdowns: [{ key: "module", left_out: 3, nodes }] } });
  expect(panel.recording?.breakdowns[0]).toMatchObject({ leftOut: 13 });
});
