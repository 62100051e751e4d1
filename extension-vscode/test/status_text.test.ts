import { expect, test } from "vitest";

import type { Status } from "../src/lsp_ext";
import { actions, bar, statusOf, type ServerState } from "../src/status_text";

const HEADLINE = {
  text: "312 samples/s · 102 ms · peak 3.1 / 23.7 GB",
  timeMs: 102,
  samplesPerSecond: 312,
  peakBytes: 3.1e9,
  capacityBytes: 23.7e9,
  device: "NVIDIA H200",
  isEstimate: false,
};

function status(change: Partial<Status> = {}): Status {
  return { root: "file:///w", state: "idle", message: null, run: null, headline: null, ...change };
}

function text(change: Partial<Status>): string {
  return bar("ready", status(change)).text;
}

test("the bar shows the throughput of the last measurement", () => {
  expect(text({})).toBe("$(pulse) Ridgeline");
  expect(text({ headline: HEADLINE })).toBe("$(pulse) 312 samples/s");
  expect(text({ headline: { ...HEADLINE, text: "102 ms" } })).toBe("$(pulse) 102 ms");
  expect(text({ headline: HEADLINE, state: "paused" })).toBe("$(debug-pause) 312 samples/s");
});

test("the bar shows the progress of a run", () => {
  const run = { reason: "train.py was saved", stage: "warming up", share: 0.429 };
  expect(text({ state: "running", run, headline: HEADLINE })).toBe("$(loading~spin) warming up 42%");
  const starting = { ...run, stage: "starting the program: importing transformers (train.py:3)", share: 0.05 };
  expect(text({ state: "running", run: starting })).toBe("$(loading~spin) starting the program 5%");
  expect(text({ state: "running", run: { ...run, stage: null, share: null } })).toBe("$(loading~spin) profiling");
});

test("the bar is emphasized only when the user must act", () => {
  const emphasis = (server: ServerState, change: Partial<Status>): string => bar(server, status(change)).emphasis;
  expect(emphasis("ready", { state: "waiting_for_trust" })).toBe("warning");
  expect(emphasis("missing", {})).toBe("error");
  expect(emphasis("stopped", {})).toBe("error");
  expect(emphasis("ready", { state: "failed", message: "out of memory" })).toBe("none");
});

test("the tooltip escapes program messages", () => {
  const { tooltip, label } = bar("ready", status({ state: "failed", message: "[a](command:x) $(bug) <b>" }));
  expect(tooltip).toContain(String.raw`\[a\]\(command:x\) \$\(bug\) \<b\>`);
  expect(label).toBe("Ridgeline: run failed. [a](command:x) $(bug) <b>");
});

test("labels for screen readers contain no icons", () => {
  expect(bar("ready", status({ headline: HEADLINE })).label).toBe(`Ridgeline: 312 samples/s. ${HEADLINE.text}`);
  expect(bar("missing", undefined).label).not.toContain("$(");
});

test("the actions depend on the state", () => {
  const first = (server: ServerState, state?: Status["state"]): string | undefined =>
    actions(server, state && status({ state }))[0]?.command;
  expect(first("missing")).toBe("ridgeline.openWalkthrough");
  expect(first("stopped")).toBe("ridgeline.restartServer");
  expect(first("ready")).toBe("ridgeline.profile");
  expect(first("ready", "running")).toBe("ridgeline.stop");
  expect(first("ready", "paused")).toBe("ridgeline.resume");
  expect(first("ready", "waiting_for_trust")).toBe("ridgeline.profile");
  expect(first("ready", "failed")).toBe("ridgeline.showOutput");
});

test("the innermost folder that contains the file determines the status", () => {
  const outer = status({ root: "file:///w" });
  const inner = status({ root: "file:///w/inner" });
  const other = status({ root: "file:///v", state: "running" });
  const all = new Map([["/w", outer], ["/w/inner", inner], ["/v", other]]);
  expect(statusOf(all, "/w/a.py")).toBe(outer);
  expect(statusOf(all, "/w/inner/a.py")).toBe(inner);
  expect(statusOf(all, "/w/inner2/a.py")).toBe(outer);
  expect(statusOf(all, "/elsewhere/a.py")).toBe(other);
  expect(statusOf(all, undefined)).toBe(other);
  expect(statusOf(new Map([["/w", outer], ["/w/inner", inner]]), undefined)).toBe(inner);
  expect(statusOf(new Map(), "/w/a.py")).toBeUndefined();
});
