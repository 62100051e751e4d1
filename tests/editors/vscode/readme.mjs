// Makes the README's pictures from a real run of a demo: `node readme.mjs FOLDER`; see editor.mjs for its environment.

import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";

import { EXTENSION, ROOT, buildExtension, pictures, ridgeline } from "./editor.mjs";
import { COST, failures, session, step } from "./person.mjs";

const folder = process.argv[2] ?? join(ROOT, "docs/pictures");
mkdirSync(folder, { recursive: true });
buildExtension();

const home = {
  project: join(ROOT, "demo-projects/gpt"),
  extensions: [EXTENSION, join(import.meta.dirname, "python-extension")],
  settings: {
    "ridgeline.server.path": ridgeline,
    "workbench.activityBar.location": "hidden",
    "workbench.sideBar.location": "right",
    "breadcrumbs.enabled": false,
  },
};

await session({ home, trusted: true, viewport: { width: 1100, height: 780 } }, async (window) => {
  const { page } = window;
  await step(window, "the demo is measured", async () => {
    await window.open("train.py");
    await window.statusShows("Ridgeline");
    await window.command("Ridgeline: Profile Now");
    await window.notification("Run code of this workspace?").getByRole("button", { name: "Always" }).click();
    await window.statusShows("samples/s");
    await window.open("model.py");
    await window.lineShows("y = F.scaled_dot_product_attention(", /./);
    await page.keyboard.press("Control+b");
    await window.goTo(44, 1);
    await window.lineShows("return self.proj(y)", COST);
    await page.locator(".codelens-decoration", { hasText: "at peak" }).filter({ visible: true }).first().waitFor();
    await window.picture("readme", { x: 0, y: 36, width: 1100, height: 744 });
    copyFileSync(join(pictures, "vscode-readme.png"), join(folder, "editor.png"));
  });
  await step(window, "its panel opens", async () => {
    await window.command("Ridgeline: Open the Panel");
    await window.panel.getByRole("heading", { name: "Timeline" }).waitFor();
    const address = new URL(await window.panel.locator(":root").evaluate(() => location.href));
    address.searchParams.delete("embedded");
    const panel = await page.context().newPage();
    await panel.setViewportSize({ width: 1100, height: 1240 });
    await panel.goto(address.href);
    await panel.locator("#timeline canvas").waitFor();
    await panel.getByText(/^all of /).waitFor();
    await panel.screenshot({ path: join(folder, "panel.png") });
  });
});
process.exit(failures.length > 0 ? 1 : 0);
