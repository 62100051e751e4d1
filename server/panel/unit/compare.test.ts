import { describe, expect, test } from "vitest";

import { change, changed, readComparison, tone, verdictName } from "../src/compare/document";

const measure = (before: number | null, after: number | null, verdict: string) => ({
  before,
  after,
  ratio: before !== null && after !== null ? after / before : null,
  verdict,
});

const row = (line: number | null, after: number | null, own: object) => ({
  file: "train.py",
  scope: "Net.forward",
  line_before: line,
  line_after: after,
  is_changed: line !== after,
  total: own,
  own,
  memory: measure(5, 5, "within-noise"),
});

const DOCUMENT = {
  schema: 1,
  before: { timed_iterations: 7 },
  after: { timed_iterations: 3 },
  unlike: null,
  test: { name: "Mann-Whitney U", p_slower: 0.004, p_faster: 0.99 },
  time: measure(1e8, 1.3e8, "slower"),
  throughput: measure(320, 246, "slower"),
  peak: measure(100, 100, "within-noise"),
  phases: [{ name: "forward", time: measure(5e7, 8e7, "slower") }],
  lines: [row(8, 9, measure(5e7, 8e7, "slower")), row(10, 10, measure(1e6, 1e6, "within-noise")), row(null, 12, measure(null, 3e6, "new"))],
  modules: [{ path: "", type_name: "Net", own: measure(1, 1, "unknown"), memory: measure(1, 1, "unknown") }],
  notes: ["both runs used the same code", 7],
};

describe("two runs side by side", () => {
  test("a document is read", () => {
    const found = readComparison(DOCUMENT);
    expect(found.time).toEqual({ before: 1e8, after: 1.3e8, ratio: 1.3, verdict: "slower" });
    expect(found.lines.map(({ name }) => name)).toEqual(["train.py:9 (was 8), edited", "train.py:10", "train.py:12, edited"]);
    expect(found.modules[0]?.name).toBe("(model)");
    expect(found.test).toBe("Mann-Whitney U over 7 and 3 iterations: p = 0.004 for slower");
    expect(found.notes).toEqual(["both runs used the same code"]);
  });

  test("rows without a change are left out", () => {
    const found = readComparison(DOCUMENT);
    expect(changed(found.lines).map(({ own }) => own.verdict)).toEqual(["slower", "new"]);
    expect(changed(found.modules)).toEqual([]);
  });

  test.each([null, 3, [], {}, { lines: 7, time: "x", test: [], notes: {} }, { lines: [null, 1, {}] }])("whatever comes is put right: %j", (value) => {
    const found = readComparison(value);
    expect(found.time.verdict).toBe("unknown");
    expect(found.test).toBeNull();
    expect(changed(found.lines)).toEqual([]);
  });

  test("verdicts have a name and a tone", () => {
    expect([verdictName("within-noise"), verdictName("unknown"), verdictName("gone")]).toEqual(["within noise", "unknown", "gone"]);
    expect([tone("faster"), tone("larger"), tone("new"), tone("within-noise")]).toEqual(["better", "worse", "same", "same"]);
  });

  test("changes are formatted like the server's", () => {
    expect([1, 1.041, 0.88, 1.004, 15].map(change)).toEqual(["±0%", "+4%", "−12%", "+0.4%", "×15"]);
    expect(change(null)).toBe("");
  });
});
