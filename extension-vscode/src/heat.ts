// The heat strip: a thin line beside the statements that cost most, and marks in the overview ruler.

import * as vscode from "vscode";

import type { Server } from "./client";
import { LEVELS, heatLevel } from "./heat_level";
import type { HeatStatement } from "./lsp_ext";

/** After an edit, the server is asked when nothing was typed for so long, in milliseconds. */
const PAUSE = 300;

/** The editor moves decorations with their text until the server has told where the statements are now. */
export class Heat implements vscode.Disposable {
  /** One decoration for each level, the coldest first; the first is that of stale statements. */
  private readonly decorations = [decoration("ridgeline.heatStale"), ...LEVELS.map((_, i) => decoration(`ridgeline.heat${(i + 1).toString()}`))];
  private readonly subscriptions: { dispose(): unknown }[] = [...this.decorations];
  private readonly asking = new Map<vscode.TextEditor, vscode.CancellationTokenSource>();
  private readonly waiting = new Map<vscode.TextDocument, NodeJS.Timeout>();
  private measured = "";

  constructor(private readonly server: Server) {
    this.subscriptions.push(
      server.onDidChange(() => {
        this.updateWhereMeasuredAnew();
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
    this.waiting.forEach(clearTimeout);
    this.asking.forEach((source) => {
      source.cancel();
    });
    vscode.Disposable.from(...this.subscriptions).dispose();
  }

  /** Progress of a run is a change of status as well, and none of the heat. */
  private updateWhereMeasuredAnew(): void {
    const headlines = [...this.server.statuses.values()].map((status) => [status.root, status.state, status.headline]);
    const measured = JSON.stringify([this.server.state, headlines]);
    if (measured !== this.measured) {
      this.measured = measured;
      this.updateAll();
    }
  }

  private updateSoon(document: vscode.TextDocument): void {
    clearTimeout(this.waiting.get(document));
    const timer = setTimeout(() => {
      this.waiting.delete(document);
      this.updateAll(document);
    }, PAUSE);
    this.waiting.set(document, timer);
  }

  private updateAll(document?: vscode.TextDocument): void {
    const shown = vscode.window.visibleTextEditors;
    for (const [editor, source] of this.asking) {
      if (!shown.includes(editor)) {
        source.cancel();
        this.asking.delete(editor);
      }
    }
    for (const editor of shown) {
      const { languageId, uri } = editor.document;
      const isOurs = languageId === "python" && uri.scheme === "file";
      if (isOurs && (document === undefined || editor.document === document)) {
        void this.update(editor);
      }
    }
  }

  private async update(editor: vscode.TextEditor): Promise<void> {
    this.asking.get(editor)?.cancel();
    const source = new vscode.CancellationTokenSource();
    this.asking.set(editor, source);
    const enabled = vscode.workspace.getConfiguration("ridgeline", editor.document).get<boolean>("heat.enable", true);
    const version = editor.document.version;
    const statements = enabled ? await this.server.heat(editor.document, source.token) : [];
    // Positions of an older text would mark other lines; the edit that made it older asks again.
    if (source.token.isCancellationRequested || editor.document.version !== version) {
      return;
    }
    this.asking.delete(editor);
    this.draw(editor, statements);
  }

  private draw(editor: vscode.TextEditor, statements: HeatStatement[]): void {
    this.decorations.forEach((type, level) => {
      const ranges = statements.filter((statement) => levelOf(statement) === level).map(({ range }) => this.server.range(range));
      editor.setDecorations(type, ranges);
    });
  }
}

/** The index of the statement's decoration; -1 where it has none. */
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
