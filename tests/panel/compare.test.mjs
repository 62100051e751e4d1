// Tests the comparison of two runs on the page. Run with `tests/panel/run`.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, waitUntil, withPanel } from "./session.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED two runs side by side in Chromium: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const documents = () => ({ panel: panelDocument(), timeline: timelineDocument() });

const measure = (before, after, verdict) => ({ before, after, ratio: before > 0 && after !== null ? after / before : null, verdict });
const same = measure(5e6, 5e6, "within-noise");

/** A comparison in which one line is slower, one is new, and one is the same. */
function comparison() {
  const line = (line_before, line_after, own) => ({
    file: "model.py", scope: "Block.<forward>", line_before, line_after, is_changed: false, total: own, own, memory: same,
  });
  return {
    schema: 1,
    runs: [],
    before: { timed_iterations: 5 },
    after: { timed_iterations: 5 },
    unlike: null,
    test: { name: "Mann-Whitney U", u: 25, p_slower: 0.004, p_faster: 1, p_least: 0.004, is_exact: true },
    time: measure(1e8, 1.3e8, "slower"),
    throughput: measure(320, 246, "slower"),
    peak: same,
    phases: [{ name: "forward", time: measure(5e7, 8e7, "slower") }],
    lines: [line(8, 9, measure(5e7, 8e7, "slower")), line(null, 12, measure(null, 3e6, "new")), line(20, 20, same)],
    modules: [{ path: "blocks.0", type_name: "Block", total: same, own: same, memory: measure(1e6, 2e6, "larger") }],
    notes: ["both runs used the same code"],
  };
}

describe("two runs side by side", { skip: found.reason }, () => {
  test("are compared on request", () =>
    withPanel(browser, documents(), async (page, site) => {
      site.compare = comparison;
      assert.deepEqual(site.compared, []);
      await page.locator(".compare summary").click();
      await waitUntil(() => site.compared.length === 1, "the comparison to be asked for");
      const [now, then] = site.panel.history.map(({ when_unix_ms }) => when_unix_ms);
      assert.deepEqual(site.compared[0], [then, now]);
      const status = page.locator(".compare [role=status]");
      await waitUntil(async () => (await status.innerText()).startsWith("Iteration time: slower (+30%)"), "the summary");
      assert.match(await status.innerText(), /Significant changes in 2 lines and 1 module/);
      const text = await page.locator(".compare").innerText();
      assert.match(text, /model\.py:9 \(was 8\) Block\.<forward>\s+50 ms\s+80 ms\s+\+60% slower/);
      assert.match(text, /model\.py:12 Block\.<forward>\s+–\s+3\.0 ms\s+new/);
      assert.doesNotMatch(text, /model\.py:20/);
      assert.match(text, /Mann-Whitney U over 5 and 5 iterations: p = 0\.004 for slower/);
      await checkNoSidewaysScroll(page, "with two runs");
    }));

  test("can be exported while they are shown", () =>
    withPanel(browser, documents(), async (page, site) => {
      site.compare = comparison;
      const menu = page.locator("#history .export-toggle");
      const item = page.locator("#history .export-item", { hasText: "Comparison of two runs (CSV)" });
      await menu.click();
      assert.ok(await item.isHidden());
      await page.keyboard.press("Escape");
      await page.locator(".compare summary").click();
      await page.locator(".compare table").first().waitFor();
      await menu.click();
      const [download] = await Promise.all([page.waitForEvent("download"), item.click()]);
      const lines = (await readFile(await download.path(), "utf8")).split("\r\n");
      assert.match(download.suggestedFilename(), /-comparison\.csv$/);
      assert.equal(lines[0], "kind,name,detail,self_before_ns,self_after_ns,result,memory_before_bytes,memory_after_bytes");
      assert.ok(lines.some((line) => line.startsWith("line,model.py:9 (was 8),Block.<forward>,50000000,80000000,slower,")), lines.join("\n"));
    }));

  test("can be selected by keyboard, and stay selected", () =>
    withPanel(browser, documents(), async (page, site) => {
      site.compare = comparison;
      await page.locator(".compare summary").focus();
      await page.keyboard.press("Enter");
      await waitUntil(() => site.compared.length === 1, "the comparison");
      await page.keyboard.press("Tab");
      await page.keyboard.press("ArrowDown");
      await waitUntil(() => site.compared.length === 2, "another comparison");
      const whens = site.panel.history.map(({ when_unix_ms }) => when_unix_ms);
      assert.deepEqual(site.compared[1], [whens[2], whens[0]]);
      // A new run arrives. The compared runs stay selected.
      site.panel = { ...site.panel, generation: 8, history: [{ ...site.panel.history[0], when_unix_ms: whens[0] + 5000 }, ...site.panel.history] };
      site.send("panel", {});
      await waitUntil(async () => (await page.locator("#compare-after option").count()) === whens.length + 1, "the new run");
      assert.equal(await page.locator("#compare-before").inputValue(), String(whens[2]));
      assert.equal(await page.locator("#compare-after").inputValue(), String(whens[0]));
      assert.equal(site.compared.length, 2);
    }));

  test("show a message if a recording is no longer available", () =>
    withPanel(browser, documents(), async (page, site, errors) => {
      await page.locator(".compare summary").click();
      const status = page.locator(".compare [role=status]");
      await waitUntil(async () => (await status.innerText()).includes("not stored"), "the reason");
      // The browser itself logs 404 responses.
      errors.splice(0, errors.length, ...errors.filter((message) => !message.includes("404")));
    }));

  test("cannot be compared if there is only one", () =>
    withPanel(browser, { panel: panelDocument({ runs: 1 }), timeline: null }, async (page, _, errors) => {
      assert.equal(await page.locator(".compare").isVisible(), false);
      errors.splice(0, errors.length, ...errors.filter((message) => !message.includes("404")));
    }));

  test("are accessible and fit any width, light and dark", { skip: noAxe }, async () => {
    const folder = await screenshotFolder();
    for (const theme of ["light", "dark"]) {
      for (const width of [1280, 400]) {
        await withPanel(browser, { ...documents(), theme, width }, async (page, site) => {
          site.compare = comparison;
          await page.locator(".compare summary").click();
          await waitUntil(async () => (await page.locator(".compare tbody tr").count()) > 4, "the tables");
          await checkAccessibility(page, `two runs, ${theme}, ${width}`);
          await checkNoSidewaysScroll(page, `two runs, ${theme}, ${width}`);
          await page.locator(".compare").screenshot({ path: join(folder, `compare-${theme}-${width}.png`) });
        });
      }
    }
    console.log(`screenshots: ${folder}`);
  });
});
