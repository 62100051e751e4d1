// The status bar item, and the list of actions that a click on it opens.

import * as vscode from "vscode";

import type { Server } from "./client";
import type { Status } from "./lsp_ext";
import { actions, bar, statusOf } from "./status_text";

const COLOURS = {
  none: undefined,
  warning: new vscode.ThemeColor("statusBarItem.warningBackground"),
  error: new vscode.ThemeColor("statusBarItem.errorBackground"),
};

export class StatusBar implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem("ridgeline.status", vscode.StatusBarAlignment.Left, 10);
  private readonly subscriptions: { dispose(): unknown }[] = [this.item];

  constructor(private readonly server: Server) {
    this.item.name = "Ridgeline";
    this.item.command = "ridgeline.showActions";
    this.subscriptions.push(
      server.onDidChange(() => {
        this.update();
      }),
      vscode.window.onDidChangeActiveTextEditor(() => {
        this.update();
      }),
    );
    this.update();
    this.item.show();
  }

  /** Shows the list of actions and runs the chosen one. */
  async showActions(): Promise<void> {
    const status = this.status();
    const title = status?.headline?.text ?? "Ridgeline";
    const chosen = await vscode.window.showQuickPick(actions(this.server.state, status), { title });
    if (chosen !== undefined) {
      await vscode.commands.executeCommand(chosen.command);
    }
    if (chosen?.then !== undefined) {
      await vscode.commands.executeCommand(chosen.then);
    }
  }

  dispose(): void {
    vscode.Disposable.from(...this.subscriptions).dispose();
  }

  private status(): Status | undefined {
    return statusOf(this.server.statuses, vscode.window.activeTextEditor?.document.uri.fsPath);
  }

  private update(): void {
    const status = this.status();
    const { text, tooltip, label, emphasis } = bar(this.server.state, status);
    this.item.text = text;
    this.item.tooltip = new vscode.MarkdownString(tooltip);
    this.item.backgroundColor = COLOURS[emphasis];
    this.item.accessibilityInformation = { label, role: "button" };
    // Context keys for the commands in the palette and the steps of the walkthrough.
    const state = this.server.state === "ready" ? (status?.state ?? "idle") : this.server.state;
    void vscode.commands.executeCommand("setContext", "ridgeline.state", state);
    void vscode.commands.executeCommand("setContext", "ridgeline.measured", status?.headline != null);
  }
}
