// Many panels of one server in one browser, which has six connections to it for all of them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";

import { findBrowser, launch } from "./browser.mjs";

const TABS = 8;

const binary = process.env.RIDGELINE_BINARY;
const found = findBrowser();
const skip = found.reason ?? (!binary ? "RIDGELINE_BINARY names no `ridgeline`" : false);
if (skip) {
  if (process.env.RIDGELINE_EDITORS_REQUIRED) throw new Error(skip);
  console.log(`SKIPPED many panels in one browser: ${skip}`);
}

test("every one of many panels in one browser shows its project", { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "ridgeline-panel-tabs-"));
  const recording = join(import.meta.dirname, "../recordings/mlp-cpu");
  const environment = {
    ...process.env,
    RIDGELINE_CACHE_DIR: join(folder, "cache"),
    RIDGELINE_STATE_DIR: join(folder, "state"),
  };
  const server = spawn(binary, ["panel", recording], { env: environment, stdio: ["ignore", "pipe", "inherit"] });
  const browser = await launch(found);
  try {
    const [address] = await once(createInterface({ input: server.stdout }), "line");
    const context = await browser.newContext();
    for (let tab = 0; tab < TABS; tab += 1) {
      const page = await context.newPage();
      await page.goto(address);
      await page.locator("#project:not(:empty)").waitFor();
      assert.equal(await page.locator("#project").innerText(), "mlp-cpu", `tab ${tab}`);
    }
  } finally {
    await browser.close();
    server.kill();
    rmSync(folder, { recursive: true, force: true });
  }
});
