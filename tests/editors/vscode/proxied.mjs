// Tests the panel in code-server behind a proxy that serves it below a path, like JupyterHub: the browser cannot reach
// any other port of the server's machine. Run with `node proxied.mjs`; see editor.mjs for the environment variables.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { EDITOR_LIMIT, EXTENSION, RUN_LIMIT, buildExtension, ridgeline } from "./editor.mjs";
import { COST, HOTTEST, failures, session, step } from "./person.mjs";

buildExtension();

const home = {
  extensions: [EXTENSION, join(import.meta.dirname, "python-extension")],
  settings: { "ridgeline.server.path": ridgeline },
};

await session({ home, below: "/user/one/proxy/8080" }, async (window, home) => {
  await step(window, "a run behind a proxy shows the cost of each line", async () => {
    await window.open("train.py");
    await window.statusShows("Ridgeline");
    await window.command("Ridgeline: Profile Now");
    await window.notification("to profile it?").getByRole("button", { name: "Always" }).click();
    await window.lineShows(HOTTEST, COST);
  });

  await step(window, "the panel works behind a proxy", async () => {
    await window.command("Ridgeline: Open Panel");
    await window.panel.locator("#headline li").first().waitFor();
    await window.panel.locator("#timeline canvas").waitFor();
    await window.panel.getByText(/^all of /).waitFor();
    await window.picture("21-panel-behind-proxy");
  });

  await step(window, "the panel behind a proxy follows the next run", async () => {
    await window.command("Ridgeline: Profile Now");
    await window.panel.locator("#state", { hasText: "Running" }).waitFor();
    await window.panel.locator("#state", { hasText: "Ready" }).waitFor({ timeout: RUN_LIMIT });
  });

  await step(window, "an export of the panel is saved where the user wants it", async () => {
    await window.panel.getByRole("button", { name: "Export Roofline" }).click();
    await window.panel.getByRole("button", { name: "Data (CSV)" }).click();
    const path = window.page.locator(".quick-input-widget input");
    const until = async (holds) => {
      const end = Date.now() + EDITOR_LIMIT;
      while (!(await holds()) && Date.now() < end) await new Promise((done) => setTimeout(done, 50));
    };
    // The dialog fills the path in after it has opened.
    await until(async () => (await path.inputValue()).endsWith(".csv"));
    const suggested = await path.inputValue();
    assert.ok(suggested.startsWith(`${home.project}/digits-`) && suggested.endsWith("-roofline.csv"), suggested);
    const target = join(home.project, "chosen.csv");
    await path.fill(target);
    await window.picture("22-panel-export");
    await window.page.keyboard.press("Enter");
    await until(() => existsSync(target) && readFileSync(target, "utf8") !== "");
    assert.match(readFileSync(target, "utf8"), /^line,operator,inputs,.*\r\ntrain\.py:\d+,/);
    assert.equal(existsSync(suggested), false);
  });

  await step(window, "the panel has high contrast if the editor has", async () => {
    const input = await window.quickInput("F1");
    // Clicked, because the first result is another command.
    for (const [text, row] of [[">Preferences: Color Theme", /^Preferences: Color Theme/], ["Dark High Contrast", /^Dark High Contrast/]]) {
      await input.fill(text);
      await window.page.locator(".quick-input-list .monaco-list-row", { hasText: row }).click();
    }
    await window.panel.locator("html[data-theme=high-contrast]").waitFor();
    await window.picture("23-panel-high-contrast");
  });
});

process.exit(failures.length > 0 ? 1 : 0);
