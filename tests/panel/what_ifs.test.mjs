// Tests the estimated savings of optimizations on the page. Run with `tests/panel/run`.

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
import { whatIfs } from "./what_ifs.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the panel's what-ifs in Chromium: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const documents = (more, panel = {}) => ({
  panel: { ...panelDocument(), what_ifs: more === null ? null : whatIfs(more), ...panel },
  timeline: timelineDocument(),
});

const section = (page) => page.locator("#what-ifs");
const row = (page, title) => page.locator(".what-if", { has: page.getByRole("heading", { name: title, exact: true }) });
const titles = (page) => page.locator(".what-if h3").allInnerTexts();

describe("what-ifs", { skip: found.reason }, () => {
  test("are listed fastest first, compared with the current step", () =>
    withPanel(browser, documents(), async (page) => {
      assert.deepEqual((await titles(page)).slice(0, 3), ["Data-parallel on 4 GPUs", "Mixed precision (bf16)", "torch.compile"]);
      const text = await row(page, "Mixed precision (bf16)").innerText();
      assert.match(text, /~1\.84× speedup 1\.69× to 2\.01×/);
      assert.match(text, /Iteration time\s+102 ms\s+becomes\s+→\s+~55\.4 ms −46%/);
      assert.match(text, /Peak memory\s+3\.1 GB\s+becomes\s+→\s+~2\.1 GB −32%/);
      const about = await section(page).innerText();
      assert.match(about, /Now 102 ms per iteration, 3\.1 GB peak memory/);
      assert.match(about, /The simulation reproduces the recorded iteration within 0\.4%\./);
      assert.match(about, /Two of 54 operators could not be probed/);
      assert.match(about, /7 predictions measured here were 6% off on average, and 14% at most/);
    }));

  test("show six, or all on request, optionally sorted by memory", () =>
    withPanel(browser, documents(), async (page) => {
      assert.equal((await titles(page)).length, 6);
      await page.getByRole("button", { name: "Show all 9" }).click();
      assert.equal((await titles(page)).length, 9);
      await page.getByRole("radio", { name: "Smallest first" }).check();
      assert.deepEqual((await titles(page)).slice(0, 2), ["Offload activations", "Recompute activations"]);
    }));

  test("list research separately, without buttons", () => {
    const { rows } = whatIfs();
    const compressed = { ...rows[0], name: "gist", title: "Activation compression (Gist)", research: true };
    return withPanel(browser, documents({ rows: [...rows, compressed] }), async (page) => {
      const research = page.locator("#what-ifs .research");
      await research.getByText("Research: published, not available in PyTorch").waitFor();
      assert.deepEqual(await research.locator(".what-if h3").allInnerTexts(), ["Activation compression (Gist)"]);
      assert.equal(await research.getByRole("button").count(), 0);
      await page.getByRole("button", { name: "Show all 9" }).waitFor();
    });
  });

  test("draw a bar from 1× to the speedup, with whiskers for its range", () =>
    withPanel(browser, documents(), async (page) => {
      await page.getByRole("button", { name: "Show all 9" }).click();
      const box = async (title, part) => row(page, title).locator(part).boundingBox();
      const one = await box("torch.compile", ".speed-one");
      const bar = await box("torch.compile", ".speed-value");
      const whiskers = await box("torch.compile", ".speed-range");
      assert.ok(Math.abs(bar.x - one.x) < 2, "it begins at 1×");
      assert.ok(whiskers.x > bar.x && whiskers.x + whiskers.width > bar.x + bar.width, "its end lies within the whiskers");
      const slower = await box("Offload activations", ".speed-value");
      assert.ok(Math.abs(slower.x + slower.width - one.x) < 2, "what is slower goes the other way");
    }));

  test("link to their lines, and highlight them", () =>
    withPanel(browser, documents(), async (page, site) => {
      await row(page, "Mixed precision (bf16)").getByRole("button", { name: "train.py:57" }).click();
      assert.deepEqual(await waitForPosts(site, "jump", 1), [{ workspace: 0, file: 1, line: 57, generation: 7 }]);
      assert.equal((await waitForPosts(site, "highlight", 1))[0].line, 57);
      const attention = row(page, "Fused attention");
      assert.match(await attention.innerText(), /model\.py:24, model\.py:28 and 3 more lines/);
      await attention.getByText("Details").click();
      await attention.locator("details").getByRole("button", { name: "model.py:33" }).click();
      assert.equal((await waitForPosts(site, "jump", 2))[1].line, 33);
    }));

  test("can be applied and measured with a button, or show why not", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.getByRole("button", { name: "Apply Mixed precision (bf16)" }).click();
      await page.getByRole("button", { name: "Measure Mixed precision (bf16)" }).click();
      const requests = [{ workspace: 0, name: "amp-bf16", action: "apply" }, { workspace: 0, name: "amp-bf16", action: "measure" }];
      assert.deepEqual(await waitForPosts(site, "whatif", 2), requests);
      const refused = page.getByRole("button", { name: "Apply TF32 products" });
      assert.equal(await refused.getAttribute("aria-disabled"), "true");
      assert.equal(await refused.getAttribute("title"), "train.py:4 does it already");
      await refused.focus();
      await page.keyboard.press("Enter");
      await page.locator("#notice", { hasText: "TF32 products: train.py:4 does it already" }).waitFor();
      assert.equal((await waitForPosts(site, "whatif", 2)).length, 2);
    }));

  test("show the editor's message", () =>
    withPanel(browser, documents(), async (page, site) => {
      site.answer = { done: false, message: "The text has changed since it ran." };
      await page.getByRole("button", { name: "Apply torch.compile" }).click();
      await page.locator("#notice", { hasText: "The text has changed since it ran." }).waitFor();
    }));

  test("show the measured next to the predicted value", () =>
    withPanel(browser, documents(), async (page) => {
      assert.match(await row(page, "Fused AdamW").innerText(), /measured\s*97\.6 ms instead of 102 ms, as predicted · 3\.1 GB, as predicted · /i);
      const compiled = row(page, "torch.compile");
      assert.match(await compiled.innerText(), /measured\s*90 ms instead of 102 ms, 16% more than predicted and out of range · 2\.6 GB, as predicted/i);
      assert.equal(await compiled.locator(".speed-measured").count(), 1);
      assert.equal(await row(page, "TF32 products").locator(".speed-measured").count(), 0);
      await page.getByRole("button", { name: "Measure again torch.compile" }).waitFor();
    }));

  test("show which one is being measured", () =>
    withPanel(browser, documents({ measuring: "amp-bf16", message: "measuring Mixed precision: warming up." }), async (page, site) => {
      await page.getByRole("button", { name: "Measuring… Mixed precision (bf16)" }).waitFor();
      assert.match(await page.locator("#what-ifs [role=status]").innerText(), /measuring/);
      const other = page.getByRole("button", { name: "Measure Fused attention" });
      assert.equal(await other.getAttribute("title"), "measuring Mixed precision (bf16)");
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.panel = documents().panel;
      site.send("panel", null);
      await page.getByRole("button", { name: "Measure Mixed precision (bf16)" }).waitFor();
    }));

  test("show source and notes when expanded, and stay expanded and focused when a new document arrives", () =>
    withPanel(browser, documents(), async (page, site) => {
      const mixed = row(page, "Mixed precision (bf16)");
      await mixed.locator("summary").focus();
      await page.keyboard.press("Enter");
      assert.match(await mixed.innerText(), /Source\s+Micikevicius et al\., ICLR 2018[^]*adds 112 casts/);
      await page.getByRole("button", { name: "Measure Mixed precision (bf16)" }).focus();
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      const panel = documents({ accuracy: null }).panel;
      panel.what_ifs.rows.reverse();
      site.panel = panel;
      site.send("panel", null);
      await page.getByText("No prediction has been measured here yet.").waitFor();
      await page.getByRole("button", { name: "Show all 9" }).waitFor();
      await page.getByRole("radio", { name: "Smallest first" }).waitFor();
      assert.equal((await titles(page))[0], "Offload activations");
      await page.getByRole("button", { name: "Show all 9" }).click();
      assert.ok(await mixed.locator("details").evaluate((details) => details.open));
    }));

  test("keep the keyboard focus when a new document arrives", () =>
    withPanel(browser, documents(), async (page, site) => {
      await page.getByRole("button", { name: "Apply Fused attention" }).focus();
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.panel = documents({ accuracy: null }).panel;
      site.send("panel", null);
      await page.getByText("No prediction has been measured here yet.").waitFor();
      assert.equal(await page.evaluate(() => document.activeElement.textContent), "Apply Fused attention");
    }));

  test("show the best combination, and collapse those without a prediction, by reason", () =>
    withPanel(browser, documents(), async (page) => {
      const together = section(page).getByRole("table", { name: "Best combination" });
      assert.match(await together.locator("tbody tr").first().innerText(), /^torch\.compile, mixed precision \(bf16\)\s+~2\.30× speedup 2\.00× to 2\.64×/);
      const folded = section(page).getByText("3 optimizations not applicable, and why");
      assert.equal(await page.getByText("this GPU has no FP8").isVisible(), false);
      await folded.click();
      assert.match(await section(page).innerText(), /FP8; FP8 with delayed scaling: this GPU has no FP8/);
    }));

  test("have a slider from fastest to smallest that lists its lines", () =>
    withPanel(browser, documents(), async (page, site) => {
      const slider = page.getByRole("slider", { name: /fastest to smallest/ });
      const text = () => page.locator(".recompute").innerText();
      assert.match(await text(), /~102 ms\s[^]*~3\.1 GB\s[^]*No recomputation\./);
      await slider.focus();
      await page.keyboard.press("ArrowRight");
      assert.match(await text(), /~107 ms \(\+5%\)[^]*~2\.8 GB \(−11%\)[^]*Recomputed: model\.py:28/);
      await page.keyboard.press("End");
      assert.match(await text(), /~126 ms \(\+24%\)[^]*~1\.4 GB \(−55%\)[^]*model\.py:28, model\.py:41, model\.py:42, model\.py:24, model\.py:58/);
      assert.equal(await slider.getAttribute("aria-valuetext"), "iteration time about 126 ms (+24%), peak memory about 1.4 GB (−55%)");
      await page.locator(".recompute").getByRole("button", { name: "model.py:42" }).click();
      assert.equal((await waitForPosts(site, "jump", 1))[0].line, 42);
      // With fewer choices, the slider moves to the last one.
      await waitUntil(() => site.streams.size === 1, "the page to listen");
      site.panel = documents({ recompute: whatIfs().recompute.slice(0, 3) }).panel;
      site.send("panel", null);
      await waitUntil(async () => (await text()).includes("~112 ms"), "the slider to follow");
    }));

  test("have a slider whose selection can be applied at its lines, or shows why not", () =>
    withPanel(browser, documents(), async (page, site) => {
      const slider = page.getByRole("slider", { name: /fastest to smallest/ });
      const apply = page.getByRole("button", { name: "Apply activation recomputation" });
      assert.equal(await apply.getAttribute("title"), "nothing to recompute here");
      await slider.focus();
      await page.keyboard.press("ArrowRight");
      await page.keyboard.press("ArrowRight");
      assert.equal(await apply.getAttribute("aria-disabled"), null);
      site.answer = { done: true, message: "batch norms take each batch twice" };
      await apply.click();
      const lines = [28, 41].map((line) => ({ file: 0, line, generation: 7 }));
      assert.deepEqual(await waitForPosts(site, "whatif", 1), [{ workspace: 0, name: "recompute", action: "apply", lines }]);
      await page.locator("#notice", { hasText: "batch norms take each batch twice" }).waitFor();
      await slider.focus();
      await page.keyboard.press("End");
      assert.match(await apply.getAttribute("title"), /a library calls these/);
      await apply.click({ force: true });
      await page.locator("#notice", { hasText: "Recompute activations: a line also calls" }).waitFor();
      assert.equal((await waitForPosts(site, "whatif", 1)).length, 1);
    }));

  test("have no working buttons without an editor", () =>
    withPanel(browser, documents({}, { can_jump: false }), async (page, site) => {
      const apply = page.getByRole("button", { name: "Apply torch.compile" });
      assert.match(await apply.getAttribute("title"), /no editor/);
      // The button explains why it is disabled.
      await apply.click({ force: true });
      await page.locator("#notice", { hasText: "no editor" }).waitFor();
      assert.deepEqual(site.posts, []);
    }));

  test("show what is missing", async () => {
    const nothing = { rows: [], combinations: [], refusals: [], recompute: [] };
    await withPanel(browser, documents({ ...nothing, message: "The recording has no kernels: predictions are not available." }), async (page) => {
      assert.match(await section(page).innerText(), /predictions are not available/);
      assert.equal(await section(page).getByRole("slider").count(), 0);
      assert.equal(await section(page).getByRole("table").count(), 0);
    });
    await withPanel(browser, documents(nothing), async (page) => {
      assert.match(await section(page).innerText(), /No known optimization applies to this iteration\./);
    });
    await withPanel(browser, documents({ replay_error: 0.2 }), async (page) => {
      assert.match(await section(page).innerText(), /The simulation is 20% off the recorded iteration: treat these predictions as a guess\./);
    });
    const unknown = documents({ before: { time_ns: 102e6, peak_bytes: null } });
    for (const one of unknown.panel.what_ifs.rows) one.peak_bytes = null;
    await withPanel(browser, unknown, async (page) => {
      assert.match(await row(page, "torch.compile").innerText(), /Peak memory\s+unknown/);
      assert.equal(await page.getByRole("radio", { name: "Smallest first" }).isVisible(), false);
    });
    await withPanel(browser, documents(null), async (page) => {
      assert.equal(await section(page).isVisible(), false);
    });
  });

  test("treat markup as text, and handle long and invalid values", () => {
    const evil = `<img src=x onerror="alert(1)">${"long".repeat(300)}</script>`;
    const { panel, timeline } = documents();
    const { what_ifs: it } = panel;
    for (const one of it.rows) Object.assign(one, { title: evil, source: evil, notes: [evil], lines: [{ file: 99, line: 1 }, null], edit: { possible: false, why: evil } });
    it.message = evil;
    it.refusals = [{ name: evil, title: evil, why: evil }];
    it.combinations[0].title = evil;
    it.rows[0].speedup = { low: 0, value: 1e300, high: -1 };
    it.rows[1].speedup = "fast";
    return withPanel(browser, { panel, timeline, width: 400 }, async (page) => {
      await page.locator(".what-if details").first().locator("summary").click();
      assert.equal(await page.locator("#what-ifs img").count(), 0);
      await checkNoSidewaysScroll(page, "hostile what ifs at 400 px");
    });
  });

  test("are shown in a report, without buttons", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ridgeline-report-"));
    try {
      const path = join(folder, "report.html");
      await writeFile(path, reportPage(documents().panel, timelineDocument()));
      await withPage(browser, { address: pathToFileURL(path).href, origin: "file:" }, async (page) => {
        assert.equal((await titles(page)).length, 6);
        assert.equal(await page.locator(".what-if-buttons").count(), 0);
        assert.match(await row(page, "torch.compile").innerText(), /out of range · 2\.6 GB, as predicted · 20\d\d-/);
        if (!noAxe) await checkAccessibility(page, "report");
      });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("are accessible and fit any width, in any theme", { skip: noAxe }, async () => {
    const folder = await screenshotFolder();
    for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 700], ["dark", 400], ["light", 400], ["high contrast", 1280]]) {
      await withPanel(browser, { ...documents({ measuring: "amp-bf16" }), ...THEMES[theme], width }, async (page) => {
        await checkAccessibility(page, `${theme} ${width}`);
        await page.getByRole("button", { name: "Show all 9" }).click();
        await row(page, "Fused attention").locator("summary").click();
        await row(page, "Mixed precision (bf16)").locator("summary").click();
        await section(page).getByText("3 optimizations").click();
        await page.getByRole("slider", { name: /fastest to smallest/ }).press("End");
        await checkAccessibility(page, `${theme} ${width}, unfolded`);
        await checkNoSidewaysScroll(page, `${theme} ${width}`);
        await section(page).screenshot({ path: join(folder, `what-ifs-${theme}-${width}.png`) });
      });
    }
    console.log(`screenshots: ${folder}`);
  });
});
