// Takes the screenshots of the README and the docs from real runs: `node readme.mjs FOLDER`; see editor.mjs for the
// environment variables. `--simulated` takes those of a GPU timeline, on the simulated device (tests/gpu/simulated).

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { EXTENSION, PROJECTS, ROOT, buildExtension, pictures, python, ridgeline } from "./editor.mjs";
import { COST, failures, session, step } from "./person.mjs";

const [folder = join(ROOT, "docs/pictures")] = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
mkdirSync(folder, { recursive: true });
buildExtension();

const home = (project, server) => ({
  project,
  extensions: [EXTENSION, join(import.meta.dirname, "python-extension")],
  settings: {
    "ridgeline.server.path": server,
    "workbench.activityBar.location": "hidden",
    "workbench.sideBar.location": "right",
    "breadcrumbs.enabled": false,
  },
});

await (process.argv.includes("--simulated") ? onSimulatedGpu() : onProcessor());
process.exit(failures.length > 0 ? 1 : 0);

/**
 * VS Code and the panel with a program that uses three streams. The server and its child processes see the simulated
 * GPU.
 */
async function onSimulatedGpu() {
  const scratch = mkdtempSync(join(tmpdir(), "ridgeline-simulated-"));
  const server = join(scratch, "ridgeline");
  const run = join(ROOT, "tests/gpu/simulated/run");
  // Uses the user's cache, because the simulator would be rebuilt in the editor's temporary home.
  const built = process.env.RIDGELINE_TEST_HOME ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "ridgeline-tests");
  writeFileSync(server, `#!/bin/sh\nexport RIDGELINE_TEST_HOME=${built}\nexec ${run} --python ${python} ${ridgeline} "$@"\n`);
  chmodSync(server, 0o755);
  const viewport = { width: 1500, height: 900 };
  try {
    await session({ home: home(join(PROJECTS, "streams"), server), trusted: true, viewport }, async (window, opened) => {
      const { page } = window;
      await step(window, "a program with three streams is profiled", async () => {
        await window.open("train.py");
        await page.keyboard.press("Control+b");
        await window.statusShows("Ridgeline");
        await window.command("Ridgeline: Profile Now");
        await window.notification("to profile it?").getByRole("button", { name: "Always" }).click();
        await window.statusShows("samples/s");
        await window.goTo(40, 1);
        await window.lineShows("local = self.local(images)", COST);
      });
      await step(window, "the panel shows the GPU timeline next to the editor", async () => {
        await window.command("Ridgeline: Open Panel");
        const timeline = window.panel.locator("#timeline");
        await timeline.getByText("The GPU is simulated").waitFor();
        await window.panel.getByText(/^all of /).waitFor();
        await timeline.scrollIntoViewIfNeeded();
        await window.panel.getByRole("heading", { name: "Timeline" }).evaluate((heading) => heading.scrollIntoView());
        await window.goTo(40, 1);
        await window.picture("gpu", { x: 0, y: 36, width: 1500, height: 864 });
        copyFileSync(join(pictures, "vscode-gpu.png"), join(folder, "editor-gpu.png"));
      });
      await step(window, "the panel as a separate page", async () => {
        await withPanel(window, opened, server, { width: 1100, height: 1000 }, async (panel) => {
          // From the device's name to the end of the timeline.
          const { y, height } = await panel.locator("#timeline").boundingBox();
          const clip = { x: 0, y: 0, width: 1100, height: Math.ceil(y + height + 16) };
          await panel.screenshot({ path: join(folder, "panel-gpu.png"), fullPage: true, clip });
        });
      });
    });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Opens the panel for the measurements of a home, as a separate page. */
async function withPanel(window, home, server, viewport, body) {
  const served = spawn(server, ["panel", home.project], { env: home.environment(), stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [address] = await once(createInterface({ input: served.stdout }), "line");
    const panel = await window.page.context().newPage();
    await panel.setViewportSize(viewport);
    await panel.goto(address);
    await panel.locator("#timeline canvas").waitFor();
    await panel.getByText(/^all of /).waitFor();
    await body(panel);
  } finally {
    served.kill();
  }
}

async function onProcessor() {
  await session({ home: home(join(ROOT, "demo-projects/gpt"), ridgeline), trusted: true, viewport: { width: 1100, height: 780 } }, async (window, opened) => {
    const { page } = window;
    await step(window, "the demo is profiled", async () => {
      await window.open("train.py");
      await window.statusShows("Ridgeline");
      await window.command("Ridgeline: Profile Now");
      await window.notification("to profile it?").getByRole("button", { name: "Always" }).click();
      await window.statusShows("samples/s");
      await window.open("model.py");
      await window.lineShows("y = F.scaled_dot_product_attention(", /./);
      await page.keyboard.press("Control+b");
      await window.goTo(44, 1);
      await window.lineShows("return self.proj(y)", COST);
      await page.locator(".codelens-decoration", { hasText: "%" }).filter({ visible: true }).first().waitFor();
      await window.picture("readme", { x: 0, y: 36, width: 1100, height: 744 });
      copyFileSync(join(pictures, "vscode-readme.png"), join(folder, "editor.png"));
    });
    await step(window, "the panel opens", async () => {
      await window.command("Ridgeline: Open Panel");
      await window.panel.getByRole("heading", { name: "Timeline" }).waitFor();
      await withPanel(window, opened, ridgeline, { width: 1100, height: 1240 }, async (panel) => {
        await panel.screenshot({ path: join(folder, "panel.png") });
        await panel.locator("#memory").screenshot({ path: join(folder, "memory.png") });
      });
    });
  });
}
