// Tests search, marked ranges and Perfetto's keys in the timeline, in Chromium.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, THEMES, withPanel } from "./session.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the timeline in Chromium: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const documents = () => ({ panel: panelDocument(), timeline: timelineDocument() });
const section = (page) => page.locator("#timeline");
const canvas = (page) => page.locator("canvas.timeline");
const search = (page) => section(page).getByRole("searchbox", { name: "Search the timeline" });
const matches = (page) => section(page).locator(".search [role=status]");
const detail = (page) => section(page).locator(".detail");
const marked = (page) => section(page).getByRole("region", { name: "Marked range" });
const inView = (page) => page.locator(".in-view");

/** Drags with the shift key from one share of the chart's width to another. */
async function mark(page, from, to) {
  await canvas(page).scrollIntoViewIfNeeded();
  const { x, y, width } = await canvas(page).boundingBox();
  await page.keyboard.down("Shift");
  await page.mouse.move(x + from * width, y + 60);
  await page.mouse.down();
  await page.mouse.move(x + to * width, y + 80, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
}

describe("the timeline", { skip: found.reason }, () => {
  test("finds spans by name and steps through them", () =>
    withPanel(browser, documents(), async (page) => {
      await canvas(page).waitFor();
      await search(page).fill("FLASH kernel");
      assert.match(await matches(page).innerText(), /^\d+ matches · [\d.]+ ms$/);
      await search(page).press("Enter");
      assert.match(await matches(page).innerText(), /^1 of \d+ matches/);
      assert.match(await detail(page).innerText(), /flash_fwd_kernel\s+stream/);
      const first = await detail(page).innerText();
      await search(page).press("Enter");
      assert.match(await matches(page).innerText(), /^2 of /);
      assert.notEqual(await detail(page).innerText(), first);
      await search(page).press("Shift+Enter");
      assert.equal(await detail(page).innerText(), first);
      await search(page).fill("no such span");
      assert.equal(await matches(page).innerText(), "0 matches");
      await search(page).press("Escape");
      assert.equal(await search(page).inputValue(), "");
      assert.equal(await matches(page).innerText(), "");
    }));

  test("adds up what runs in a marked range", () =>
    withPanel(browser, documents(), async (page, site) => {
      await canvas(page).waitFor();
      assert.equal(await marked(page).isVisible(), false);
      await mark(page, 0.25, 0.5);
      const text = await marked(page).innerText();
      assert.match(text, /^27\.5 ms from 27\.5 ms to 55 ms\n/);
      assert.match(text, /Busy: main thread .*stream 7 [\d.]+ ms \(\d+%\).*\. GPU idle [\d.]+ ms/);
      assert.match(text, /Block\.forward\s+(main|autograd) thread\s+\d+\s+[\d.]+ ms/);
      assert.match(text, /sm90_xmma_gemm_bf16\s+stream 7\s+\d+/);
      // Neither a click nor a pan.
      assert.equal(await inView(page).innerText(), "all of 110 ms");
      assert.deepEqual(site.posts.filter(({ name }) => name === "jump"), []);
      await canvas(page).focus();
      await page.keyboard.press("Escape");
      assert.equal(await marked(page).isVisible(), false);
      // The range of the selected span.
      await page.keyboard.press("Shift+ArrowRight");
      await page.keyboard.press("m");
      assert.match(await marked(page).innerText(), /Busy: main thread/);
    }));

  test("shows what a span launched, and when a kernel was launched", async () => {
    const timeline = JSON.parse(readFileSync(join(import.meta.dirname, "../../server/panel/fixtures/timeline-gpu.json"), "utf8"));
    const folder = await screenshotFolder();
    await withPanel(browser, { panel: panelDocument(), timeline }, async (page) => {
      await canvas(page).waitFor();
      await search(page).fill("gemm");
      await search(page).press("Enter");
      assert.match(await detail(page).innerText(), /stream 7\s.*after its launch\s+[\d.]+ (ns|µs|ms)/s);
      await search(page).fill("cudaLaunchKernel");
      await search(page).press("Enter");
      await canvas(page).press("f");
      await canvas(page).press("s");
      await canvas(page).press("s");
      assert.match(await detail(page).innerText(), /launches\s+1, [\d.]+ (ns|µs|ms) on the GPU/);
      await section(page).screenshot({ path: join(folder, "timeline-launch.png") });
    });
  });

  test("has the keys of Perfetto", () =>
    withPanel(browser, documents(), async (page) => {
      // Until the timeline has arrived, the canvas is hidden and cannot have the focus.
      await canvas(page).waitFor();
      await canvas(page).focus();
      await page.keyboard.press("w");
      await page.keyboard.press("w");
      const zoomed = await inView(page).innerText();
      assert.notEqual(zoomed, "all of 110 ms");
      await page.keyboard.press("d");
      const right = await inView(page).innerText();
      assert.notEqual(right, zoomed);
      await page.keyboard.press("a");
      assert.equal(await inView(page).innerText(), zoomed);
      await page.keyboard.press("s");
      await page.keyboard.press("s");
      assert.equal(await inView(page).innerText(), "all of 110 ms");
      // Letters typed into the search are text.
      await search(page).pressSequentially("wasd");
      assert.equal(await inView(page).innerText(), "all of 110 ms");
    }));

  test("is accessible and fits any width, in any theme", { skip: noAxe }, async () => {
    const folder = await screenshotFolder();
    for (const [theme, width] of [["light", 1280], ["dark", 1280], ["high contrast", 1280], ["light", 360]]) {
      await withPanel(browser, { ...documents(), ...THEMES[theme], width }, async (page) => {
        await canvas(page).waitFor();
        await search(page).fill("flash");
        await search(page).press("Enter");
        await mark(page, 0.3, 0.4);
        await checkAccessibility(page, `${theme} ${width}`);
        await checkNoSidewaysScroll(page, `${theme} ${width}`);
        await section(page).screenshot({ path: join(folder, `timeline-${theme.replace(" ", "-")}-${width}.png`) });
      });
    }
  });
});
