// The extension's commands: those of the server, and a few of its own.

import * as vscode from "vscode";

import { errorText, type Server } from "./client";
import { SERVER_COMMANDS, type ServerCommand } from "./lsp_ext";
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
      vscode.commands.registerCommand(name, (argument?: unknown) => execute(server, name, argument, log)),
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

function activeFile(name: ServerCommand): string | undefined {
  const uri = vscode.window.activeTextEditor?.document.uri;
  // Choosing a script without naming one asks which; the file that is open need not be the one.
  return uri?.scheme === "file" && name !== "ridgeline.selectScript" ? uri.toString() : undefined;
}
