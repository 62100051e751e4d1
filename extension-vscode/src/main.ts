// The extension's way in and out. What the server knows is not repeated here.

import * as vscode from "vscode";
import { LanguageClient, type Executable } from "vscode-languageclient/node";

import { serverPath } from "./server_path";

let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const path = await serverPath(vscode.workspace.getConfiguration("ridgeline").get("server.path"));
  if (path === undefined) {
    void vscode.window.showErrorMessage(
      "Ridgeline: no `ridgeline` binary was found. Build it with `cargo install --path server`, " +
        "or set `ridgeline.server.path`.",
    );
    return;
  }

  // The client adds `--stdio` by itself.
  const server: Executable = { command: path, args: ["lsp"] };
  client = new LanguageClient("ridgeline", "Ridgeline", server, {
    documentSelector: [{ scheme: "file", language: "python" }],
    // VS Code starts this extension in trusted workspaces alone, but its trust speaks of opening a
    // folder, not of running its training loop on each save: the server asks for that itself.
    initializationOptions: { trusted: false },
  });
  context.subscriptions.push(client);
  await client.start();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}
