// Tests the panel and the report of the real binary, for a project that it has just profiled.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, waitUntil, withPage } from "./session.mjs";

/** Long, because the first run imports torch, which is slow on a busy machine. */
const RUN_LIMIT_MS = 180_000;

const binary = process.env.RIDGELINE_BINARY;
const python = process.env.RIDGELINE_TEST_PYTHON;
const found = findBrowser();
const skip =
  found.reason ??
  (!binary ? "RIDGELINE_BINARY names no `ridgeline`" : !python ? "RIDGELINE_TEST_PYTHON names no Python with torch" : false);
if (skip) {
  if (process.env.RIDGELINE_EDITORS_REQUIRED) throw new Error(skip);
  console.log(`SKIPPED the panel of the binary: ${skip}`);
}

describe("the panel of the binary", { skip }, () => {
  let folder;
  let project;
  let environment;
  let browser;
  const ridgeline = (...command) => promisify(execFile)(binary, command, { cwd: project, env: environment, timeout: RUN_LIMIT_MS });

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "ridgeline-panel-binary-"));
    project = join(folder, "gpt");
    cpSync(join(import.meta.dirname, "../../demo-projects/gpt"), project, { recursive: true });
    const venv = dirname(dirname(python));
    environment = {
      ...process.env,
      VIRTUAL_ENV: venv,
      PATH: `${join(venv, "bin")}:${process.env.PATH}`,
      RIDGELINE_CACHE_DIR: join(folder, "cache"),
      RIDGELINE_STATE_DIR: join(folder, "state"),
    };
    browser = await launch(found);
    await ridgeline("profile", ".");
  });
  after(async () => {
    await browser?.close();
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  });

  /** Fails if the page contains errors that no page of a measured project may show. */
  async function checkPage(page, name) {
    await page.locator("canvas.timeline").waitFor();
    assert.match(await page.locator("#headline").innerText(), /samples\/s/);
    await page.getByRole("radio", { name: "Table" }).check();
    await page.getByRole("radio", { name: "Line", exact: true }).check();
    assert.match(await page.getByRole("treegrid").innerText(), /model\.py/);
    await page.getByRole("radio", { name: "Chart" }).check();
    await checkNoSidewaysScroll(page, name);
    if (!noAxe) await checkAccessibility(page, name);
    await page.screenshot({ path: join(await screenshotFolder(), `binary-${name}.png`), fullPage: true });
  }

  test("is served by `ridgeline panel`, and shows new measurements", async () => {
    const server = spawn(binary, ["panel", "."], { cwd: project, env: environment, stdio: ["ignore", "pipe", "inherit"] });
    try {
      const [address] = await Promise.race([
        createInterface({ input: server.stdout })[Symbol.asyncIterator]().next().then(({ value }) => [value]),
        new Promise((_, failed) => server.once("exit", (code) => failed(new Error(`ridgeline panel exited with ${code}`)))),
      ]);
      for (const look of [{}, { theme: "dark", width: 400 }]) {
        await withPage(browser, { address, origin: new URL(address).origin, ...look }, (page) =>
          checkPage(page, look.theme === undefined ? "panel" : "panel-narrow"),
        );
      }
      await withPage(browser, { address, origin: new URL(address).origin }, async (page) => {
        assert.equal(await page.locator("#history tbody tr").count(), 1);
        await ridgeline("profile", ".");
        await waitUntil(async () => (await page.locator("#history tbody tr").count()) === 2, "the second run in the history");
        assert.match(await page.locator("#headline").innerText(), /since last run/);
      });
    } finally {
      server.kill();
    }
  });

  test("is written to a file by `ridgeline report`", async () => {
    const path = join(folder, "report.html");
    await ridgeline("report", ".", "--output", path);
    await withPage(browser, { address: pathToFileURL(path).href, origin: "file:" }, async (page) => {
      await checkPage(page, "report");
      await page.locator("#memory .link").first().click();
      const { hash } = new URL(page.url());
      assert.match(hash, /^#f\d+l\d+$/);
      assert.equal(await page.locator(":target").getAttribute("id"), hash.slice(1));
    });
    await withPage(browser, { address: pathToFileURL(path).href, origin: "file:", theme: "dark", width: 400 }, (page) => checkPage(page, "report-narrow"));
  });

  test("shows everything in tables in the report if scripts are disabled", async () => {
    const path = join(folder, "report.html");
    await ridgeline("report", ".", "--output", path);
    for (const theme of ["light", "dark"]) {
      const look = { address: pathToFileURL(path).href, origin: "file:", theme, width: 400, ready: false, scripts: false };
      await withPage(browser, look, async (page) => {
        await page.getByRole("heading", { name: "Most expensive lines" }).waitFor();
        assert.equal(await page.locator("main").isVisible(), false);
        await page.getByRole("link", { name: /^model\.py:\d+$/ }).first().click();
        const { hash } = new URL(page.url());
        assert.match(await page.locator(`[id="${hash.slice(1)}"]`).innerText(), /ms/);
        await page.screenshot({ path: join(await screenshotFolder(), `binary-report-without-script-${theme}.png`) });
      });
    }
  });
});
