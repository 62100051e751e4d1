// Chromium, driven by playwright-core: both from this machine, or a reason why there is none.

import { existsSync, mkdtempSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const HOMES = [process.env.RIDGELINE_TEST_PLAYWRIGHT, process.env.RIDGELINE_TEST_EDITORS && join(process.env.RIDGELINE_TEST_EDITORS, "playwright")];
const BROWSERS = [process.env.RIDGELINE_TEST_CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** `{ chromium, executable }`, or `{ reason }`. */
export function findBrowser() {
  const executable = BROWSERS.find((path) => path && existsSync(path));
  if (executable === undefined) return { reason: "no Chromium was found; name one in RIDGELINE_TEST_CHROMIUM" };
  for (const home of HOMES.filter(Boolean)) {
    try {
      return { executable, chromium: createRequire(join(home, "package.json"))("playwright-core").chromium };
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  return { reason: "playwright-core was not found; name a folder that has it in RIDGELINE_TEST_PLAYWRIGHT" };
}

export function launch({ chromium, executable }) {
  return chromium.launch({
    executablePath: executable,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** Where pictures are kept to be looked at. */
export async function pictureFolder() {
  const folder = process.env.RIDGELINE_TEST_PICTURES ? join(process.env.RIDGELINE_TEST_PICTURES, "panel") : mkdtempSync(join(tmpdir(), "ridgeline-panel-pictures-"));
  await mkdir(folder, { recursive: true });
  return folder;
}
