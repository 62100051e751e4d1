// Tests the predictions for other GPUs on the page. Run with `tests/panel/run`.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { devicePredictions } from "./device_predictions.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, THEMES, withPanel } from "./session.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the panel in Chromium: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const documents = (devices = devicePredictions()) => ({
  panel: { ...panelDocument(), predictions: { batch_size: null, devices } },
  timeline: timelineDocument(),
});

const names = async (page) => (await page.locator("#predictions table").first().locator("tbody th").allInnerTexts()).map((text) => text.split(" ")[0]);

describe("other GPUs", { skip: found.reason }, () => {
  test("are listed fastest first, measured or predicted", () =>
    withPanel(browser, documents(), async (page) => {
      const rows = await page.locator("#predictions table").first().locator("tbody tr").allInnerTexts();
      assert.equal(rows.length, 12);
      assert.match(rows[0], /^B200-SXM6-180GB\s+~41 ms\s+32\.8 ms to 51\.2 ms\s+~780\s+11%\s+\$6\.99 \(2026-11-20\)\s+~\$2\.49\s+~16\.4 J/);
      assert.match(rows[4], /^NVIDIA H200 of ours here\s+102 ms\s+.*\$2\.50, yours \(2026-11-20\)/);
      assert.match(rows[11], /^RTX3080-10GB Its memory is too small for this batch\.\s+~400 ms\s+.*200%, out of memory\s+unknown\s+unknown/);
      const about = await page.locator("#predictions").innerText();
      assert.match(about, /scaled from the kernels measured on NVIDIA H200 of ours \(wave scaling\), batch size 32\. Ranges are 80% intervals/);
      assert.match(about, /The GPU is busy for 48% of the iteration/);
    }));

  test("can be sorted by any column in both directions, with unknown values last", () =>
    withPanel(browser, documents(), async (page) => {
      await page.locator("#predictions button", { hasText: "Show all 14" }).click();
      const sort = page.locator("#predictions button.sort", { hasText: "Price of a million samples" });
      const column = page.locator("#predictions thead th", { hasText: "Price of a million samples" });
      await sort.click();
      assert.equal(await column.getAttribute("aria-sort"), "ascending");
      let order = await names(page);
      assert.deepEqual([order[0], order.at(-1)], ["RTX5090", "RTX3080-10GB"]);
      await sort.press("Enter");
      assert.equal(await column.getAttribute("aria-sort"), "descending");
      order = await names(page);
      assert.deepEqual([order[0], order.at(-1)], ["P4000", "RTX3080-10GB"]);
      await page.locator("#predictions button.sort", { hasText: "GPU" }).click();
      assert.equal((await names(page))[0], "A100-SXM4-80GB");
    }));

  test("show the batch size that keeps each of them busy, the cheapest first", () =>
    withPanel(browser, documents(devicePredictions({ batches: true })), async (page) => {
      const table = page.getByRole("table", { name: "Batch size that keeps each GPU busy" });
      const rows = await table.locator("tbody tr").allInnerTexts();
      assert.equal(rows.length, 12);
      assert.match(rows[0], /^RTX5090\s+48 \(memory\)\s+~333\s+~\$0\.74\s+~48$/);
      const text = await page.locator("#predictions").innerText();
      assert.match(text, /Each GPU has the batch size that keeps it busy\..* Not shown: 1 GPU without a known price or batch size/);
      assert.match(text, /\(memory\): a larger batch may not fit/);
      assert.doesNotMatch(text, /\(data\)/);
      if (!noAxe) await checkAccessibility(page);
      await checkNoSidewaysScroll(page);
      await page.locator("#predictions").screenshot({ path: join(await screenshotFolder(), "panel-gpu-batches.png") });
    }));

  test("compare one GPU with several in a machine", () =>
    withPanel(browser, documents(devicePredictions({ machines: true, batches: true })), async (page) => {
      const table = page.getByRole("table", { name: "One GPU or several in a machine" });
      const rows = await table.locator("tbody tr").allInnerTexts();
      assert.equal(rows.length, 8);
      const label = await page.locator("canvas.devices").getAttribute("aria-label");
      assert.match(label, /than: 8 × B200-SXM6-180GB 5676 samples\/s and \$2\.74; .*8 × RTX5090/);
      assert.match(await page.locator("#predictions").innerText(), /A square is one machine with several GPUs/);
      assert.match(rows[0], /^1 × RTX5090\s+32\s+~96 ms\s+~333\s+\$0\.89\s+~\$0\.74$/);
      assert.match(rows[3], /^8 × RTX5090\s+32\s+~106 ms\s+~2424\s+~7\.27×\s+\$7\.12\s+~\$0\.82$/);
      if (!noAxe) await checkAccessibility(page);
      await checkNoSidewaysScroll(page);
      await page.locator("#predictions").screenshot({ path: join(await screenshotFolder(), "panel-machines.png") });
    }));

  test("hide the machines and the batch sizes until they are known", () =>
    withPanel(browser, documents(), async (page) => {
      await page.getByRole("table", { name: "Predictions for other GPUs" }).waitFor();
      assert.equal(await page.getByRole("table", { name: "Batch size that keeps each GPU busy" }).count(), 0);
      assert.equal(await page.getByRole("table", { name: "One GPU or several in a machine" }).count(), 0);
    }));

  test("keep their order when a new document arrives", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.locator("#predictions button.sort", { hasText: "Price of a million samples" }).click();
      const again = documents(devicePredictions({ here: "L40S" })).panel;
      site.panel = { ...again, generation: 8, project: "gpt-two" };
      site.send("panel", { generation: 8 });
      await page.waitForFunction(() => document.title.startsWith("gpt-two"));
      assert.equal((await names(page))[0], "RTX5090");
    }));

  test("show a tooltip at the pointer, and a text alternative for the chart", () =>
    withPanel(browser, documents(), async (page) => {
      const canvas = page.locator("canvas.devices");
      const label = await canvas.getAttribute("aria-label");
      assert.match(label, /price of a million samples.*B200-SXM6-180GB 780 samples\/s and \$2\.49.*RTX5090 333 samples\/s and \$0\.74/);
      const { width, height } = await canvas.boundingBox();
      let tooltip = "";
      for (let y = 10; y < height && tooltip === ""; y += 8) {
        for (let x = 60; x < width && tooltip === ""; x += 16) {
          await canvas.hover({ position: { x, y } });
          if (await page.locator("#tooltip").isVisible()) tooltip = await page.locator("#tooltip").innerText();
        }
      }
      assert.match(tooltip, /predicted[^]*throughput[^]*~.* samples\/s \(.* to .*\)[^]*price of a million samples[^]*batch size[^]*iteration/);
    }));

  test("have prices per epoch if its length is known", () =>
    withPanel(browser, documents(devicePredictions({ epoch: 1_281_167 })), async (page) => {
      assert.match(await page.locator("#predictions").innerText(), /One epoch is 1,281,167 samples/);
      assert.equal(await page.locator("#predictions button.sort", { hasText: "Price of an epoch" }).count(), 1);
    }));

  test("show that nothing was measured on a GPU", () =>
    withPanel(browser, documents(devicePredictions({ here: null })), async (page) => {
      assert.match(await page.locator("#predictions").innerText(), /from operator costs only/);
    }));

  test("are hidden if there are no predictions or invalid ones", async () => {
    for (const devices of [null, 7, { rows: [] }, { rows: [{ name: "<b>x</b>" }] }]) {
      await withPanel(browser, documents(devices), async (page) => {
        assert.equal(await page.locator("#predictions").isVisible(), false);
      });
    }
  });

  test("have no chart if no price is known", () => {
    const devices = devicePredictions();
    for (const row of devices.rows) row.usd_per_million_samples = null;
    return withPanel(browser, documents(devices), async (page) => {
      assert.equal(await page.locator("canvas.devices").isVisible(), false);
      assert.match(await page.locator("#predictions").innerText(), /No chart: the prices/);
    });
  });

  test("are accessible and fit any width, in any theme", { skip: noAxe }, async () => {
    const folder = await screenshotFolder();
    for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 360], ["high contrast", 1280]]) {
      await withPanel(browser, { ...documents(), ...THEMES[theme], width }, async (page) => {
        await checkAccessibility(page, `${theme} ${width}`);
        await checkNoSidewaysScroll(page, `${theme} ${width}`);
        await page.locator("#predictions").screenshot({ path: join(folder, `devices-${theme}-${width}.png`) });
      });
    }
  });
});
