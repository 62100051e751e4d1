// Tests the roofline in Chromium: points, ceilings, and what is unknown.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, THEMES, waitForPosts, withPanel } from "./session.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the roofline in Chromium: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const documents = (change = () => {}) => {
  const panel = panelDocument();
  change(panel.recording);
  return { panel, timeline: timelineDocument() };
};

const section = (page) => page.locator("#roofline");
const canvas = (page) => page.locator("canvas.roofline");
const rows = (page) => section(page).locator("tbody tr:visible");

describe("the roofline", { skip: found.reason }, () => {
  test("shows each operator with its rates, what limits it, and the source of the ceilings", () =>
    withPanel(browser, documents(), async (page) => {
      assert.match(await section(page).innerText(), /ceilings of NVIDIA H200 \(datasheet\)/);
      assert.match(await section(page).innerText(), /Not shown: 400 µs in PyTorch ops with unknown FLOPs or bytes, 1\.1 ms in PyTorch ops that compute nothing/);
      assert.match(await rows(page).first().innerText(), /^model\.py:41\s+AddmmBackward0 \[32, 1024, 1024\] c10::BFloat16\s+18 ms\s+420\s+603 TFLOP\/s\s+compute\s+61%$/);
      assert.match(await rows(page).nth(5).innerText(), /GeluBackward0.*12\.3 TFLOP\/s\s+memory\s+80%$/s);
    }));

  test("shows the details of a point at the pointer, and opens its line on a click", () =>
    withPanel(browser, documents(), async (page, site) => {
      // The attention, which is apart from the others.
      const { width } = await canvas(page).boundingBox();
      const at = { x: 0.841 * width, y: 82 };
      await canvas(page).hover({ position: at });
      const tooltip = await page.locator("#tooltip").innerText();
      assert.match(tooltip, /^aten::scaled_dot_product_attention\s+\[32, 1024, 1024\] c10::BFloat16\s+line\s+model\.py:28\s+time\s+6\.0 ms\s+phase\s+forward/);
      assert.match(tooltip, /reached\s+262 TFLOP\/s.*limited by\s+memory\s+of the ceiling\s+42%\s+kernel\s+flash_fwd_kernel/s);
      await canvas(page).click({ position: at });
      assert.deepEqual(await waitForPosts(site, "jump", 1), [{ workspace: 0, file: 0, line: 28, generation: 7 }]);
    }));

  test("has no ceilings if the device's rates are unknown", () => {
    const fixture = JSON.parse(readFileSync(join(import.meta.dirname, "../../server/panel/fixtures/document.json"), "utf8"));
    return withPanel(browser, { panel: fixture, timeline: timelineDocument() }, async (page) => {
      assert.match(await section(page).innerText(), /The peak rates of Intel\(R\) Xeon\(R\) Processor are unknown, so the chart has no ceilings\./);
      assert.ok(await canvas(page).isVisible());
      assert.match(await rows(page).first().innerText(), /^resnet\.py:20\s+ConvolutionBackward0 .*\s24\s+5\.3 GFLOP\/s$/s);
      assert.equal(await section(page).getByText("Of the ceiling").isVisible(), false);
    });
  });

  test("says that FLOPs and bytes are unknown", async () => {
    const unknown = { rates_from: null, bandwidth: null, peaks: [], points: [], left_out: 0, without_flops_ns: 0, unknown_ns: 0 };
    // A document of an earlier version has no roofline.
    for (const roofline of [unknown, undefined]) {
      await withPanel(browser, documents((recording) => (recording.roofline = roofline)), async (page) => {
        assert.match(await section(page).innerText(), /The FLOPs and bytes of this recording's operators are unknown\./);
        assert.equal(await canvas(page).isVisible(), false);
        assert.equal(await section(page).locator("table:visible").count(), 0);
      });
    }
  });

  test("handles absurd values", () =>
    withPanel(
      browser,
      documents(({ roofline }) => {
        const [point] = roofline.points;
        roofline.points = [{ ...point, flops: 1e300, bytes: 1 }, { ...point, time_ns: 0 }, { ...point, flops: -1 }, { name: 5 }, null, { ...point, bytes: 1e15, place: null }];
        roofline.peaks = [{ name: "FP16", flops_per_second: 1e300 }, { name: "FP16", flops_per_second: 0 }, null];
      }),
      async (page) => {
        assert.equal(await rows(page).count(), 2);
        await canvas(page).hover();
        await checkNoSidewaysScroll(page);
      },
    ));

  test("is accessible and fits any width, in any theme", { skip: noAxe }, async () => {
    const folder = await screenshotFolder();
    for (const [theme, width] of [["light", 1280], ["dark", 1280], ["high contrast", 1280], ["light", 360]]) {
      await withPanel(browser, { ...documents(), ...THEMES[theme], width }, async (page) => {
        await checkAccessibility(page, `${theme} ${width}`);
        await checkNoSidewaysScroll(page, `${theme} ${width}`);
        await section(page).screenshot({ path: join(folder, `roofline-${theme.replace(" ", "-")}-${width}.png`) });
      });
    }
  });
});
