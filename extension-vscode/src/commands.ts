// Registers the server's commands and the extension's client-side commands.

import * as vscode from "vscode";

import { errorText, type Server } from "./client";
import { OPTIMIZATIONS, SERVER_COMMANDS, type ServerCommand } from "./lsp_ext";
import type { StatusBar } from "./status_bar";

const WALKTHROUGH = "ridgeline.ridgeline#ridgeline.firstRun";

export function registerCommands(server: Server, bar: StatusBar, log: vscode.LogOutputChannel): vscode.Disposable {
  const clientCommands: Record<string, () => unknown> = {
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
    ...Object.entries(clientCommands).map(([name, run]) => vscode.commands.registerCommand(name, run)),
    ...SERVER_COMMANDS.map((name) =>
      vscode.commands.registerCommand(name, async (argument?: unknown) => {
        if (name === "ridgeline.selectTargetGpu") return selectTargetGpu(server);
        const completed = await completeArgument(name, argument);
        return completed === null ? undefined : execute(server, name, completed, log);
      }),
    ),
  );
}

/** Runs a server command. Without an argument (from the palette) it applies to the active file. */
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

/** Lets the user pick a target GPU and stores it in the settings, so it persists across sessions. */
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

/** Asks the user for whatever the command's argument lacks. Returns null if the user cancels. */
async function completeArgument(name: ServerCommand, argument: unknown): Promise<unknown> {
  if (name === "ridgeline.setBatchSize") return addBatch(argument);
  if (name === "ridgeline.applyWhatIf" || name === "ridgeline.measureWhatIf") return addOptimization(name, argument);
  return argument;
}

/** Adds the name of an optimization to the argument, asking the user if it has none. Returns null on cancel. */
async function addOptimization(command: ServerCommand, argument: unknown): Promise<Record<string, unknown> | null> {
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

/** Adds a batch size to the argument, asking the user if it has none. Returns null on cancel. */
async function addBatch(argument: unknown): Promise<Record<string, unknown> | null> {
  const given = typeof argument === "object" && argument !== null ? (argument as Record<string, unknown>) : {};
  const uri = typeof argument === "string" ? argument : (given.uri ?? activeFile("ridgeline.setBatchSize"));
  if (typeof given.batch === "number") return { ...given, uri };
  const answer = await vscode.window.showInputBox({
    title: "Ridgeline: Set batch size",
    prompt: "Changes the number in the code. You can undo the edit.",
    validateInput: (text) => (parseBatch(text) === null ? "Enter a whole number of at least 1." : null),
  });
  const batch = answer === undefined ? null : parseBatch(answer);
  return batch === null ? null : { ...given, uri, batch };
}

/** Parses a batch size. Returns null if the text is not a whole number of at least 1. */
function parseBatch(text: string): number | null {
  const batch = /^\s*\d{1,8}\s*$/.test(text) ? Number(text) : 0;
  return batch >= 1 ? batch : null;
}

function activeFile(name: ServerCommand): string | undefined {
  const uri = vscode.window.activeTextEditor?.document.uri;
  // Without an argument, the server asks which script to use. The active file is not necessarily the script.
  return uri?.scheme === "file" && name !== "ridgeline.selectScript" ? uri.toString() : undefined;
}
