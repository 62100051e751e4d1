// Shows the progress of runs.

import * as vscode from "vscode";
import {
  WorkDoneProgressCancelNotification,
  type BaseLanguageClient,
  type Middleware,
  type ProgressToken,
} from "vscode-languageclient/node";

/** The message of a run that the user started. Other runs name the saved file instead. */
const ON_REQUEST = "on request";

type Handle = NonNullable<Middleware["handleWorkDoneProgress"]>;

/** A visible notification. */
interface Shown {
  progress: vscode.Progress<{ message?: string; increment?: number }>;
  percentage: number;
  end: () => void;
}

/**
 * Returns a progress handler. A run that the user started shows a notification with a cancel button. A run started by a
 * save only shows in the status bar, where it can be stopped: a notification on every save would be intrusive.
 */
export function progressOf(client: () => BaseLanguageClient | undefined): Handle {
  const shown = new Map<ProgressToken, Shown>();

  const begin = (token: ProgressToken, title: string): void => {
    const options = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
    void vscode.window.withProgress(options, (progress, cancelled) => {
      cancelled.onCancellationRequested(() => {
        void client()?.sendNotification(WorkDoneProgressCancelNotification.type, { token });
      });
      return new Promise<void>((end) => {
        shown.set(token, { progress, percentage: 0, end });
      });
    });
  };

  return (token, params) => {
    if (params.kind === "begin") {
      if (params.message === ON_REQUEST) {
        begin(token, params.title);
      }
      return;
    }
    const run = shown.get(token);
    if (run === undefined) {
      return;
    }
    if (params.kind === "end") {
      run.end();
      shown.delete(token);
      return;
    }
    const percentage = Math.max(run.percentage, params.percentage ?? 0);
    const message = params.message === undefined ? {} : { message: params.message };
    run.progress.report({ ...message, increment: percentage - run.percentage });
    run.percentage = percentage;
  };
}
