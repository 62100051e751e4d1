// Tests Ridgeline's features through the VS Code API in the extension host. The cases build on each other in one
// window: allow, measure, edit, fail, fix.

import assert from "node:assert/strict";

import * as vscode from "vscode";

/** Timeout of a run, in milliseconds. */
const RUN_LIMIT = 180_000;

const ID = "ridgeline.ridgeline";

/** Statements of the project that have results. */
const HOTTEST = "self.features(x)";
const LOOP = "for step in range(500)";

let document: vscode.TextDocument;

const CASES: Record<string, () => Promise<void>> = {
  async "starts for a Python file, and has its commands"() {
    const extension = vscode.extensions.getExtension(ID);
    assert.ok(extension, "the extension is not installed");
    assert.ok(!extension.isActive, "it started without a Python file");
    const began = performance.now();
    await extension.activate();
    // Printed instead of asserted, because the time depends on the machine.
    console.log(`note   activation took ${(performance.now() - began).toFixed(1)} ms, including loading the client`);
    document = await vscode.workspace.openTextDocument(file("train.py"));
    await vscode.window.showTextDocument(document);
    const manifest = extension.packageJSON as { contributes: { commands: { command: string }[] } };
    const registered = await vscode.commands.getCommands(true);
    for (const { command } of manifest.contributes.commands) {
      assert.ok(registered.includes(command), `${command} is not there`);
    }
  },

  async "shows nothing before runs are allowed"() {
    await edit((text) => text.replace('"""Trains a small', '"""Trains a very small'));
    await document.save();
    // The question and a code lens are visible now, so the server has read the file.
    await until("the lens at the script", async () => (await lenses()).some(({ title }) => title.includes("profile")));
    assert.deepEqual(await hints(), []);
  },

  async "profiles after the workspace is allowed, with the interpreter of the Python extension"() {
    await vscode.commands.executeCommand("ridgeline.trust");
    const found = await until("hints", async () => nonempty(await hints()));
    const hottest = found.filter(({ line }) => line === lineOf(HOTTEST));
    assert.match(hottest.map(({ label }) => label).join(), /fwd [\d.]+ · bwd [\d.]+ (ms|µs|s)/);
    for (const { line, label } of found) {
      assert.ok(document.lineAt(line).text.trim() !== "", `a hint on an empty line: ${label}`);
    }
  },

  async "puts totals at the training loop"() {
    const found = await until("the headline", async () =>
      nonempty((await lenses()).filter(({ title }) => title.includes("samples/s"))),
    );
    assert.deepEqual(found.map(({ line }) => line), [lineOf(LOOP)]);
  },

  async "shows a line's details in its hover"() {
    const text = await hover(HOTTEST);
    assert.match(text, /forward/);
    assert.match(text, /backward/);
    assert.match(text, /Layer:[^]*features[^]*Linear/);
  },

  async "sets the batch size by a code action and by command, and a single undo reverts it"() {
    const before = document.getText();
    const wanted = await until("the code action", async () => {
      const line = lineOf(LOOP);
      const range = new vscode.Range(line, 4, line, 4);
      const rewrite = vscode.CodeActionKind.RefactorRewrite.value;
      const found = await vscode.commands.executeCommand<vscode.CodeAction[]>(
        "vscode.executeCodeActionProvider",
        document.uri,
        range,
        rewrite,
      );
      return found.find(({ title }) => title.endsWith("set batch size to 64"));
    });
    assert.ok(wanted.edit !== undefined && (await vscode.workspace.applyEdit(wanted.edit)));
    assert.equal(document.getText(), before.replace("batch_size: int = 128", "batch_size: int = 64"));
    await vscode.commands.executeCommand("undo");
    assert.equal(document.getText(), before);
    await vscode.commands.executeCommand("ridgeline.setBatchSize", { uri: document.uri.toString(), batch: 96 });
    await until("the edit", () => document.getText() === before.replace("batch_size: int = 128", "batch_size: int = 96"));
    await vscode.commands.executeCommand("undo");
    assert.equal(document.getText(), before);
  },

  async "moves hints with their statements"() {
    const before = await hints();
    await edit((text) => text.replace("import torch\n", "import os\n\nimport torch\n"));
    const expected = before.map(({ line, label }) => ({ line: line + 2, label }));
    await until("hints to move", async () => same(await hints(), expected));
    await edit((text) => text.replace("import os\n\n", ""));
    await until("hints to move back", async () => same(await hints(), before));
  },

  async "marks outdated numbers"() {
    await edit((text) => text.replace("torch.relu(self.features(x))", "torch.tanh(self.features(x))"));
    await until("the hint to be marked as old", async () => {
      const here = (await hints()).filter(({ line }) => line === lineOf(HOTTEST));
      return here.length > 0 && here.every(({ label }) => label.includes("was"));
    });
    await edit((text) => text.replace("torch.tanh(self.features(x))", "torch.relu(self.features(x))"));
  },

  async "follows settings"() {
    const settings = vscode.workspace.getConfiguration("ridgeline");
    await settings.update("inlayHints.enable", false, vscode.ConfigurationTarget.Workspace);
    await until("hints to go", async () => (await hints()).length === 0);
    await settings.update("inlayHints.enable", undefined, vscode.ConfigurationTarget.Workspace);
    await until("hints to come back", async () => (await hints()).length > 0);
  },

  async "shows a failed run at its line"() {
    await edit((text) => text.replace("nn.Linear(784, 1024)", "nn.Linear(785, 1024)"));
    await document.save();
    const [problem] = await until("the diagnostic", () => nonempty(failures()));
    assert.equal(problem?.range.start.line, lineOf(HOTTEST));
    assert.match(problem.message, /mat1 and mat2|shapes cannot be multiplied/);
    assert.equal(problem.severity, vscode.DiagnosticSeverity.Error);
  },

  async "clears the failure when the next run succeeds"() {
    await edit((text) => text.replace("nn.Linear(785, 1024)", "nn.Linear(784, 1024)"));
    await document.save();
    await until("the diagnostic to go", () => failures().length === 0);
  },

  async "restores the results after the server restarts"() {
    await vscode.commands.executeCommand("ridgeline.restartServer");
    await until("hints of the kept recording", async () => (await hints()).length > 0);
  },

  async "clears everything on command"() {
    await vscode.commands.executeCommand("ridgeline.clear");
    await until("hints to go", async () => (await hints()).length === 0);
  },
};

/** Called by VS Code. A rejection is a failure. */
export async function run(): Promise<void> {
  const failed: string[] = [];
  for (const [name, body] of Object.entries(CASES)) {
    try {
      await body();
      console.log(`ok     ${name}`);
    } catch (error) {
      failed.push(name);
      console.log(`FAILED ${name}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
      // Later cases depend on the final state of this one.
      break;
    }
  }
  if (failed.length > 0) {
    throw new Error(`failed: ${failed.join(", ")}`);
  }
}

function file(name: string): vscode.Uri {
  const folder = vscode.workspace.workspaceFolders?.[0];
  assert.ok(folder, "no folder is open");
  return vscode.Uri.joinPath(folder.uri, name);
}

/** Polls until a condition is true. */
async function until<T>(what: string, ask: () => T | Promise<T>, limit = RUN_LIMIT): Promise<Exclude<T, false | undefined>> {
  const end = Date.now() + limit;
  for (;;) {
    const answer = await ask();
    if (answer !== false && answer !== undefined) {
      return answer as Exclude<T, false | undefined>;
    }
    if (Date.now() > end) {
      throw new Error(`waited ${(limit / 1000).toString()} s for ${what}`);
    }
    await new Promise((again) => setTimeout(again, 100));
  }
}

function nonempty<T>(all: T[]): T[] | undefined {
  return all.length > 0 ? all : undefined;
}

function same(found: unknown, expected: unknown): boolean {
  return JSON.stringify(found) === JSON.stringify(expected);
}

function lineOf(text: string): number {
  const at = document.getText().indexOf(text);
  assert.ok(at >= 0, `${text} is not in the file`);
  return document.positionAt(at).line;
}

async function edit(change: (text: string) => string): Promise<void> {
  const before = document.getText();
  const after = change(before);
  assert.notEqual(after, before, "the edit changes nothing");
  // A minimal edit, as typing would make.
  let start = 0;
  while (start < before.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < Math.min(before.length, after.length) - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const range = new vscode.Range(document.positionAt(start), document.positionAt(before.length - end));
  const edit = new vscode.WorkspaceEdit();
  edit.replace(document.uri, range, after.slice(start, after.length - end));
  assert.ok(await vscode.workspace.applyEdit(edit));
}

interface Shown {
  line: number;
  label: string;
}

async function hints(): Promise<Shown[]> {
  const whole = new vscode.Range(0, 0, document.lineCount, 0);
  const found = await vscode.commands.executeCommand<vscode.InlayHint[]>(
    "vscode.executeInlayHintProvider",
    document.uri,
    whole,
  );
  return found.map(({ position, label }) => ({
    line: position.line,
    label: typeof label === "string" ? label : label.map((part) => part.value).join(""),
  }));
}

async function lenses(): Promise<{ line: number; title: string }[]> {
  const found = await vscode.commands.executeCommand<vscode.CodeLens[]>(
    "vscode.executeCodeLensProvider",
    document.uri,
    1000,
  );
  return found.map(({ range, command }) => ({ line: range.start.line, title: command?.title ?? "" }));
}

async function hover(text: string): Promise<string> {
  const at = document.positionAt(document.getText().indexOf(text) + 6);
  const found = await vscode.commands.executeCommand<vscode.Hover[]>("vscode.executeHoverProvider", document.uri, at);
  return found
    .flatMap(({ contents }) => contents)
    .map((content) => (typeof content === "string" ? content : content.value))
    .join("\n");
}

/** Returns the failures of a run, without findings. */
function failures(): vscode.Diagnostic[] {
  const all = vscode.languages.getDiagnostics(document.uri);
  return all.filter(({ severity }) => severity === vscode.DiagnosticSeverity.Error);
}
