// Tests the findings on the page. Run with `tests/panel/run`.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { reportPage } from "./report_page.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, THEMES, waitForPosts, waitUntil, withPage, withPanel } from "./session.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the panel's findings in Chromium: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const finding = (text, more = {}) => ({
  rule: "hidden-sync",
  severity: "warning",
  text,
  why: "Python stands still until the GPU is done.",
  cost: "12 ms per iteration (12%)",
  time_ns: 12e6,
  bytes: null,
  is_predicted: false,
  where: "train.py:57",
  place: { file: 1, line: 57 },
  related: [{ text: "it is made here", where: "model.py:24", place: { file: 0, line: 24 } }],
  fix: null,
  ...more,
});

const FIX = { name: "detach-accumulated", title: "Accumulate the loss without its graph (detach)", possible: true, why: null };

const ROWS = [
  finding(".item() waits for the GPU"),
  finding("`total += loss` retains the autograd graph of every iteration", { rule: "graph-kept", severity: "information", cost: "~40 MB of peak memory (2%)", fix: FIX }),
  finding("Anomaly detection is enabled", {
    rule: "anomaly-detection",
    severity: "hint",
    cost: null,
    related: [],
    fix: { name: "remove-anomaly-detection", title: "Disable anomaly detection", possible: false, why: "train.py:5 takes it from `args.debug`" },
  }),
  ...Array.from({ length: 6 }, (_, at) => finding(`something small, ${at}`, { severity: "hint" })),
];

const documents = (more = {}) => ({
  panel: { ...panelDocument(), findings: { message: null, rows: ROWS, left_out: 0, ...more } },
  timeline: timelineDocument(),
});

const section = (page) => page.locator("#findings");
const row = (page, text) => page.locator(".finding", { hasText: text });

describe("findings", { skip: found.reason }, () => {
  test("are listed by decreasing cost, with the cost and the reason", () =>
    withPanel(browser, documents(), async (page) => {
      assert.match(await row(page, ".item() waits").innerText(), /high impact\s+\.item\(\) waits for the GPU\s+train\.py:57 · 12 ms per iteration \(12%\) · hidden-sync\s+Python stands still until the GPU is done\.\s+model\.py:24 it is made here/i);
      assert.match(await row(page, "Anomaly").innerText(), /cost unknown\s+Anomaly[^·]*· anomaly-detection/i);
      assert.equal(await page.locator(".finding").count(), 6);
      await section(page).getByRole("button", { name: "Show all 9" }).click();
      assert.equal(await page.locator(".finding").count(), 9);
    }));

  test("link to their lines", () =>
    withPanel(browser, documents(), async (page, site) => {
      await row(page, ".item() waits").getByRole("button", { name: "train.py:57" }).click();
      assert.deepEqual(await waitForPosts(site, "jump", 1), [{ workspace: 0, file: 1, line: 57, generation: 7 }]);
      await row(page, ".item() waits").getByRole("button", { name: "model.py:24" }).click();
      assert.equal((await waitForPosts(site, "jump", 2))[1].line, 24);
    }));

  test("can be fixed with a button, or show why not", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.getByRole("button", { name: "Fix: Accumulate the loss without its graph (detach)" }).click();
      assert.deepEqual(await waitForPosts(site, "whatif", 1), [{ workspace: 0, name: "detach-accumulated", action: "apply", file: 1, line: 57, generation: 7 }]);
      const refused = page.getByRole("button", { name: "Fix: Disable anomaly detection" });
      assert.equal(await refused.getAttribute("aria-disabled"), "true");
      await refused.focus();
      await page.keyboard.press("Enter");
      await page.locator("#notice", { hasText: "Disable anomaly detection: train.py:5 takes it from" }).waitFor();
      assert.equal((await waitForPosts(site, "whatif", 1)).length, 1);
    }));

  test("show progress, and an empty list", () =>
    withPanel(browser, documents({ rows: [], message: "Looking for findings…" }), async (page, site) => {
      assert.equal(await section(page).getByRole("status").innerText(), "Looking for findings…");
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.panel = documents({ rows: [] }).panel;
      site.send("panel", null);
      await section(page).getByText("No problems found.").waitFor();
    }));

  test("are hidden without a measurement", () =>
    withPanel(browser, { panel: { ...panelDocument(), findings: null }, timeline: timelineDocument() }, async (page) => {
      assert.equal(await section(page).isVisible(), false);
    }));

  test("are accessible and fit a narrow window, in any theme", { skip: noAxe }, async () => {
    const folder = await screenshotFolder();
    for (const [theme, width] of [["light", 1280], ["dark", 400], ["high contrast, light", 1280]]) {
      await withPanel(browser, { ...documents(), ...THEMES[theme], width }, async (page) => {
        await checkNoSidewaysScroll(page, `${theme}, ${width}`);
        await checkAccessibility(page, `${theme}, ${width}`);
        await section(page).screenshot({ path: join(folder, `findings-${theme}-${width}.png`) });
      });
    }
  });

  test("are shown in a report, which has no editor", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ridgeline-report-"));
    try {
      const file = join(folder, "report.html");
      await writeFile(file, reportPage(documents().panel, timelineDocument()));
      await withPage(browser, { address: pathToFileURL(file).href, origin: "file:" }, async (page) => {
        assert.match(await row(page, "retains the autograd graph").innerText(), /In the editor: Accumulate the loss without its graph/);
        assert.equal(await page.getByRole("button", { name: /^Fix:/ }).count(), 0);
      });
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
