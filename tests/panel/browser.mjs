// Chromium and playwright-core, as installed by tests/editors/setup, or the reason why they are missing.

import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const EDITORS = process.env.RIDGELINE_EDITORS;

/** Returns `{ chromium, executable }`, or `{ reason }` if RIDGELINE_EDITORS_REQUIRED is not set. */
export function findBrowser() {
  const found = find();
  if (found.reason !== undefined && process.env.RIDGELINE_EDITORS_REQUIRED) throw new Error(found.reason);
  return found;
}

function find() {
  if (!EDITORS) return { reason: "RIDGELINE_EDITORS is not a folder created by tests/editors/setup" };
  const executable = [process.env.RIDGELINE_CHROMIUM, join(EDITORS, "tools/chromium"), "/usr/bin/chromium"].find((path) => path && existsSync(path));
  if (executable === undefined) return { reason: "there is no Chromium; name one in RIDGELINE_CHROMIUM" };
  try {
    const { chromium } = createRequire(join(EDITORS, "playwright/package.json"))("playwright-core");
    return { executable, chromium };
  } catch (error) {
    if (error.code !== "MODULE_NOT_FOUND") throw error;
    return { reason: `there is no playwright-core in ${join(EDITORS, "playwright")}` };
  }
}

export function launch({ chromium, executable }) {
  return chromium.launch({
    executablePath: executable,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** The folder for screenshots, beside those of the editors. */
export async function screenshotFolder() {
  const pictures = process.env.RIDGELINE_EDITOR_PICTURES ?? fileURLToPath(new URL("../../target/editors", import.meta.url));
  const folder = join(pictures, "panel");
  await mkdir(folder, { recursive: true });
  return folder;
}
