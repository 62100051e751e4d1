// Tests a notebook in VS Code's window as a user would: a save profiles it, its cells show hints and hovers, and costs
// follow a cell that moves. Run with `node notebook.mjs`; see editor.mjs for the environment variables.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { EXTENSION, buildExtension, ridgeline } from "./editor.mjs";
import { COST, failures, session, step } from "./person.mjs";

buildExtension();

const CELLS = [
  "import torch\nfrom torch import nn\n%matplotlib inline",
  `class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3, padding=1)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv(x)).mean((2, 3))
        return self.head(x)`,
  `net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
images, labels = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))`,
  `for step in range(400):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()`,
];
const project = mkdtempSync(join(tmpdir(), "ridgeline-notebook-"));
const code = (source) => ({ cell_type: "code", execution_count: null, metadata: {}, outputs: [], source });
const cells = [{ cell_type: "markdown", metadata: {}, source: "# Train" }, ...CELLS.map(code)];
const language_info = { name: "python" };
const notebook = JSON.stringify({ cells, metadata: { language_info }, nbformat: 4, nbformat_minor: 5 }, null, 1);
writeFileSync(join(project, "train.ipynb"), notebook);

const home = {
  project,
  extensions: [EXTENSION, join(import.meta.dirname, "python-extension")],
  settings: { "ridgeline.server.path": ridgeline, "ridgeline.inlayHints.expressions": true },
};

await session({ home, trusted: true, viewport: { width: 1280, height: 1100 } }, async (window, home) => {
  const { page } = window;
  const FORWARD = "x = torch.relu";

  await step(window, "a save of the notebook profiles it", async () => {
    await window.open("train.ipynb");
    await page.locator(".notebook-editor .view-line", { hasText: "super" }).first().waitFor();
    await window.statusShows("Ridgeline");
    await page.locator(".notebook-editor .view-line", { hasText: "super" }).first().click();
    await page.keyboard.press("End");
    await page.keyboard.type("  ");
    await page.keyboard.press("Control+s");
    await window.notification("to profile it?").getByRole("button", { name: "Always for this workspace" }).click();
    await window.statusShows("samples/s");
  });

  await step(window, "cells show the costs of their lines", async () => {
    await window.lineShows(FORWARD, COST);
    await window.lineShows("loss.backward()", COST);
    await page.locator(".codelens-decoration", { hasText: "samples/s" }).waitFor();
    await window.picture("notebook-cells");
  });

  await step(window, "the hover of a call shows that call", async () => {
    await window.hover(FORWARD, "conv");
    const text = await page.locator(".monaco-hover:not(.hidden) .hover-contents").first().innerText();
    assert.match(text, /in self\.conv\(x\)/);
    assert.match(text, /on this line/);
    await window.picture("notebook-hover");
  });

  await step(window, "a fix in one cell edits another", async () => {
    await page.locator(".notebook-editor .view-line", { hasText: "for step in range" }).first().click();
    await page.keyboard.press("Home");
    await page.keyboard.press("Control+.");
    const fix = page.locator(".action-widget .monaco-list-row", { hasText: "compile the model" }).first();
    await fix.waitFor();
    await window.picture("notebook-fixes");
    await fix.click();
    await page.locator(".notebook-editor .view-line", { hasText: "net = torch.compile(net)" }).first().waitFor();
    await window.picture("notebook-fixed");
    await page.keyboard.press("Control+z");
  });

  await step(window, "costs follow a cell that moves", async () => {
    await page.locator(".notebook-editor .view-line", { hasText: "cross_entropy" }).first().click();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Alt+ArrowUp");
    await window.lineShows("loss.backward()", COST);
    await window.lineShows(FORWARD, COST);
    await window.picture("notebook-moved");
  });

  await step(window, "the notebook on disk is the user's alone", async () => {
    const saved = JSON.parse(readFileSync(join(home.project, "train.ipynb"), "utf8"));
    assert.equal(saved.cells.length, cells.length);
    assert.deepEqual(saved.cells.flatMap((cell) => cell.outputs ?? []), []);
  });
});

rmSync(project, { recursive: true, force: true });
process.exit(failures.length > 0 ? 1 : 0);
