// Highlights the lines that the user points at in the panel.

import * as vscode from "vscode";

import type { Server } from "./client";
import type { Highlight } from "./lsp_ext";

export class Highlights implements vscode.Disposable {
  private readonly decoration = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor("ridgeline.highlightBackground"),
    overviewRulerColor: new vscode.ThemeColor("ridgeline.highlightBackground"),
    overviewRulerLane: vscode.OverviewRulerLane.Full,
  });
  private current: Highlight = { uri: null };
  private readonly subscriptions: { dispose(): unknown }[] = [this.decoration];

  constructor(private readonly server: Server) {
    this.subscriptions.push(
      server.onDidHighlight((highlight) => {
        this.current = highlight;
        this.draw();
      }),
      server.onDidChange(() => {
        if (server.state !== "ready" && this.current.uri !== null) {
          this.current = { uri: null };
          this.draw();
        }
      }),
      vscode.window.onDidChangeVisibleTextEditors(() => {
        this.draw();
      }),
    );
  }

  dispose(): void {
    vscode.Disposable.from(...this.subscriptions).dispose();
  }

  private draw(): void {
    const { uri, range } = this.current;
    const file = uri === null ? undefined : vscode.Uri.parse(uri).toString();
    for (const editor of vscode.window.visibleTextEditors) {
      const here = range !== undefined && editor.document.uri.toString() === file;
      editor.setDecorations(this.decoration, here ? [this.server.range(range)] : []);
    }
  }
}
