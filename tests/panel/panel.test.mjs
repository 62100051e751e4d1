// Tests the built page in Chromium as a user would use it. Run with `tests/panel/run`.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { devicePredictions } from "./device_predictions.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, THEMES, waitForPosts, waitUntil, withPage, withPanel } from "./session.mjs";
import { reportPage } from "./report_page.mjs";
import { whatIfs } from "./what_ifs.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the panel in Chromium: ${found.reason}`);

const ROW = 26;

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const documents = () => ({ panel: panelDocument(), timeline: timelineDocument() });

/** Returns a document without a measurement, with the given state. */
const unmeasured = (state, message = null, run = null) => ({
  ...panelDocument(),
  recording: null,
  history: [],
  status: { state, message, run },
});

/** Clicks the icicle at a fraction of its width, in a row counted from the top. */
async function clickIcicle(page, share, row, options = {}) {
  const canvas = page.locator("canvas.icicle");
  const { width } = await canvas.boundingBox();
  await canvas.click({ position: { x: share * width, y: (row + 0.5) * ROW }, ...options });
}

const selected = (page) => page.locator("#breakdown .detail strong").innerText();
const crumbs = async (page) => (await page.locator(".crumbs li").allInnerTexts()).map((text) => text.trim());

describe("the panel", { skip: found.reason }, () => {
  test("shows headline numbers and their changes as text", () =>
    withPanel(browser, documents(), async (page) => {
      assert.equal(await page.title(), "gpt – Ridgeline");
      assert.match(await page.locator("#about").innerText(), /NVIDIA H200 · PyTorch 2\.11\.0 · batch size 32 · median of 5 iterations · measured/);
      const cards = await page.locator(".card").allInnerTexts();
      assert.equal(cards.length, 5);
      assert.match(cards[0], /throughput\s+312 samples\/s\s+\+4\.1% better since last run\s+\+12% better since HEAD/);
      assert.match(cards[2], /\+220 MB worse since last run/);
      assert.match(cards[3], /\+22% since last run · same code/);
      // The run is older than the commit.
      assert.match(await page.locator("#history").innerText(), /9f8e7d6 \+ changes\s*HEAD/);
    }));

  test("drills down by click and back by breadcrumb", () =>
    withPanel(browser, documents(), async (page) => {
      assert.deepEqual(await crumbs(page), ["iteration"]);
      await clickIcicle(page, 0.3, 1);
      assert.deepEqual(await crumbs(page), ["iteration", "GPT"]);
      assert.equal(await selected(page), "GPT");
      // In GPT, "blocks" spans 4/88 to 74/88 of the width.
      await clickIcicle(page, 0.5, 1);
      assert.deepEqual(await crumbs(page), ["iteration", "GPT", "blocks"]);
      // The top row leads back up.
      await clickIcicle(page, 0.5, 0);
      assert.deepEqual(await crumbs(page), ["iteration", "GPT"]);
      await page.locator(".crumbs button", { hasText: "iteration" }).click();
      assert.deepEqual(await crumbs(page), ["iteration"]);
    }));

  test("can be navigated by keyboard only", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.locator("canvas.icicle").focus();
      const press = async (...keys) => {
        for (const key of keys) await page.keyboard.press(key);
      };
      await press("ArrowDown");
      assert.equal(await selected(page), "GPT");
      await press("ArrowRight");
      assert.equal(await selected(page), "loader");
      await press("ArrowLeft", "ArrowDown");
      assert.equal(await selected(page), "blocks");
      await press("Enter");
      assert.deepEqual(await crumbs(page), ["iteration", "GPT", "blocks"]);
      await press("ArrowDown", "Control+Enter");
      assert.deepEqual(await waitForPosts(site, "jump", 1), [{ workspace: 0, file: 0, line: 52, generation: 7 }]);
      await press("Escape", "Escape");
      assert.deepEqual(await crumbs(page), ["iteration"]);
    }));

  test("can navigate a tree that is deeper than the chart", () => {
    const panel = panelDocument();
    panel.recording.breakdowns[0].nodes = Array.from({ length: 60 }, (_, at) => ({
      name: `level ${at + 1}`,
      parent: at - 1,
      time_ns: 1e8 - at * 1e6,
      phases: [0, 1, 0, 0, 0],
    }));
    return withPanel(browser, { ...documents(), panel }, async (page) => {
      await page.locator("canvas.icicle").focus();
      for (let step = 0; step < 50; step += 1) await page.keyboard.press("ArrowDown");
      assert.equal(await selected(page), "level 50");
      assert.ok((await crumbs(page)).length > 20);
      for (let step = 0; step < 50; step += 1) await page.keyboard.press("ArrowUp");
      assert.deepEqual(await crumbs(page), ["iteration"]);
    });
  });

  test("reaches every control by Tab and shows where the focus is", () =>
    withPanel(browser, documents(), async (page) => {
      const reached = new Set();
      for (let step = 0; step < 80; step += 1) {
        await page.keyboard.press("Tab");
        const at = await page.evaluate(() => {
          const element = document.activeElement;
          if (element === document.body) return null;
          const shown = element.matches("input[type=radio]") ? element.nextElementSibling : element;
          return { name: element.className || element.textContent || element.type, ring: getComputedStyle(shown).outlineStyle !== "none" };
        });
        if (at === null) break;
        assert.ok(at.ring, `no ring on ${at.name}`);
        reached.add(at.name);
      }
      for (const name of ["skip", "primary", "radio", "search", "icicle", "timeline", "link mono"]) {
        assert.ok([...reached].some((one) => one.includes(name)), `${name} is not among ${[...reached].join(", ")}`);
      }
    }));

  test("has a skip link to the numbers", () =>
    withPanel(browser, documents(), async (page) => {
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    }));

  test("has links to its sections, which stay in view", () =>
    withPanel(browser, documents(), async (page) => {
      const links = page.locator("#navigation a:visible");
      const titles = await page.locator("main section[aria-labelledby] h2:visible").allInnerTexts();
      assert.ok(titles.length > 5);
      assert.deepEqual(await links.allInnerTexts(), titles);
      await links.filter({ hasText: "Memory" }).press("Enter");
      assert.equal(await page.evaluate(() => document.activeElement.id), "memory-title");
      const [bar, title] = [await page.locator("#navigation").boundingBox(), await page.locator("#memory-title").boundingBox()];
      assert.ok(bar.y === 0 && title.y > bar.height && title.y < 200, JSON.stringify([bar, title]));
      assert.equal(await page.locator("#navigation a[aria-current]").innerText(), "Memory");
      await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
      await waitUntil(async () => (await page.locator("#navigation a[aria-current]").innerText()) !== "Memory", "the current section");
    }));

  test("searches, counts and clears", () =>
    withPanel(browser, documents(), async (page) => {
      const matches = page.locator("#breakdown .search [role=status]");
      await page.getByRole("searchbox", { name: "Search the breakdown" }).fill("attention");
      assert.match(await matches.innerText(), /^12 matches · \d+%$/);
      await page.getByRole("searchbox", { name: "Search the breakdown" }).fill("no such thing");
      assert.equal(await matches.innerText(), "no matches");
      await page.getByRole("searchbox", { name: "Search the breakdown" }).fill("");
      assert.equal(await matches.innerText(), "");
    }));

  test("groups by line and phase, and by memory", () =>
    withPanel(browser, documents(), async (page) => {
      await page.getByRole("radio", { name: "Line", exact: true }).check();
      await clickIcicle(page, 0.3, 1);
      assert.deepEqual(await crumbs(page), ["iteration", "model.py"]);
      await page.getByRole("radio", { name: "Memory" }).check();
      assert.deepEqual(await crumbs(page), ["peak memory", "model.py"]);
      await page.getByRole("radio", { name: "Phase", exact: true }).check();
      assert.deepEqual(await crumbs(page), ["peak memory"]);
    }));

  test("has a table with the same content as the chart, which opens by keyboard", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.getByRole("radio", { name: "Table" }).check();
      const grid = page.getByRole("treegrid");
      const names = async () => (await grid.locator("tbody .tree-name .mono").allInnerTexts());
      assert.deepEqual(await names(), ["iteration", "GPT", "loader", "AdamW"]);
      await grid.locator("tbody tr").first().focus();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowRight");
      assert.deepEqual((await names()).slice(0, 4), ["iteration", "GPT", "blocks", "head"]);
      const row = grid.locator("tr[data-node]:focus");
      assert.equal(await row.getAttribute("aria-expanded"), "true");
      assert.equal(await row.getAttribute("aria-level"), "2");
      await page.keyboard.press("Control+Enter");
      assert.deepEqual(await waitForPosts(site, "jump", 1), [{ workspace: 0, file: 0, line: 88, generation: 7 }]);
      await page.keyboard.press("ArrowLeft");
      assert.equal((await names()).length, 4);
      await grid.getByText("loader", { exact: true }).dblclick();
      assert.equal((await waitForPosts(site, "jump", 2))[1].line, 12);
      // Ancestors of matches are expanded.
      await page.getByRole("searchbox", { name: "Search the breakdown" }).fill("embedding");
      assert.deepEqual(await names(), ["iteration", "GPT", "embedding"]);
    }));

  test("jumps on a click on a leaf, a double click and the button; highlights on hover", () =>
    withPanel(browser, documents(), async (page, site) => {
      // "loader" is a leaf that spans 88/102 to 94/102.
      await clickIcicle(page, 91 / 102, 1);
      assert.deepEqual(await waitForPosts(site, "jump", 1), [{ workspace: 0, file: 2, line: 12, generation: 7 }]);
      assert.deepEqual((await waitForPosts(site, "highlight", 1))[0], { workspace: 0, file: 2, line: 12, generation: 7 });
      assert.deepEqual(await crumbs(page), ["iteration"]);
      await clickIcicle(page, 0.3, 1, { clickCount: 2 });
      assert.equal((await waitForPosts(site, "jump", 2))[1].line, 88);
      await page.locator("#breakdown .open").click();
      assert.equal((await waitForPosts(site, "jump", 3))[2].line, 88);
      await page.mouse.move(5, 5);
      // The pointer left the chart on its way to the button, so this may be posted before the jump.
      const lastHighlight = () => site.posts.filter((post) => post.name === "highlight").at(-1);
      await waitUntil(() => lastHighlight().body.file === null, "the mark to be taken away");
    }));

  test("highlights the line that the keyboard selects, wherever the pointer goes", () =>
    withPanel(browser, documents(), async (page, site) => {
      const last = () => site.posts.filter((post) => post.name === "highlight").at(-1)?.body;
      const chart = page.locator("canvas.icicle");
      await chart.hover({ position: { x: 5, y: 5 } });
      await chart.focus();
      for (const key of ["ArrowDown", "ArrowDown", "ArrowRight"]) await chart.press(key);
      const open = page.locator("#breakdown .open");
      await open.waitFor();
      const line = Number(/:(\d+)/.exec(await open.innerText())[1]);
      await waitUntil(() => last()?.line === line, "the highlight of the selected line");
      // As if the page moved below the pointer.
      await page.mouse.move(5, 5);
      const box = await chart.boundingBox();
      await page.mouse.move(box.x + 0.85 * box.width, box.y + 1.5 * 26);
      await waitUntil(() => last()?.line !== line, "the highlight of the line below the pointer");
      await page.mouse.move(5, 5);
      await waitUntil(() => last()?.line === line, "the highlight of the selected line again");
      await chart.evaluate((canvas) => canvas.blur());
      await waitUntil(() => last()?.file === null, "no highlight");
    }));

  test("divides a line by its expressions and by its callers, which can be opened", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.getByRole("radio", { name: "Line", exact: true }).check();
      // The line spans 74/102 to 80/102.
      await clickIcicle(page, 77 / 102, 3);
      const parts = page.locator("#breakdown .parts");
      assert.match(await parts.innerText(), /on this line\s+F\.cross_entropy\(…\)\s+4\.5 ms\s+75%\s+logits \/ 2\s+1\.5 ms\s+25%/);
      assert.match(await parts.innerText(), /called from\s+train\.py:80\s+4\.0 ms\s+67%/);
      await parts.getByRole("button", { name: "train.py:80" }).click();
      assert.deepEqual((await waitForPosts(site, "jump", 2))[1], { workspace: 0, file: 1, line: 80, generation: 7 });
    }));

  test("shows the editor's message if it could not jump", () =>
    withPanel(browser, documents(), async (page, site) => {
      site.answer = { done: false, message: "No editor shows this workspace." };
      await clickIcicle(page, 91 / 102, 1);
      await page.getByText("No editor shows this workspace.").waitFor();
    }));

  test("offers no jump without an editor", () =>
    withPanel(browser, { ...documents(), panel: { ...panelDocument(), can_jump: false, can_highlight: false } }, async (page, site) => {
      await clickIcicle(page, 91 / 102, 1);
      assert.equal(await page.locator(".open, .link.mono").count(), 0);
      // There is no server that could run anything, either.
      assert.ok(await page.locator("#run").isHidden());
      assert.deepEqual(site.posts, []);
    }));

  test("zooms and drags the timeline, and a click on a span jumps", () =>
    withPanel(browser, documents(), async (page, site) => {
      const canvas = page.locator("canvas.timeline");
      const inView = page.locator(".in-view");
      await canvas.waitFor();
      assert.equal(await inView.innerText(), "all of 110 ms");
      const box = await canvas.boundingBox();
      await canvas.scrollIntoViewIfNeeded();
      await canvas.hover({ position: { x: box.width / 4, y: 60 } });
      await page.keyboard.down("Control");
      await page.mouse.wheel(0, -400);
      await page.keyboard.up("Control");
      // The wheel zoomed in by a factor of e around a quarter of the width.
      assert.match(await inView.innerText(), /^17\.[34] ms to 57\.[78] ms$/);
      const nearer = await inView.innerText();
      const placed = await canvas.boundingBox();
      await page.mouse.move(placed.x + 400, placed.y + 60);
      await page.mouse.down();
      await page.mouse.move(placed.x + 300, placed.y + 60, { steps: 4 });
      await page.mouse.up();
      assert.notEqual(await inView.innerText(), nearer);
      assert.deepEqual(site.posts.filter(({ name }) => name === "jump"), []);
      await canvas.focus();
      await page.keyboard.press("Home");
      assert.equal(await inView.innerText(), "all of 110 ms");
      await page.keyboard.press("Shift+ArrowRight");
      await page.keyboard.press("Shift+ArrowDown");
      assert.match(await page.locator("#timeline .detail").innerText(), /Block\.forward\s+main thread/);
      await page.keyboard.press("f");
      assert.notEqual(await inView.innerText(), "all of 110 ms");
      await page.keyboard.press("Enter");
      assert.equal((await waitForPosts(site, "jump", 1))[0].file, 0);
      await page.getByText("Timeline as tables").click();
      assert.equal(await page.locator("#timeline table").first().locator("tbody tr").count(), 6);
    }));

  test("shows memory in a tooltip", () =>
    withPanel(browser, documents(), async (page, site) => {
      const curve = page.locator("canvas.curve");
      assert.match(await curve.getAttribute("aria-label"), /peak 3\.1 GB at .* ms of 23\.7 GB on the device/);
      await curve.hover({ position: { x: 200, y: 80 } });
      assert.match(await page.locator("#tooltip").innerText(), /^\d\.\d GB\s+at \d+(\.\d)? ms/);
      await page.getByText("Memory over the iteration in a table").click();
      const table = page.locator("#memory details").filter({ hasText: "in a table" }).first();
      assert.match(await table.locator("tbody").innerText(), /^0 ns\s+2\.1 GB[^]*102 ms\s+2\.\d GB/);
      await page.locator("#memory tbody").getByRole("button", { name: "model.py:28" }).first().click();
      assert.equal((await waitForPosts(site, "jump", 1))[0].line, 28);
    }));

  test("divides memory over the iteration by line, kind and tensor", () =>
    withPanel(browser, documents(), async (page, site) => {
      const curve = page.locator("canvas.curve");
      const legend = page.getByRole("list", { name: "Memory over the iteration" });
      const tooltip = page.locator("#tooltip");
      const { height } = await curve.boundingBox();
      const atTheBottom = { position: { x: 200, y: height - 30 } };
      // The largest of the lines that begin first is at the bottom, and at the end of the legend.
      assert.match(await legend.locator("li").last().innerText(), /^(train|model)\.py:\d+\s+\d+(\.\d)? [MG]B\s+\d+% of the peak$/);
      await curve.hover(atTheBottom);
      assert.match(await tooltip.innerText(), /^\d\.\d GB\s+at [\d.]+ ms\s+\w+\.py:\d+\s+\d+(\.\d)? [MG]B$/);
      await page.getByRole("radio", { name: "By kind" }).check();
      assert.deepEqual((await legend.locator("li").allInnerTexts()).map((text) => text.split(/\s+\d/)[0]).slice(1), ["activations", "optimizer state", "weights"]);
      await page.getByRole("radio", { name: "By tensor" }).check();
      await curve.hover(atTheBottom);
      assert.match(await tooltip.innerText(), /py:\d+\s+[\d.]+ [MG]B (weights|optimizer state), all the time$/);
      assert.match(await legend.locator("li").last().innerText(), /^weights/);
      await page.getByText("Largest tensors in a table").click();
      assert.match(await page.locator("#memory").innerText(), /activations, from [\d.]+ ms to [\d.]+ ms/);
      await page.getByRole("radio", { name: "By line" }).check();
      await legend.getByRole("button", { name: "model.py:77" }).click();
      assert.equal((await waitForPosts(site, "jump", 1))[0].line, 77);
    }));

  test("keeps the user's view when a new measurement arrives", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.getByRole("radio", { name: "Memory" }).check();
      await clickIcicle(page, 0.3, 1);
      await clickIcicle(page, 0.5, 1);
      await page.getByRole("searchbox", { name: "Search the breakdown" }).fill("mlp");
      await page.locator("canvas.timeline").waitFor();
      await page.getByRole("button", { name: "Zoom in" }).click();
      const inView = await page.locator(".in-view").innerText();
      await page.getByRole("button", { name: "Show all 24" }).click();
      await page.getByText("Timeline as tables").click();
      const scrolled = await page.evaluate(() => {
        scrollTo(0, 400);
        return scrollY;
      });

      site.panel = panelDocument({ generation: 8, layers: 10, kernels: 30 });
      site.timeline = timelineDocument({ generation: 8, spans: 3_000 });
      site.send("panel", null);
      await page.getByText("Show the first 10").waitFor();
      await waitUntil(async () => (await page.locator("#kernels tbody tr").count()) === 30, "the new kernels");

      assert.deepEqual(await crumbs(page), ["peak memory", "GPT", "blocks"]);
      assert.equal(await selected(page), "blocks");
      assert.match(await page.locator("#breakdown .search [role=status]").innerText(), /^10 matches/);
      assert.equal(await page.locator(".in-view").innerText(), inView);
      assert.ok(await page.locator("#timeline details").evaluate((details) => details.open));
      assert.equal(await page.evaluate(() => scrollY), scrolled);
    }));

  test("keeps the focus when a new measurement arrives", () =>
    withPanel(browser, documents(), async (page, site) => {
      const focused = () => page.evaluate(() => document.activeElement.textContent);
      await page.locator("#memory table").getByRole("button", { name: "model.py:41" }).first().focus();
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.panel = panelDocument({ generation: 8, kernels: 30 });
      site.panel.recording.memory.holders.reverse();
      site.send("panel", null);
      await page.getByRole("button", { name: "Show all 30" }).waitFor();
      assert.equal(await focused(), "model.py:41");
    }));

  test("keeps the focus on one of several links to a line", () =>
    withPanel(browser, documents(), async (page, site) => {
      const links = page.locator("#roofline").getByRole("button", { name: "model.py:41" });
      await links.nth(1).focus();
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.panel = panelDocument({ generation: 8, kernels: 30 });
      site.send("panel", null);
      await page.getByRole("button", { name: "Show all 30" }).waitFor();
      assert.ok(await links.nth(1).evaluate((link) => link === document.activeElement));
    }));

  test("shows the progress of a run, and stops it", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.getByRole("button", { name: "Pause" }).click();
      assert.deepEqual(await waitForPosts(site, "command", 1), [{ workspace: 0, command: "pause" }]);
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.send("status", { state: "running", message: null, run: { reason: "train.py was saved", stage: "warming up", share: 0.4 } });
      await page.getByRole("progressbar").waitFor();
      assert.equal(await page.getByRole("progressbar").getAttribute("aria-valuenow"), "40");
      assert.match(await page.locator(".now").innerText(), /Running\s+warming up · 40%\s+train\.py was saved/);
      await page.getByRole("button", { name: "Stop" }).click();
      assert.equal((await waitForPosts(site, "command", 2))[1].command, "stop");
      site.send("status", { state: "failed", message: "train.py:12: NameError: x", run: null });
      await page.getByText("The last run failed: train.py:12: NameError: x").waitFor();
      await page.getByRole("button", { name: "Profile now" }).waitFor();
    }));

  test("shows that the server is gone, and catches up when it is back", () =>
    withPanel(browser, documents(), async (page, site, errors) => {
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.lose();
      await page.getByText("Lost the connection to Ridgeline.").waitFor();
      assert.equal(await page.locator(".card").count(), 5);
      site.panel = { ...panelDocument({ generation: 8 }), project: "gpt-two" };
      site.refuse = false;
      await page.getByRole("button", { name: "Retry now" }).click();
      await page.getByRole("heading", { name: "gpt-two" }).waitFor();
      assert.ok(await page.locator("#lost").isHidden());
      // The browser itself logs the failed connection.
      errors.splice(0, errors.length, ...errors.filter((text) => !text.includes("net::ERR_")));
    }));

  test("does not listen while hidden, and catches up when visible", () =>
    withPanel(browser, documents(), async (page, site) => {
      const turn = (hidden) =>
        page.evaluate((value) => {
          Object.defineProperty(document, "hidden", { value, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }, hidden);
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      await turn(true);
      await waitUntil(() => site.streams.size === 0, "the page to listen no more");
      site.panel = { ...panelDocument({ generation: 8 }), project: "gpt-two" };
      site.send("panel", null);
      await turn(false);
      await page.getByRole("heading", { name: "gpt-two" }).waitFor();
    }));

  test("shows that its server has exited if the address is no longer valid", () =>
    withPanel(browser, { panel: null, timeline: null, ready: false }, async (page, _site, errors) => {
      await page.getByText("The server of this page has stopped.").waitFor();
      errors.splice(0, errors.length, ...errors.filter((text) => !text.includes("404")));
    }));

  test("shows that a timeline is no longer available", () =>
    withPanel(browser, { panel: panelDocument(), timeline: null }, async (page, _site, errors) => {
      await page.getByText("no longer available").waitFor();
      errors.splice(0, errors.length, ...errors.filter((text) => !text.includes("404")));
    }));

  for (const [state, message, run, words] of [
    ["idle", null, null, "No measurements yet"],
    ["waiting_for_trust", null, null, "Ridgeline runs code of this workspace only with your permission"],
    ["running", null, { reason: "first run", stage: "importing torch", share: null }, "First run"],
    ["paused", null, null, "profiling on save is paused"],
    ["failed", "No Python was found.", null, "No Python was found."],
  ]) {
    test(`shows what to do without a measurement: ${state}`, () =>
      withPanel(browser, { panel: unmeasured(state, message, run), timeline: null }, async (page) => {
        assert.ok((await page.locator("#empty").innerText()).includes(words));
        assert.ok(await page.locator("#recording").isHidden());
        if (!noAxe) await checkAccessibility(page, state);
      }));
  }

  test("shows the first measurement when it arrives", () =>
    withPanel(browser, { panel: unmeasured("running"), timeline: timelineDocument() }, async (page, site) => {
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.panel = panelDocument();
      site.send("panel", null);
      await page.locator("canvas.timeline").waitFor();
      assert.ok(await page.locator("#empty").isHidden());
    }));

  test("prefers the host's theme to the system's", () =>
    withPanel(browser, { ...documents(), theme: "light", address: "&theme=dark&embedded=1" }, async (page) => {
      assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(15, 18, 22)");
    }));

  test("follows changes of the system's theme", () =>
    withPanel(browser, { ...documents(), theme: "light" }, async (page) => {
      const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(await ground(), "rgb(246, 247, 249)");
      await page.emulateMedia({ colorScheme: "dark" });
      await waitUntil(async () => (await ground()) === "rgb(15, 18, 22)", "the dark theme");
    }));

  test("accepts the theme of the page that frames it, and nothing else", () =>
    withPanel(browser, { ...documents(), theme: "light", address: "&theme=light&embedded=1" }, async (page) => {
      const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      await page.evaluate(() => {
        for (const data of [null, 5, { theme: "evil" }, {}]) window.postMessage(data, "*");
      });
      assert.equal(await ground(), "rgb(246, 247, 249)");
      // A page that is not framed is its own parent.
      await page.evaluate(() => window.postMessage({ theme: "dark" }, "*"));
      await waitUntil(async () => (await ground()) === "rgb(15, 18, 22)", "the dark theme");
    }));

  test("has high contrast if the system, the host or forced colors ask for it", async () => {
    const theme = (page) => page.evaluate(() => document.documentElement.dataset.theme);
    for (const [look, expected] of [
      [{ theme: "dark", contrast: "more" }, "high-contrast"],
      [{ contrast: "more" }, "high-contrast-light"],
      [{ address: "&theme=dark", contrast: "more" }, "high-contrast"],
      [{ address: "&theme=high-contrast-light", theme: "dark" }, "high-contrast-light"],
      // The background is the user's, so the editor does not decide whether it is dark.
      [{ address: "&theme=light", theme: "dark", forced: "active" }, "high-contrast"],
    ]) {
      await withPanel(browser, { ...documents(), ...look }, async (page) => {
        assert.equal(await theme(page), expected);
      });
    }
  });

  test("follows changes of contrast", () =>
    withPanel(browser, { ...documents(), address: "&theme=dark&embedded=1" }, async (page) => {
      const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      await page.evaluate(() => window.postMessage({ theme: "high-contrast-light" }, "*"));
      await waitUntil(async () => (await ground()) === "rgb(255, 255, 255)", "the light theme with high contrast");
      await page.emulateMedia({ forcedColors: "active", colorScheme: "dark" });
      await waitUntil(async () => (await ground()) === "rgb(0, 0, 0)", "the forced colors");
    }));

  test("treats markup in names as text, and handles huge and invalid values", () => {
    const panel = panelDocument();
    const evil = `<img src=x onerror="alert(1)">${"long".repeat(400)}\u202e</script>`;
    panel.project = evil;
    panel.status = { state: "failed", message: evil, run: null };
    const { recording } = panel;
    recording.headline[0].text = evil;
    recording.notes = Array.from({ length: 300 }, () => evil);
    recording.kernels[0].name = evil;
    recording.memory.explanation = evil;
    recording.memory.holders[0].name = evil;
    recording.breakdowns[0].nodes = Array.from({ length: 20_000 }, (_, at) => ({
      name: at % 2 === 0 ? evil : "",
      detail: evil,
      parent: at % 100 === 0 ? -1 : at - 1,
      time_ns: at === 0 ? 1e300 : 1e5,
      memory_bytes: -4,
      phases: [],
      place: { file: 1e9, line: 1 },
    }));
    delete recording.breakdowns[1].nodes;
    recording.breakdowns[2].nodes = null;
    return withPanel(browser, { panel, timeline: { schema: 1, spans: { track: [0] } }, width: 400 }, async (page) => {
      await page.getByText("This measurement has no timeline.").waitFor();
      assert.equal(await page.locator("img").count(), 0);
      await checkNoSidewaysScroll(page, "hostile names at 400 px");
      await page.getByRole("radio", { name: "Table" }).check();
      await page.getByRole("searchbox", { name: "Search the breakdown" }).fill("img");
      assert.ok((await page.locator("tr[data-node]").count()) <= 300);
      await page.getByRole("radio", { name: "Line", exact: true }).check();
      await checkNoSidewaysScroll(page, "the table at 400 px");
    });
  });

  for (const [name, look] of Object.entries(THEMES)) {
    // One width is enough for themes that differ in colours and borders.
    for (const width of name === "light" || name === "dark" ? [1280, 400] : [1280]) {
      test(`is accessible in every view: ${name}, ${width} px`, { skip: noAxe }, () =>
        withPanel(browser, { ...documents(), ...look, width, motion: "no-preference" }, async (page, site, errors) => {
          const check = async (where) => {
            await checkAccessibility(page, where);
            await checkNoSidewaysScroll(page, where);
          };
          await page.locator("canvas.timeline").waitFor();
          await check("chart");
          await clickIcicle(page, 0.3, 1);
          await page.getByRole("searchbox", { name: "Search the breakdown" }).fill("mlp");
          await check("drilled down, searching");
          await page.getByRole("radio", { name: "Table" }).check();
          await page.locator("tr[data-node]").nth(1).focus();
          await check("table");
          await page.getByRole("radio", { name: "Memory" }).check();
          await page.getByText("Timeline as tables").click();
          await page.getByRole("button", { name: "Show all 24" }).click();
          await check("memory, timeline in tables");
          await page.locator("canvas.timeline").focus();
          await page.keyboard.press("Shift+ArrowRight");
          await check("a span is selected");
          await page.locator("canvas.curve").hover();
          await check("tooltip");
          site.send("status", { state: "running", message: null, run: { reason: "saved", stage: "profiling", share: 0.5 } });
          await page.getByRole("progressbar").waitFor();
          await check("a run goes on");
          site.send("status", { state: "failed", message: "train.py:12: NameError", run: null });
          await page.locator("#failure").waitFor();
          site.lose();
          await page.getByRole("button", { name: "Retry now" }).waitFor();
          await check("failed, connection lost");
          errors.splice(0, errors.length, ...errors.filter((text) => !text.includes("net::ERR_")));
        }));
    }
  }

  test("opens from disk as a report, without a server", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ridgeline-report-"));
    try {
      const path = join(folder, "report.html");
      await writeFile(path, reportPage(panelDocument(), timelineDocument()));
      await withPage(browser, { address: pathToFileURL(path).href, origin: "file:" }, async (page) => {
        await page.locator("canvas.timeline").waitFor();
        assert.equal(await page.locator("#buttons button").count(), 0);
        assert.ok(await page.locator("#run").isHidden());
        assert.match(await page.locator("#about").innerText(), /measured 20\d\d-/);
        await clickIcicle(page, 91 / 102, 1);
        assert.equal(new URL(page.url()).hash, "#f2l12");
        // The page does not contain line 88 of model.py, so there is no link.
        await clickIcicle(page, 0.3, 1);
        assert.equal(await page.locator("#breakdown .open").count(), 0);
        if (!noAxe) await checkAccessibility(page, "report");
      });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("fits windows from 360 px to 4K with all its sections", async () => {
    const folder = await screenshotFolder();
    const devices = devicePredictions({ batches: true, machines: true });
    const panel = { ...panelDocument(), predictions: { batch_size: null, devices }, what_ifs: whatIfs({}) };
    for (const [width, height] of [[360, 740], [768, 1024], [3840, 2160]]) {
      await withPanel(browser, { panel, timeline: timelineDocument(), width, height }, async (page) => {
        await page.locator("canvas.timeline").waitFor();
        await checkNoSidewaysScroll(page, `${width} px`);
        const outside = await page.locator("section:visible").evaluateAll((sections) => {
          const right = document.documentElement.clientWidth;
          return sections.filter((section) => section.getBoundingClientRect().right > right).map(({ id }) => id);
        });
        assert.deepEqual(outside, [], `sections that reach beyond ${width} px`);
        for (const canvas of await page.locator("canvas:visible").all()) {
          const box = await canvas.boundingBox();
          assert.ok(box.width > 0.5 * Math.min(width, 400) && box.height > 20, `${await canvas.getAttribute("class")} at ${width} px: ${box.width} x ${box.height}`);
        }
        await page.screenshot({ path: join(folder, `whole-${width}.png`), fullPage: true });
      });
    }
  });

  test("takes screenshots", async () => {
    const folder = await screenshotFolder();
    const take = (page, name) => page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
    for (const [name, look] of Object.entries({ light: {}, dark: { theme: "dark" }, narrow: { width: 400 } })) {
      await withPanel(browser, { ...documents(), ...look }, async (page) => {
        await page.locator("canvas.timeline").waitFor();
        await take(page, name);
        await page.getByRole("button", { name: "Zoom in" }).click({ clickCount: 6, delay: 30 });
        await page.locator("canvas.timeline").hover({ position: { x: 150, y: 55 } });
        await page.screenshot({ path: join(folder, `${name}-timeline-zoomed.png`) });
        await page.getByRole("radio", { name: "Memory" }).check();
        await clickIcicle(page, 0.3, 1);
        await page.getByRole("radio", { name: "Table" }).check();
        await page.getByRole("searchbox", { name: "Search the breakdown" }).fill("mlp");
        await take(page, `${name}-memory-table`);
      });
    }
    await withPanel(browser, { panel: unmeasured("running", null, { reason: "train.py was saved", stage: "warming up", share: 0.3 }), timeline: null }, (page) => take(page, "first-run"));
    console.log(`screenshots: ${folder}`);
  });
});
