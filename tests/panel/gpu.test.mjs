// Tests the panel and the report of the real binary, for a program with three streams on the simulated GPU
// (tests/gpu/simulated).

import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { checkAccessibility, noAxe, withPage } from "./session.mjs";

const RUN_LIMIT_MS = 180_000;
const SIMULATED = join(import.meta.dirname, "../gpu/simulated/run");
const DEVICE = "NVIDIA H100 80GB HBM3 (simulated)";

const binary = process.env.RIDGELINE_BINARY;
const python = process.env.RIDGELINE_TEST_PYTHON;
const found = findBrowser();
const skip = found.reason ?? reasonToSkip();
if (skip) console.log(`SKIPPED the panel on the simulated GPU: ${skip}`);

/** The reason to skip if the simulated GPU is not available, or false. */
function reasonToSkip() {
  if (!binary) return "RIDGELINE_BINARY names no `ridgeline`";
  if (!python) return "RIDGELINE_TEST_PYTHON names no Python with torch";
  const tried = spawnSync(SIMULATED, ["--python", python, "true"], { encoding: "utf8", timeout: RUN_LIMIT_MS });
  if (tried.status === 77) return tried.stderr.trim();
  assert.equal(tried.status, 0, tried.stderr);
  return false;
}

describe("the panel on the simulated GPU", { skip }, () => {
  let folder;
  let environment;
  let browser;

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "ridgeline-panel-gpu-"));
    const project = join(folder, "streams");
    mkdirSync(project);
    cpSync(join(import.meta.dirname, "../gpu/programs/multi_stream.py"), join(project, "train.py"));
    environment = { ...process.env, RIDGELINE_CACHE_DIR: join(folder, "cache"), RIDGELINE_STATE_DIR: join(folder, "state") };
    browser = await launch(found);
    const command = ["--python", python, binary, "profile", project, "--python", python];
    await promisify(execFile)(SIMULATED, command, { env: environment, timeout: RUN_LIMIT_MS });
  });
  after(async () => {
    await browser?.close();
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  });

  /** Fails if a page does not show the streams, or does not state that they were simulated. */
  async function checkPage(page, name) {
    await page.locator("canvas.timeline").waitFor();
    assert.match(await page.locator("header").first().innerText(), /NVIDIA H100 80GB HBM3 \(simulated\)/);
    assert.match(await page.locator("#timeline").innerText(), /The GPU is simulated/);
    await page.getByText("Timeline as tables").click();
    const tracks = page.getByRole("table", { name: "Tracks" });
    assert.equal(await tracks.getByText(/^stream \d+$/).count(), 3);
    assert.equal(await tracks.getByText("GPU idle").count(), 1);
    if (!noAxe) await checkAccessibility(page, name);
    await page.screenshot({ path: join(await screenshotFolder(), `gpu-${name}.png`), fullPage: true });
  }

  test("shows the streams and the device name in `ridgeline panel`", async () => {
    const server = spawn(binary, ["panel", join(folder, "streams")], { env: environment, stdio: ["ignore", "pipe", "inherit"] });
    try {
      const [address] = await once(createInterface({ input: server.stdout }), "line");
      await withPage(browser, { address, origin: new URL(address).origin }, async (page) => {
        await checkPage(page, "panel");
        assert.match(await page.locator("#history").innerText(), /\(simulated\)/);
      });
    } finally {
      server.kill();
    }
  });

  test("shows them in `ridgeline report`, too", async () => {
    const path = join(folder, "report.html");
    await promisify(execFile)(binary, ["report", join(folder, "streams"), "--output", path], { env: environment });
    await withPage(browser, { address: pathToFileURL(path).href, origin: "file:" }, (page) => checkPage(page, "report"));
    const look = { address: pathToFileURL(path).href, origin: "file:", ready: false, scripts: false };
    await withPage(browser, look, async (page) => {
      await page.getByRole("heading", { name: "Most expensive lines" }).waitFor();
      assert.ok((await page.locator("body").innerText()).includes(DEVICE));
    });
  });
});
