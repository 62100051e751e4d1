// Tests the package that users install, in a clean VS Code: no `ridgeline` on PATH, no settings, no Python extension.
// The package comes from the folder RIDGELINE_PACKAGES, or is built with the server under test.

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { EXTENSION, RUN_LIMIT, processes, python, ridgeline, run } from "./editor.mjs";
import { COST, HOTTEST, failures, session, step } from "./person.mjs";

const made = process.env.RIDGELINE_PACKAGES ? undefined : mkdtempSync(join(tmpdir(), "ridgeline-package-"));
const folder = process.env.RIDGELINE_PACKAGES ?? made;
try {
  if (made) {
    run(join(EXTENSION, "package"), [ridgeline, made], EXTENSION);
  }
  const vsix = readdirSync(folder).find((name) => name.endsWith(".vsix"));
  assert.ok(vsix, `there is no package in ${folder}`);
  await journey(join(folder, vsix));
} finally {
  if (made) {
    rmSync(made, { recursive: true });
  }
}

async function journey(vsix) {
  const home = { vsix, settings: { "ridgeline.interpreter": python } };
  // Walkthrough steps only show their images if there is enough space.
  const viewport = { width: 1600, height: 900 };
  await session({ home, viewport }, async (window, { extensions }) => {
    const { page } = window;
    await step(window, "the server in the package starts", async () => {
      await window.open("train.py");
      await window.statusShows("Ridgeline");
      const started = () => processes({ folder: join(extensions, "..") }).map(({ line }) => line);
      const server = started().find((line) => line.startsWith(join(extensions, "ridgeline.ridgeline-")));
      assert.ok(server?.includes("/server/ridgeline lsp"), started().join("\n"));
    });
    await step(window, "the server profiles once it is allowed to", async () => {
      await window.command("Ridgeline: Profile Now");
      await window.notification("to profile it?").getByRole("button", { name: "Run once" }).click();
      await window.lineShows(HOTTEST, COST);
      await window.statusShows("samples/s", RUN_LIMIT);
      await window.picture("21-package");
    });
    await step(window, "the walkthrough has its steps and images", async () => {
      await window.command("Ridgeline: Get Started");
      await page.locator(".getting-started-step.expanded", { hasText: "Open a training project" }).waitFor();
      const picture = page.locator(".getting-started-media img").first();
      await picture.waitFor();
      assert.ok(await picture.evaluate((image) => image.decode().then(() => image.naturalWidth > 0)), "no picture");
      await window.picture("22-first-steps");
    });
  });
}

process.exit(failures.length === 0 ? 0 : 1);
