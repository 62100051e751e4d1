// Tests the panel in code-server behind a proxy that serves it below a path, like JupyterHub: the browser cannot reach
// any other port of the server's machine. Run with `node proxied.mjs`; see editor.mjs for the environment variables.

import { join } from "node:path";

import { EXTENSION, RUN_LIMIT, buildExtension, ridgeline } from "./editor.mjs";
import { COST, HOTTEST, failures, session, step } from "./person.mjs";

buildExtension();

const home = {
  extensions: [EXTENSION, join(import.meta.dirname, "python-extension")],
  settings: { "ridgeline.server.path": ridgeline },
};

await session({ home, below: "/user/one/proxy/8080" }, async (window) => {
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
});

process.exit(failures.length > 0 ? 1 : 0);
