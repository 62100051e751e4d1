// Serves a recording with `ridgeline panel`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { findBrowser, launch } from "./browser.mjs";

/** The recording's title. */
export const RECORDING = "mlp-cpu";

const binary = process.env.RIDGELINE_BINARY;
const found = findBrowser();

/** The reason to skip, or false. */
export const skip = found.reason ?? (!binary ? "RIDGELINE_BINARY names no `ridgeline`" : false);
if (skip) {
  if (process.env.RIDGELINE_EDITORS_REQUIRED) throw new Error(skip);
  console.log(`SKIPPED the panel of a recording: ${skip}`);
}

/** Calls `work` with a browser and the panel's URL. */
export async function withServed(work) {
  const folder = mkdtempSync(join(tmpdir(), "ridgeline-panel-served-"));
  const recording = join(import.meta.dirname, "../recordings", RECORDING);
  const environment = {
    ...process.env,
    RIDGELINE_CACHE_DIR: join(folder, "cache"),
    RIDGELINE_STATE_DIR: join(folder, "state"),
  };
  const server = spawn(binary, ["panel", recording], { env: environment, stdio: ["ignore", "pipe", "inherit"] });
  const browser = await launch(found);
  try {
    const [address] = await once(createInterface({ input: server.stdout }), "line");
    await work(browser, address);
  } finally {
    await browser.close();
    server.kill();
    rmSync(folder, { recursive: true, force: true });
  }
}
