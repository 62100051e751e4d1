// Activates and deactivates the extension. Anything the server knows is not duplicated here.

import * as vscode from "vscode";

import { Server } from "./client";
import { registerCommands } from "./commands";
import { Heat } from "./heat";
import { Highlights } from "./highlight";
import { ActiveInterpreter } from "./interpreter";
import { Panels } from "./panel";
import { StatusBar } from "./status_bar";

let server: Server | undefined;

/** Awaits nothing, so that neither the server nor another extension can delay VS Code. */
export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Ridgeline", { log: true });
  const interpreter = new ActiveInterpreter(log);
  server = new Server(context.extensionUri, interpreter, log);
  const started = server;
  const bar = new StatusBar(started);
  context.subscriptions.push(
    log,
    interpreter,
    started,
    bar,
    new Heat(started),
    new Highlights(started),
    new Panels(started, context.extensionUri, log),
    registerCommands(started, bar, log),
    interpreter.onDidChange(() => void started.settingsChanged()),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("ridgeline.server.path")) {
        void started.restart();
      }
    }),
  );
  void started.restart();
  void interpreter.follow();
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}
