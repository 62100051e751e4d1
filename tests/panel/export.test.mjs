// Tests the export menus in Chromium: every chart as SVG, every table as CSV, the timeline as a trace.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { devicePredictions } from "./device_predictions.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { reportPage } from "./report_page.mjs";
import { builtFile } from "./site.mjs";
import { checkAccessibility, noAxe, THEMES, waitUntil, withPage, withPanel } from "./session.mjs";
import { whatIfs } from "./what_ifs.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the exports of the panel: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const documents = () => ({
  panel: { ...panelDocument(), predictions: { batch_size: null, devices: devicePredictions() }, what_ifs: whatIfs({}) },
  timeline: timelineDocument(),
});

const toggle = (page, id) => page.locator(`#${id} .export-toggle`);
const items = (page, id) => page.locator(`#${id} .export-item`);

/** Exports an item of a section's menu, and returns the file's name and content. */
async function exported(page, id, label) {
  await toggle(page, id).click();
  const [download] = await Promise.all([page.waitForEvent("download"), items(page, id).getByText(label, { exact: true }).click()]);
  return { name: download.suggestedFilename(), text: await readFile(await download.path(), "utf8") };
}

/** Fails if a text is not well-formed SVG with content, or contains a script. */
async function checkSvg(page, text, where) {
  const { error, shapes, active } = await page.evaluate((source) => {
    const parsed = new DOMParser().parseFromString(source, "image/svg+xml");
    return {
      error: parsed.querySelector("parsererror")?.textContent ?? null,
      shapes: parsed.querySelectorAll("rect, path, text").length,
      active: parsed.querySelectorAll("script, foreignObject, image").length,
    };
  }, text);
  assert.equal(error, null, where);
  assert.ok(shapes > 5, `${where}: ${shapes} shapes`);
  assert.equal(active, 0, where);
}

describe("exports", { skip: found.reason }, () => {
  test("cover every visible section that has data", () =>
    withPanel(browser, documents(), async (page) => {
      await page.locator("canvas.timeline").waitFor();
      const missing = await page.locator("main section[aria-labelledby]:visible").evaluateAll((sections) =>
        sections.filter((section) => section.querySelector(".export") === null).map(({ id }) => id),
      );
      assert.deepEqual(missing, ["notes"]);
    }));

  test("are files whose names say what they are, in formats that other programs read", () =>
    withPanel(browser, documents(), async (page) => {
      await page.locator("canvas.timeline").waitFor();
      const folder = await screenshotFolder();
      const names = [];
      for (const id of ["breakdown", "timeline", "memory", "kernels", "predictions", "what-ifs", "history"]) {
        await toggle(page, id).click();
        const labels = await page.locator(`#${id} .export-item:visible`).allTextContents();
        await page.keyboard.press("Escape");
        for (const label of labels) {
          const { name, text } = await exported(page, id, label);
          names.push(name);
          if (name.endsWith(".svg")) {
            await checkSvg(page, text, name);
            await writeFile(join(folder, `export-${name}`), text);
          }
          if (name.endsWith(".csv")) assert.ok(text.split("\r\n").length > 3 && !/undefined|NaN|\[object/.test(text), name);
        }
      }
      assert.deepEqual(names, [
        "gpt-2026-09-10-breakdown.svg",
        "gpt-2026-09-10-breakdown.csv",
        "gpt-2026-09-10-trace.json",
        "gpt-2026-09-10-timeline.svg",
        "gpt-2026-09-10-timeline.csv",
        "gpt-2026-09-10-memory.svg",
        "gpt-2026-09-10-peak-memory.svg",
        "gpt-2026-09-10-memory.csv",
        "gpt-2026-09-10-peak-memory.csv",
        "gpt-2026-09-10-tensors.csv",
        "gpt-2026-09-10-kernels.csv",
        "gpt-2026-09-10-other-gpus.svg",
        "gpt-2026-09-10-other-gpus.csv",
        "gpt-2026-09-10-optimizations.svg",
        "gpt-2026-09-10-optimizations.csv",
        "gpt-2026-09-10-history.svg",
        "gpt-2026-09-10-history.csv",
      ]);
    }));

  test("have all rows with exact values, not only the visible ones", () =>
    withPanel(browser, documents(), async (page) => {
      const { text } = await exported(page, "kernels", "Data (CSV)");
      const [head, first, ...more] = text.trimEnd().split("\r\n");
      assert.equal(head, "kernel,calls,time_ns,share_of_iteration,occupancy");
      assert.match(first, /^sm90_xmma_gemm_\w+,60,9000000,0\.088\d+,0\.\d+$/);
      assert.equal(more.length, 23);
      const { text: lines } = await exported(page, "breakdown", "Data (CSV)");
      assert.match(lines, /^id,parent_id,parent,name,detail,line,calls,time_ns,data_ns,forward_ns,backward_ns,optimizer_ns,other_ns,memory_bytes\r\n0,,,GPT,GPT,model\.py:88,5,88000000,/);
    }));

  test("include a chart that was replaced by its table", () =>
    withPanel(browser, documents(), async (page) => {
      await page.getByRole("radio", { name: "Table" }).check();
      await checkSvg(page, (await exported(page, "breakdown", "Chart (SVG)")).text, "the hidden chart");
    }));

  test("of hostile names are well-formed and contain no markup or formulas", () => {
    const panel = panelDocument();
    panel.project = "../<x>";
    const evil = `=cmd"</text><script>alert(1)</script>\u0001\ud800`;
    for (const node of panel.recording.breakdowns[0].nodes) node.name = evil;
    return withPanel(browser, { panel, timeline: timelineDocument() }, async (page) => {
      const { name, text } = await exported(page, "breakdown", "Chart (SVG)");
      assert.equal(name, "x-2026-09-10-breakdown.svg");
      await checkSvg(page, text, name);
      assert.match((await exported(page, "breakdown", "Data (CSV)")).text, /,"'=cmd""<\/text>/);
    });
  });

  test("have a trace with a thread per track, lines and memory", () =>
    withPanel(browser, documents(), async (page) => {
      await page.locator("canvas.timeline").waitFor();
      const { traceEvents } = JSON.parse((await exported(page, "timeline", "Perfetto trace (JSON)")).text);
      const threads = traceEvents.filter(({ name }) => name === "thread_name").map(({ args }) => args.name);
      assert.deepEqual(threads, timelineDocument().tracks.map(({ name }) => name));
      assert.ok(traceEvents.some(({ args }) => /^model\.py:\d+$/.test(args?.line ?? "")));
      assert.ok(traceEvents.some(({ ph }) => ph === "C"));
    }));

  test("can be made by keyboard", () =>
    withPanel(browser, documents(), async (page) => {
      await toggle(page, "kernels").focus();
      await page.keyboard.press("Enter");
      await items(page, "kernels").first().waitFor();
      await page.keyboard.press("Escape");
      assert.ok(await items(page, "kernels").first().isHidden());
      assert.equal(await page.evaluate(() => document.activeElement.className), "export-toggle");
      await page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
      const [download] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("Enter")]);
      assert.equal(download.suggestedFilename(), "gpt-2026-09-10-kernels.csv");
      // Leaving it closes it.
      await page.keyboard.press("Enter");
      await page.keyboard.press("Shift+Tab");
      assert.ok(await items(page, "kernels").first().isHidden());
    }));

  test("are saved by the editor in its webview, which cannot download", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ridgeline-webview-"));
    try {
      // As `extension-vscode/src/panel_html.ts` makes it, with an editor that answers from the page.
      const editor = `globalThis.saved = []; globalThis.acquireVsCodeApi = () => ({ setState() {}, postMessage({ kind, id, path, name, content }) {
        const reply = (status, text) => setTimeout(() => window.postMessage({ kind: "answer", id, status, text }));
        if (kind === "listen") setTimeout(() => window.postMessage({ kind: "open", id }));
        if (kind === "request") reply(200, path.startsWith("api/panel") ? ${JSON.stringify(JSON.stringify(panelDocument()))} : "null");
        if (kind === "save") { globalThis.saved.push([name, content]); reply(globalThis.fails ? 0 : 200, "Error: the disk is full"); }
      } });`;
      const host = JSON.stringify({ workspace: 0, theme: "high-contrast", state: {} });
      const html = builtFile("index.html")
        .replace(/<link rel="stylesheet"[^>]*>/, () => `<style>${builtFile("panel.css")}</style>`)
        .replace('<script src="panel.js"></script>', () => `<script type="application/json" id="host">${host}</script><script>${editor}</script><script>${builtFile("panel.js")}</script>`);
      const path = join(folder, "webview.html");
      await writeFile(path, html);
      await withPage(browser, { address: pathToFileURL(path).href, origin: "file:" }, async (page) => {
        page.on("download", () => assert.fail("a webview cannot download"));
        await toggle(page, "kernels").click();
        await items(page, "kernels").first().click();
        const saved = () => page.evaluate(() => globalThis.saved);
        await waitUntil(async () => (await saved()).length === 1, "the request to save");
        const [[name, content]] = await saved();
        assert.equal(name, "gpt-2026-09-10-kernels.csv");
        assert.match(content, /^kernel,calls/);
        await page.evaluate(() => (globalThis.fails = true));
        await toggle(page, "kernels").click();
        await items(page, "kernels").first().click();
        await page.locator("#notice", { hasText: "Could not save the file: Error: the disk is full" }).waitFor();
      });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("work in a report", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ridgeline-report-"));
    try {
      const path = join(folder, "report.html");
      await writeFile(path, reportPage(panelDocument(), timelineDocument()));
      await withPage(browser, { address: pathToFileURL(path).href, origin: "file:" }, async (page) => {
        assert.equal((await exported(page, "kernels", "Data (CSV)")).name, "gpt-2026-09-10-kernels.csv");
      });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("have accessible menus", { skip: noAxe }, async () => {
    for (const name of ["light", "high contrast"]) {
      await withPanel(browser, { ...documents(), ...THEMES[name] }, async (page) => {
        await toggle(page, "memory").click();
        await checkAccessibility(page, name);
      });
    }
  });
});
