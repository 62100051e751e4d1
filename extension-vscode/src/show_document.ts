// Handles `window/showDocument`: opens a file for the server, for example after a click in the panel.

import * as vscode from "vscode";
import type { ShowDocumentParams, ShowDocumentResult } from "vscode-languageclient/node";

/**
 * Shows a document. A file opens in the column where it is already visible, else in the column of a text editor: the
 * active column may hold the panel that was clicked, and the file would cover it.
 */
export async function showDocument(
  params: ShowDocumentParams,
  log: vscode.LogOutputChannel,
): Promise<ShowDocumentResult> {
  const uri = vscode.Uri.parse(params.uri);
  try {
    if (params.external === true) {
      return { success: await vscode.env.openExternal(uri) };
    }
    const { start, end } = params.selection ?? {};
    await vscode.window.showTextDocument(uri, {
      viewColumn: columnFor(uri),
      preserveFocus: params.takeFocus !== true,
      ...(start && end
        ? { selection: new vscode.Range(start.line, start.character, end.line, end.character) }
        : undefined),
    });
    return { success: true };
  } catch (error) {
    log.warn(`could not show ${params.uri}: ${String(error)}`);
    return { success: false };
  }
}

function columnFor(uri: vscode.Uri): vscode.ViewColumn {
  const editors = vscode.window.visibleTextEditors.filter((editor) => editor.viewColumn !== undefined);
  const showing = editors.find((editor) => editor.document.uri.toString() === uri.toString());
  const active = vscode.window.activeTextEditor;
  return (showing ?? active ?? editors[0])?.viewColumn ?? vscode.ViewColumn.One;
}
