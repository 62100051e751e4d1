// The connection to the server: finds the binary, starts, restarts and stops it. Views subscribe to its events.

import * as vscode from "vscode";
import {
  DidChangeConfigurationNotification,
  ExecuteCommandRequest,
  LanguageClient,
  ResponseError,
  State as ClientState,
  type FeatureState,
  type LanguageClientOptions,
  type Middleware,
  type ServerCapabilities,
  type StaticFeature,
} from "vscode-languageclient/node";

import type { ActiveInterpreter } from "./interpreter";
import {
  EXPERIMENTAL,
  GPUS,
  HEAT,
  HIGHLIGHT,
  OPEN_PANEL,
  STATUS,
  type HeatStatement,
  type Highlight,
  type OpenPanel,
  type ServerCommand,
  type Status,
} from "./lsp_ext";
import { progressOf } from "./progress";
import { findServer } from "./server_path";
import { showDocument } from "./show_document";
import type { ServerState } from "./status_text";

export class Server implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private current: ServerState = "stopped";
  /** The last start or stop. They run one at a time, in the order of the requests. */
  private turn: Promise<void> = Promise.resolve();
  private readonly statusesByRoot = new Map<string, Status>();

  private readonly changed = new vscode.EventEmitter<void>();
  private readonly panelOpened = new vscode.EventEmitter<OpenPanel>();
  private readonly highlighted = new vscode.EventEmitter<Highlight>();

  /** Fires when the server's state or a folder's status changes. */
  readonly onDidChange = this.changed.event;
  /** Fires when the server asks to show a panel. */
  readonly onDidOpenPanel = this.panelOpened.event;
  /** Fires when the line highlighted from the panel changes. */
  readonly onDidHighlight = this.highlighted.event;

  constructor(
    private readonly extension: vscode.Uri,
    private readonly interpreter: ActiveInterpreter,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  get state(): ServerState {
    return this.current;
  }

  /** Statuses by folder path. */
  get statuses(): ReadonlyMap<string, Status> {
    return this.statusesByRoot;
  }

  /** Starts or restarts the server. Never rejects: errors are shown to the user. */
  restart(): Promise<void> {
    this.turn = this.turn.then(async () => {
      await this.end();
      await this.begin();
    });
    return this.turn;
  }

  stop(): Promise<void> {
    this.turn = this.turn.then(() => this.end());
    return this.turn;
  }

  /** Asks a running server to reload its settings. A server that is not running loads them when it starts. */
  async settingsChanged(): Promise<void> {
    if (this.current !== "ready") {
      return;
    }
    try {
      await this.client?.sendNotification(DidChangeConfigurationNotification.type, { settings: null });
    } catch (error) {
      this.log.warn(`could not send the new settings to the server: ${errorText(error)}`);
    }
  }

  /** Runs a server command. Waits for a server that is still starting. */
  async execute(command: ServerCommand, argument: unknown): Promise<unknown> {
    await this.turn;
    if (this.client === undefined || this.current !== "ready") {
      await this.showProblem(
        this.current === "missing" ? "The Ridgeline server was not found." : "The Ridgeline server is not running.",
      );
      return undefined;
    }
    const arguments_ = argument === undefined ? [] : [argument];
    return this.client.sendRequest(ExecuteCommandRequest.type, { command, arguments: arguments_ });
  }

  /** Returns the names of the GPUs that the server can estimate for. Empty if no server is running. */
  async gpus(): Promise<string[]> {
    if (this.client === undefined || this.current !== "ready") {
      return [];
    }
    try {
      return await this.client.sendRequest<string[]>(GPUS);
    } catch (error) {
      this.log.warn(`ridgeline/gpus: ${String(error)}`);
      return [];
    }
  }

  /** Returns the most expensive statements of a document. Empty if no server is running. */
  async heat(document: vscode.TextDocument, cancel: vscode.CancellationToken): Promise<HeatStatement[]> {
    if (this.client === undefined || this.current !== "ready") {
      return [];
    }
    const textDocument = { uri: this.client.code2ProtocolConverter.asUri(document.uri) };
    try {
      return await this.client.sendRequest<HeatStatement[]>(HEAT, { textDocument }, cancel);
    } catch (error) {
      if (!cancel.isCancellationRequested) {
        this.log.warn(`ridgeline/heat: ${String(error)}`);
      }
      return [];
    }
  }

  /** Converts an LSP range to a VS Code range. */
  range(range: HeatStatement["range"]): vscode.Range {
    return new vscode.Range(range.start.line, range.start.character, range.end.line, range.end.character);
  }

  dispose(): void {
    this.changed.dispose();
    this.panelOpened.dispose();
    this.highlighted.dispose();
  }

  private async begin(): Promise<void> {
    this.become("starting");
    const found = await findServer({
      configured: vscode.workspace.getConfiguration("ridgeline").get("server.path", ""),
      extension: this.extension.fsPath,
      path: process.env.PATH ?? "",
      platform: process.platform,
    });
    if ("problem" in found) {
      this.become("missing");
      // Not awaited: the message may stay open for any length of time.
      void this.showProblem(found.problem);
      return;
    }
    this.log.info(`starting ${found.command} (from ${found.from})`);
    const client = new LanguageClient("ridgeline", "Ridgeline", { command: found.command, args: ["lsp"] }, this.options());
    client.registerFeature(new CommandRegistration());
    client.onNotification(STATUS, (status: Status) => {
      this.statusesByRoot.set(vscode.Uri.parse(status.root).fsPath, status);
      this.changed.fire();
    });
    client.onNotification(OPEN_PANEL, (panel: OpenPanel) => {
      this.panelOpened.fire(panel);
    });
    client.onNotification(HIGHLIGHT, (highlight: Highlight) => {
      this.highlighted.fire(highlight);
    });
    client.onDidChangeState(({ newState }) => {
      if (client === this.client) {
        this.statusesByRoot.clear();
        this.become(newState === ClientState.Running ? "ready" : newState === ClientState.Stopped ? "stopped" : "starting");
      }
    });
    this.client = client;
    try {
      await client.start();
    } catch (error) {
      this.become("stopped");
      this.log.error(`the server did not start: ${String(error)}`);
      void this.showProblem(`The Ridgeline server did not start: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  private async end(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    this.statusesByRoot.clear();
    this.become("stopped");
    try {
      await client?.dispose();
    } catch (error) {
      this.log.warn(`the server did not stop: ${String(error)}`);
    }
  }

  private become(state: ServerState): void {
    this.current = state;
    this.changed.fire();
  }

  private options(): LanguageClientOptions {
    const middleware: Middleware = {
      handleWorkDoneProgress: progressOf(() => this.client),
      window: { showDocument: (params) => showDocument(params, this.log) },
      workspace: {
        configuration: async (params, token, next) => {
          const answers = await next(params, token);
          return Array.isArray(answers) ? answers.map((section: unknown) => this.interpreter.fillIn(section)) : answers;
        },
      },
    };
    return {
      documentSelector: [
        { scheme: "file", language: "python" },
        { scheme: "vscode-notebook-cell", notebook: "jupyter-notebook", language: "python" },
      ],
      outputChannel: this.log,
      middleware,
      // Links in hovers may only apply optimizations. The server escapes program output in hovers.
      markdown: { isTrusted: { enabledCommands: ["ridgeline.applyWhatIf"] } },
      synchronize: { configurationSection: "ridgeline" },
      initializationOptions: {
        ...asObject(this.interpreter.fillIn(vscode.workspace.getConfiguration("ridgeline"))),
        // VS Code's workspace trust covers opening a folder, not running its training loop on every save. The
        // server asks for that separately, once.
        trusted: false,
      },
    };
  }

  private async showProblem(problem: string): Promise<void> {
    const install = "How to Install";
    const settings = "Open Settings";
    const retry = "Try Again";
    this.log.error(problem);
    const chosen = await vscode.window.showErrorMessage(problem, install, settings, retry);
    if (chosen === install) {
      await vscode.commands.executeCommand("ridgeline.openWalkthrough");
    } else if (chosen === settings) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "ridgeline.server.path");
    } else if (chosen === retry) {
      await this.restart();
    }
  }
}

/** Stops the client from registering the server's commands: the extension does so before the server starts. */
class CommandRegistration implements StaticFeature {
  fillClientCapabilities(capabilities: { experimental?: unknown }): void {
    capabilities.experimental = { ...asObject(capabilities.experimental), ridgeline: EXPERIMENTAL };
  }

  preInitialize(capabilities: ServerCapabilities): void {
    delete capabilities.executeCommandProvider;
  }

  initialize(): void {
    // Nothing to set up.
  }

  getState(): FeatureState {
    return { kind: "static" };
  }

  clear(): void {
    // No state to clear.
  }
}

function asObject(value: unknown): object {
  return typeof value === "object" && value !== null ? value : {};
}

/** Returns the message of a failed request, for display. */
export function errorText(error: unknown): string {
  return error instanceof ResponseError || error instanceof Error ? error.message : String(error);
}
