import { expect, test } from "vitest";

import { readFindings } from "../src/findings/document";

const row = {
  rule: "hidden-sync",
  severity: "warning",
  text: ".item() waits for the GPU",
  why: "Python stands still.",
  cost: "1.2 ms per iteration (12%)",
  time_ns: 1.2e6,
  bytes: null,
  is_predicted: false,
  where: "train.py:12",
  place: { file: 0, line: 12 },
  related: [{ text: "made here", where: "net.py:3", place: null }],
  fix: { name: "detach-accumulated", title: "Accumulate the loss without its graph", possible: false, why: "the line has changed" },
};

test("findings are read in their order", () => {
  const findings = readFindings({ message: null, rows: [row, { ...row, text: "second", fix: null, cost: null }], left_out: 3 })!;
  expect(findings.leftOut).toBe(3);
  expect(findings.rows.map(({ text }) => text)).toEqual([".item() waits for the GPU", "second"]);
  expect(findings.rows[0]).toMatchObject({ severity: "warning", timeNs: 1.2e6, bytes: null, place: { file: 0, line: 12 } });
  expect(findings.rows[0]!.fix).toEqual({ name: "detach-accumulated", title: "Accumulate the loss without its graph", possible: false, why: "the line has changed" });
  expect(findings.rows[1]).toMatchObject({ cost: null, fix: null });
});

test("they may be missing or invalid", () => {
  for (const strange of [null, undefined, 3, [], "x"]) expect(readFindings(strange)).toBeNull();
  expect(readFindings({ rows: [null, {}, { text: "a", severity: "fatal", time_ns: -1, related: 7, fix: { title: "x" }, place: {} }] })).toEqual({
    message: null,
    leftOut: 0,
    rows: [{ rule: "", severity: "hint", text: "a", why: "", cost: null, timeNs: null, bytes: null, where: "", place: null, related: [], fix: null }],
  });
});
