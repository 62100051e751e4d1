// The life of the connection to the server: found, started, watched, restarted, stopped. Whoever shows something of
// it listens to its events.

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
  /** Starts and stops happen one after the other, in the order in which they were asked for. */
  private turn: Promise<void> = Promise.resolve();
  private readonly statusesByRoot = new Map<string, Status>();

  private readonly changed = new vscode.EventEmitter<void>();
  private readonly panelOpened = new vscode.EventEmitter<OpenPanel>();
  private readonly highlighted = new vscode.EventEmitter<Highlight>();

  /** The server's state or a folder's status is another. */
  readonly onDidChange = this.changed.event;
  /** The panel is to be shown. */
  readonly onDidOpenPanel = this.panelOpened.event;
  /** The panel points somewhere. */
  readonly onDidHighlight = this.highlighted.event;

  constructor(
    private readonly extension: vscode.Uri,
    private readonly interpreter: ActiveInterpreter,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  get state(): ServerState {
    return this.current;
  }

  /** By the path of their folder. */
  get statuses(): ReadonlyMap<string, Status> {
    return this.statusesByRoot;
  }

  /** Starts the server, or starts it anew. Never fails: what goes wrong is shown. */
  restart(): Promise<void> {
    this.turn = this.turn.then(async () => {
      await this.end();
      await this.begin();
    });
    return this.turn;
  }

  /** Ends the server. */
  stop(): Promise<void> {
    this.turn = this.turn.then(() => this.end());
    return this.turn;
  }

  /** The server reads its settings again. One that is not there yet reads them when it is. */
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

  /** Runs a command of the server; waits for a server that is starting. */
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

  /** The names of the GPUs that can be estimated for; none where there is no server. */
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

  /** The hottest statements of a document; none where there is no server. */
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

  /** From the protocol's range to the editor's. */
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
      // The question stays on the screen for as long as the person likes; nothing waits for its answer.
      void this.showProblem(found.problem);
      return;
    }
    this.log.info(`starting ${found.command} (from ${found.from})`);
    const client = new LanguageClient("ridgeline", "Ridgeline", { command: found.command, args: ["lsp"] }, this.options());
    client.registerFeature(new OwnCommands());
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
      documentSelector: [{ scheme: "file", language: "python" }],
      outputChannel: this.log,
      middleware,
      // Links in hovers apply optimizations, and nothing else. What programs say is escaped there.
      markdown: { isTrusted: { enabledCommands: ["ridgeline.applyWhatIf"] } },
      synchronize: { configurationSection: "ridgeline" },
      initializationOptions: {
        ...asObject(this.interpreter.fillIn(vscode.workspace.getConfiguration("ridgeline"))),
        // VS Code's trust speaks of opening a folder, not of running its training loop on each save: the server
        // asks for that itself, once.
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

/** The commands are registered by the extension itself, so that they are there before the server is. */
class OwnCommands implements StaticFeature {
  fillClientCapabilities(capabilities: { experimental?: unknown }): void {
    capabilities.experimental = { ...asObject(capabilities.experimental), ridgeline: EXPERIMENTAL };
  }

  preInitialize(capabilities: ServerCapabilities): void {
    delete capabilities.executeCommandProvider;
  }

  initialize(): void {
    // There is nothing of its own to set up.
  }

  getState(): FeatureState {
    return { kind: "static" };
  }

  clear(): void {
    // It holds nothing.
  }
}

function asObject(value: unknown): object {
  return typeof value === "object" && value !== null ? value : {};
}

/** What a failed request says to a person. */
export function errorText(error: unknown): string {
  return error instanceof ResponseError || error instanceof Error ? error.message : String(error);
}
