// The panel: the server's page in a webview next to the editor, one per workspace folder.

import { randomBytes } from "node:crypto";
import { basename } from "node:path";

import * as vscode from "vscode";

import { errorText, type Server } from "./client";
import type { OpenPanel } from "./lsp_ext";
import { PanelBridge } from "./panel_bridge";
import { panelDocument, waitingDocument, type PanelState, type Theme, type ThemeMessage } from "./panel_html";

const VIEW_TYPE = "ridgeline.panel";

export class Panels implements vscode.Disposable, vscode.WebviewPanelSerializer<PanelState> {
  /** Panels by folder URI. */
  private readonly panels = new Map<string, vscode.WebviewPanel>();
  private readonly bridges = new Map<vscode.WebviewPanel, PanelBridge>();
  private readonly subscriptions: { dispose(): unknown }[] = [];
  private wasReady = false;

  constructor(
    private readonly server: Server,
    private readonly extension: vscode.Uri,
    private readonly log: vscode.LogOutputChannel,
  ) {
    this.subscriptions.push(
      vscode.window.registerWebviewPanelSerializer(VIEW_TYPE, this),
      server.onDidOpenPanel((panel) => {
        this.show(panel).catch((error: unknown) => {
          this.log.error(`could not open the panel: ${errorText(error)}`);
          void vscode.window.showErrorMessage(`Ridgeline: could not open the panel: ${errorText(error)}`);
        });
      }),
      server.onDidChange(() => {
        this.followServer();
      }),
      vscode.window.onDidChangeActiveColorTheme(() => {
        const message: ThemeMessage = { theme: theme() };
        this.panels.forEach((panel) => void panel.webview.postMessage(message));
      }),
    );
  }

  /** Restores a panel that was open when the window was closed. */
  async deserializeWebviewPanel(panel: vscode.WebviewPanel, state: PanelState | undefined): Promise<void> {
    // VS Code may have saved the panel before its page saved its state.
    const root = typeof state?.root === "string" ? state.root : folderOf(panel.title);
    if (root === undefined) {
      panel.dispose();
      return;
    }
    this.adopt(root, panel);
    // Otherwise `followServer` requests the panel once the server is ready.
    if (this.server.state === "ready") {
      await this.requestPanel(root);
    }
  }

  dispose(): void {
    vscode.Disposable.from(...this.subscriptions, ...this.panels.values()).dispose();
  }

  private async show({ uri, root: served }: OpenPanel): Promise<void> {
    // Normalized by VS Code: the server may escape other characters.
    const root = vscode.Uri.parse(served).toString();
    const panel = this.panels.get(root) ?? this.create(root);
    const address = new URL(uri);
    const post = (message: unknown) => void panel.webview.postMessage(message);
    const bridge = new PanelBridge(address, post, (name, content) => saveFile(vscode.Uri.parse(root), name, content));
    this.bridges.get(panel)?.dispose();
    this.bridges.set(panel, bridge);
    panel.webview.html = panelDocument({
      page: await bridge.page(),
      workspace: Number(address.searchParams.get("workspace") ?? 0),
      theme: theme(),
      nonce: randomBytes(16).toString("hex"),
      state: { root },
    });
    panel.reveal(undefined, true);
  }

  private create(root: string): vscode.WebviewPanel {
    const title = titleOf(vscode.Uri.parse(root));
    // Keep the focus in the editor, where the user most likely continues.
    const column = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
    // Reloading the page would lose drill-down and search.
    const options = { retainContextWhenHidden: true };
    const panel = vscode.window.createWebviewPanel(VIEW_TYPE, title, column, options);
    this.adopt(root, panel);
    return panel;
  }

  private adopt(root: string, panel: vscode.WebviewPanel): void {
    panel.iconPath = vscode.Uri.joinPath(this.extension, "media", "icon.png");
    panel.webview.options = { enableScripts: true, localResourceRoots: [] };
    panel.webview.html = waitingDocument("The server is starting.");
    panel.webview.onDidReceiveMessage((message: object) => this.bridges.get(panel)?.receive(message));
    panel.onDidDispose(() => {
      this.panels.delete(root);
      this.bridges.get(panel)?.dispose();
      this.bridges.delete(panel);
    });
    this.panels.set(root, panel);
  }

  /** Reconnects the panels after a server restart: every server process has another URL. */
  private followServer(): void {
    const isReady = this.server.state === "ready";
    if (isReady === this.wasReady) {
      return;
    }
    this.wasReady = isReady;
    for (const [root, panel] of this.panels) {
      if (isReady) {
        void this.requestPanel(root);
      } else {
        this.bridges.get(panel)?.dispose();
        this.bridges.delete(panel);
        panel.webview.html = waitingDocument("The server has stopped. The panel reloads when it is back.");
      }
    }
  }

  private async requestPanel(root: string): Promise<void> {
    try {
      await this.server.execute("ridgeline.openPanel", root);
    } catch (error) {
      this.log.error(`could not restore the panel of ${root}: ${errorText(error)}`);
    }
  }
}

function titleOf(folder: vscode.Uri): string {
  return `Ridgeline: ${basename(folder.path)}`;
}

/** Returns the URI of the workspace folder whose panel has this title. */
function folderOf(title: string): string | undefined {
  const folders = vscode.workspace.workspaceFolders ?? [];
  return folders.find(({ uri }) => titleOf(uri) === title)?.uri.toString();
}

/** Saves an export of the page where the user wants it. */
async function saveFile(folder: vscode.Uri, name: string, content: string): Promise<void> {
  const kind = name.slice(name.lastIndexOf(".") + 1);
  const target = await vscode.window.showSaveDialog({
    defaultUri: vscode.Uri.joinPath(folder, name),
    filters: { [kind.toUpperCase()]: [kind] },
  });
  if (target !== undefined) {
    await vscode.workspace.fs.writeFile(target, Buffer.from(content));
  }
}

function theme(): Theme {
  switch (vscode.window.activeColorTheme.kind) {
    case vscode.ColorThemeKind.Light:
      return "light";
    case vscode.ColorThemeKind.Dark:
      return "dark";
    case vscode.ColorThemeKind.HighContrast:
      return "high-contrast";
    case vscode.ColorThemeKind.HighContrastLight:
      return "high-contrast-light";
  }
}
