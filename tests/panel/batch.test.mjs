// Tests the batch-size handles in Chromium, by mouse, touch and keyboard. Run with `tests/panel/run`.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { findBrowser, launch } from "./browser.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, THEMES, waitForPosts, withPanel } from "./session.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the panel's batch-size handles in Chromium: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const range = (value, share = 0.05) => ({ low: value * (1 - share), value, high: value * (1 + share) });

/** Batches from 8 to 128; 96 is the largest that fits. */
function batchSize(more = {}) {
  const point = (batch) => ({
    batch,
    time_ns: range(1e7 + 1e6 * batch),
    samples_per_second: range((batch * 1e9) / (1e7 + 1e6 * batch)),
    peak_bytes: range(1e9 + 2e7 * batch, 0.01),
    measured: [24, 32, 48].includes(batch),
    fits: batch <= 96,
  });
  return {
    state: "ready",
    message: null,
    current: 32,
    site: { text: "batch_size=32", place: { file: 1, line: 12 }, note: "val_loader takes the same number" },
    refusal: null,
    points: [8, 16, 24, 32, 48, 64, 96, 128].map(point),
    capacity_bytes: 2.95e9,
    largest: { low: 95, value: 96, high: 97 },
    saturation: { low: 50, value: 60, high: 70 },
    ...more,
  };
}

const documents = (more) => ({
  panel: { ...panelDocument(), predictions: { batch_size: batchSize(more), devices: null } },
  timeline: timelineDocument(),
});

const sliders = (page) => page.locator("#batch [role=slider]");
const now = (page) => page.locator(".batch-now").innerText();

/** Grabs a handle and drags it to a fraction of the chart's width. */
async function take(page, which, share, dy = 0) {
  const handle = await sliders(page).nth(which).boundingBox();
  const chart = await page.locator(".batch-chart").nth(which).boundingBox();
  await page.mouse.move(handle.x + handle.width / 2, handle.y + handle.height / 2);
  await page.mouse.down();
  await page.mouse.move(chart.x + chart.width * share, handle.y + handle.height / 2 + dy, { steps: 4 });
}

describe("the batch-size handles", { skip: found.reason }, () => {
  test("show the batch size in the code, with throughput and memory", () =>
    withPanel(browser, documents(), async (page) => {
      assert.match(await now(page), /Batch size 32 · 762 samples\/s · 1\.6 GB at train\.py:12/);
      const slider = sliders(page).first();
      assert.equal(await slider.getAttribute("aria-valuenow"), "32");
      assert.equal(await slider.getAttribute("aria-valuemax"), "128");
      assert.match(await slider.getAttribute("aria-valuetext"), /batch size 32, throughput 762 samples\/s/);
      assert.match(await page.locator("#batch").innerText(), /val_loader takes the same number/);
    }));

  for (const which of [0, 1]) {
    test(`can be dragged with the mouse: ${["throughput", "memory"][which]}`, () =>
      withPanel(browser, documents(), async (page, site) => {
        await take(page, which, 0.75);
        // 8 · 16^0.75 is 64. Both handles move during the drag.
        assert.match(await now(page), /Batch size 64 · ~865 samples\/s · ~2\.3 GB · current: 32/);
        assert.deepEqual(site.posts.filter(({ name }) => name === "batch"), []);
        await page.mouse.up();
        assert.deepEqual(await waitForPosts(site, "batch", 1), [{ workspace: 0, batch: 64, generation: 7 }]);
      }));
  }

  test("return to their position when released outside the chart, or on Escape", () =>
    withPanel(browser, documents(), async (page, site) => {
      await take(page, 0, 0.75, -2000);
      assert.match(await now(page), /Batch size 64/);
      await page.mouse.up();
      assert.match(await now(page), /Batch size 32/);
      await take(page, 1, 0.9);
      await page.keyboard.press("Escape");
      await page.mouse.up();
      assert.match(await now(page), /Batch size 32/);
      // Only the last value was requested.
      await sliders(page).first().press("End");
      await page.keyboard.press("Enter");
      assert.deepEqual(await waitForPosts(site, "batch", 1), [{ workspace: 0, batch: 128, generation: 7 }]);
    }));

  test("can be moved by keyboard", () =>
    withPanel(browser, documents(), async (page, site) => {
      const slider = sliders(page).first();
      await slider.focus();
      for (const [key, batch] of [["ArrowRight", 33], ["PageUp", 66], ["PageDown", 33], ["ArrowDown", 32], ["Home", 8], ["End", 128]]) {
        await page.keyboard.press(key);
        assert.equal(await slider.getAttribute("aria-valuenow"), String(batch), key);
      }
      assert.match(await now(page), /does not fit/);
      await page.keyboard.press("Escape");
      assert.equal(await slider.getAttribute("aria-valuenow"), "32");
      await page.keyboard.press("ArrowRight");
      // Leaving the handle does not set a value.
      await page.keyboard.press("Tab");
      assert.match(await now(page), /Batch size 32/);
      await slider.focus();
      await page.keyboard.press("ArrowLeft");
      await page.keyboard.press("Enter");
      assert.deepEqual(await waitForPosts(site, "batch", 1), [{ workspace: 0, batch: 31, generation: 7 }]);
    }));

  test("have buttons for the largest batch and for saturation", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.getByRole("button", { name: "Largest that fits: 96" }).click();
      await page.getByRole("button", { name: "Throughput saturates: 60" }).click();
      const requests = await waitForPosts(site, "batch", 2);
      assert.deepEqual(requests.map(({ batch }) => batch), [96, 60]);
    }));

  test("are hidden if the batch size cannot be edited, with the reason", async () => {
    await withPanel(browser, documents({ site: null, refusal: "train.py:9 computes the batch size" }), async (page) => {
      assert.equal(await sliders(page).first().isVisible(), false);
      assert.match(await page.locator("#batch").innerText(), /cannot be changed here: train\.py:9 computes the batch size\./);
    });
    const unedited = documents();
    unedited.panel.can_jump = false;
    await withPanel(browser, unedited, async (page) => {
      assert.equal(await sliders(page).first().isVisible(), false);
    });
  });

  test("show what is unknown", async () => {
    const unknown = { state: "unavailable", message: "only one batch size was measured, which does not allow a prediction for others", points: [], largest: null, saturation: null, capacity_bytes: null };
    await withPanel(browser, documents(unknown), async (page) => {
      assert.match(await now(page), /throughput unknown · peak memory unknown/);
      assert.match(await page.locator("#batch").innerText(), /only one batch size was measured/);
      assert.match(await sliders(page).first().getAttribute("aria-valuetext"), /unknown/);
    });
    await withPanel(browser, { panel: panelDocument(), timeline: timelineDocument() }, async (page) => {
      assert.equal(await page.locator("#batch").isVisible(), false);
    });
  });

  for (const [name, look] of Object.entries(THEMES)) {
    test(`are accessible, ${name}`, { skip: noAxe }, () =>
      withPanel(browser, { ...documents(), ...look }, async (page) => {
        await checkAccessibility(page);
      }));
  }

  test("fit a narrow panel", () =>
    withPanel(browser, { ...documents(), width: 340 }, async (page) => {
      await checkNoSidewaysScroll(page);
    }));
});
