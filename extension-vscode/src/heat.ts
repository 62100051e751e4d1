// The heat strip: a thin line next to the most expensive statements, and marks in the overview ruler.

import * as vscode from "vscode";

import type { Server } from "./client";
import { LEVELS, heatLevel } from "./heat_level";
import type { HeatStatement } from "./lsp_ext";

/** Debounce interval between an edit and the next request, in milliseconds. */
const DEBOUNCE_MS = 300;

/** Draws the heat strip. VS Code moves decorations with their text until the server sends new ranges. */
export class Heat implements vscode.Disposable {
  /** One decoration per level, coldest first. Index 0 is for stale statements. */
  private readonly decorations = [decoration("ridgeline.heatStale"), ...LEVELS.map((_, i) => decoration(`ridgeline.heat${(i + 1).toString()}`))];
  private readonly subscriptions: { dispose(): unknown }[] = [...this.decorations];
  private readonly requests = new Map<vscode.TextEditor, vscode.CancellationTokenSource>();
  private readonly timers = new Map<vscode.TextDocument, NodeJS.Timeout>();
  private lastMeasured = "";

  constructor(private readonly server: Server) {
    this.subscriptions.push(
      server.onDidChange(() => {
        this.updateIfMeasured();
      }),
      vscode.window.onDidChangeVisibleTextEditors(() => {
        this.updateAll();
      }),
      vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
        if (contentChanges.length > 0) {
          this.updateSoon(document);
        }
      }),
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration("ridgeline.heat")) {
          this.updateAll();
        }
      }),
    );
  }

  dispose(): void {
    this.timers.forEach(clearTimeout);
    this.requests.forEach((source) => {
      source.cancel();
    });
    vscode.Disposable.from(...this.subscriptions).dispose();
  }

  /** Updates only when the state or headline changed: run progress also changes the status, but not the heat. */
  private updateIfMeasured(): void {
    const headlines = [...this.server.statuses.values()].map((status) => [status.root, status.state, status.headline]);
    const measured = JSON.stringify([this.server.state, headlines]);
    if (measured !== this.lastMeasured) {
      this.lastMeasured = measured;
      this.updateAll();
    }
  }

  private updateSoon(document: vscode.TextDocument): void {
    clearTimeout(this.timers.get(document));
    const timer = setTimeout(() => {
      this.timers.delete(document);
      this.updateAll(document);
    }, DEBOUNCE_MS);
    this.timers.set(document, timer);
  }

  private updateAll(document?: vscode.TextDocument): void {
    const shown = vscode.window.visibleTextEditors;
    for (const [editor, source] of this.requests) {
      if (!shown.includes(editor)) {
        source.cancel();
        this.requests.delete(editor);
      }
    }
    for (const editor of shown) {
      const { languageId, uri } = editor.document;
      const isLocalPython = languageId === "python" && ["file", "vscode-notebook-cell"].includes(uri.scheme);
      if (isLocalPython && (document === undefined || editor.document === document)) {
        void this.update(editor);
      }
    }
  }

  private async update(editor: vscode.TextEditor): Promise<void> {
    this.requests.get(editor)?.cancel();
    const source = new vscode.CancellationTokenSource();
    this.requests.set(editor, source);
    const enabled = vscode.workspace.getConfiguration("ridgeline", editor.document).get<boolean>("heat.enable", true);
    const version = editor.document.version;
    const statements = enabled ? await this.server.heat(editor.document, source.token) : [];
    // Ranges of an older version would mark the wrong lines. The edit that changed the version requests them again.
    if (source.token.isCancellationRequested || editor.document.version !== version) {
      return;
    }
    this.requests.delete(editor);
    this.draw(editor, statements);
  }

  private draw(editor: vscode.TextEditor, statements: HeatStatement[]): void {
    this.decorations.forEach((type, level) => {
      const ranges = statements.filter((statement) => levelOf(statement) === level).map(({ range }) => this.server.range(range));
      editor.setDecorations(type, ranges);
    });
  }
}

/** Returns the index of the statement's decoration, or -1 if it has none. */
function levelOf(statement: HeatStatement): number {
  const level = heatLevel(statement.share);
  if (level === 0) {
    return -1;
  }
  return statement.provenance === "stale" ? 0 : level;
}

function decoration(colour: string): vscode.TextEditorDecorationType {
  const theme = new vscode.ThemeColor(colour);
  return vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    borderColor: theme,
    borderStyle: "solid",
    borderWidth: "0 0 0 3px",
    overviewRulerColor: theme,
    overviewRulerLane: vscode.OverviewRulerLane.Left,
    rangeBehavior: vscode.DecorationRangeBehavior.ClosedClosed,
  });
}
