// The extension's commands: those of the server, and a few of its own.

import * as vscode from "vscode";

import { errorText, type Server } from "./client";
import { OPTIMIZATIONS, SERVER_COMMANDS, type ServerCommand } from "./lsp_ext";
import type { StatusBar } from "./status_bar";

const WALKTHROUGH = "ridgeline.ridgeline#ridgeline.firstRun";

/** Registers all of them. */
export function registerCommands(server: Server, bar: StatusBar, log: vscode.LogOutputChannel): vscode.Disposable {
  const own: Record<string, () => unknown> = {
    "ridgeline.showActions": () => bar.showActions(),
    "ridgeline.restartServer": () => server.restart(),
    "ridgeline.showLog": () => {
      log.show();
    },
    "ridgeline.openSettings": () =>
      vscode.commands.executeCommand("workbench.action.openSettings", "@ext:ridgeline.ridgeline"),
    "ridgeline.openWalkthrough": () =>
      vscode.commands.executeCommand("workbench.action.openWalkthrough", WALKTHROUGH, false),
  };
  return vscode.Disposable.from(
    ...Object.entries(own).map(([name, run]) => vscode.commands.registerCommand(name, run)),
    ...SERVER_COMMANDS.map((name) =>
      vscode.commands.registerCommand(name, async (argument?: unknown) => {
        if (name === "ridgeline.selectTargetGpu") return selectTargetGpu(server);
        const asked = await withAnswer(name, argument);
        return asked === null ? undefined : execute(server, name, asked, log);
      }),
    ),
  );
}

/** Runs a command of the server. From the palette it means the file that the person looks at. */
async function execute(
  server: Server,
  name: ServerCommand,
  argument: unknown,
  log: vscode.LogOutputChannel,
): Promise<unknown> {
  try {
    return await server.execute(name, argument ?? activeFile(name));
  } catch (error) {
    log.error(`${name}: ${errorText(error)}`);
    void vscode.window.showErrorMessage(`Ridgeline: ${errorText(error)}`);
    return undefined;
  }
}

/** The choice is a setting, so that it holds for the next session as well. */
async function selectTargetGpu(server: Server): Promise<void> {
  const none = "None";
  const names = await server.gpus();
  const title = "GPU to estimate for, because this machine has none";
  const chosen = await vscode.window.showQuickPick([none, ...names], { title, matchOnDescription: true });
  if (chosen !== undefined) {
    const settings = vscode.workspace.getConfiguration("ridgeline");
    const target = vscode.workspace.workspaceFolders === undefined ? vscode.ConfigurationTarget.Global : vscode.ConfigurationTarget.Workspace;
    await settings.update("targetGpu", chosen === none ? "" : chosen, target);
  }
}

/** The argument with what the command needs besides; null where the person says nothing. */
async function withAnswer(name: ServerCommand, argument: unknown): Promise<unknown> {
  if (name === "ridgeline.setBatchSize") return withBatch(argument);
  if (name === "ridgeline.applyWhatIf" || name === "ridgeline.measureWhatIf") return withOptimization(name, argument);
  return argument;
}

/** The argument with the name of an optimization in it, which the person is asked for where there is none. */
async function withOptimization(command: ServerCommand, argument: unknown): Promise<Record<string, unknown> | null> {
  const given = typeof argument === "object" && argument !== null ? (argument as Record<string, unknown>) : {};
  const uri = typeof argument === "string" ? argument : (given.uri ?? activeFile(command));
  if (typeof given.name === "string") return { ...given, uri };
  const items = Object.entries(OPTIMIZATIONS).map(([name, label]) => ({ name, label }));
  const title =
    command === "ridgeline.applyWhatIf"
      ? "Ridgeline: Apply an optimization (one edit that you can undo)"
      : "Ridgeline: Measure an optimization by running the program with and without its edit";
  const chosen = await vscode.window.showQuickPick(items, { title });
  return chosen === undefined ? null : { ...given, uri, name: chosen.name };
}

/** The argument with a batch size in it, which the person is asked for where there is none; null where they say none. */
async function withBatch(argument: unknown): Promise<Record<string, unknown> | null> {
  const given = typeof argument === "object" && argument !== null ? (argument as Record<string, unknown>) : {};
  const uri = typeof argument === "string" ? argument : (given.uri ?? activeFile("ridgeline.setBatchSize"));
  if (typeof given.batch === "number") return { ...given, uri };
  const answer = await vscode.window.showInputBox({
    title: "Ridgeline: Set batch size",
    prompt: "Changes the number in the code. You can undo the edit.",
    validateInput: (text) => (batchOf(text) === null ? "Enter a whole number of at least 1." : null),
  });
  const batch = answer === undefined ? null : batchOf(answer);
  return batch === null ? null : { ...given, uri, batch };
}

/** The batch size that a person typed. */
function batchOf(text: string): number | null {
  const batch = /^\s*\d{1,8}\s*$/.test(text) ? Number(text) : 0;
  return batch >= 1 ? batch : null;
}

function activeFile(name: ServerCommand): string | undefined {
  const uri = vscode.window.activeTextEditor?.document.uri;
  // Choosing a script without naming one asks which; the file that is open need not be the one.
  return uri?.scheme === "file" && name !== "ridgeline.selectScript" ? uri.toString() : undefined;
}
