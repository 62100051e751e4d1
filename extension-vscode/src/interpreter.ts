// The interpreter selected in the Python extension, if that is installed.

import { PVSC_EXTENSION_ID, PythonExtension } from "@vscode/python-extension";
import * as vscode from "vscode";

export class ActiveInterpreter implements vscode.Disposable {
  private path: string | undefined;
  private readonly changed = new vscode.EventEmitter<void>();
  private readonly subscriptions: { dispose(): unknown }[] = [this.changed];

  /** Fires when the selected interpreter changes. */
  readonly onDidChange = this.changed.event;

  constructor(private readonly log: vscode.LogOutputChannel) {}

  /** Follows the Python extension's selection. Do not await this: that extension may take seconds to start. */
  async follow(): Promise<void> {
    if (vscode.extensions.getExtension(PVSC_EXTENSION_ID) === undefined) {
      this.log.info("the Python extension is not installed; the server finds the interpreter");
      return;
    }
    try {
      const { environments } = await PythonExtension.api();
      const update = async (): Promise<void> => {
        const path = await activeInterpreter(environments);
        if (path !== this.path) {
          this.path = path;
          this.log.info(`interpreter of the Python extension: ${path ?? "none"}`);
          this.changed.fire();
        }
      };
      const updateOrLog = (): void => {
        update().catch((error: unknown) => {
          this.log.warn(`the Python extension did not report its interpreter: ${String(error)}`);
        });
      };
      this.subscriptions.push(
        environments.onDidChangeActiveEnvironmentPath(updateOrLog),
        vscode.workspace.onDidChangeWorkspaceFolders(updateOrLog),
      );
      await update();
    } catch (error) {
      this.log.warn(`the Python extension did not report its interpreter: ${String(error)}`);
    }
  }

  /** Returns the `ridgeline` settings, with this interpreter if the user has set none. */
  fillIn(section: unknown): unknown {
    if (this.path === undefined || typeof section !== "object" || section === null) {
      return section;
    }
    const set = (section as { interpreter?: unknown }).interpreter;
    return typeof set === "string" && set.trim() !== "" ? section : { ...section, interpreter: this.path };
  }

  dispose(): void {
    vscode.Disposable.from(...this.subscriptions).dispose();
  }
}

/**
 * Returns the interpreter that all folders share. The setting holds one interpreter for all of them. If they differ,
 * none is passed on, and the server finds the interpreter of each project.
 */
async function activeInterpreter(environments: PythonExtension["environments"]): Promise<string | undefined> {
  const folders = vscode.workspace.workspaceFolders?.map((folder) => folder.uri) ?? [undefined];
  const paths = await Promise.all(
    folders.map(async (folder) => {
      const environment = await environments.resolveEnvironment(environments.getActiveEnvironmentPath(folder));
      return environment?.executable.uri?.fsPath;
    }),
  );
  const [first] = paths;
  return paths.every((path) => path === first) ? first : undefined;
}
