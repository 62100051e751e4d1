// How a run's progress is shown.

import * as vscode from "vscode";
import {
  WorkDoneProgressCancelNotification,
  type BaseLanguageClient,
  type Middleware,
  type ProgressToken,
} from "vscode-languageclient/node";

/** What the server says of a run that a person asked for; others are told by the file that was saved. */
const ASKED_FOR = "on request";

type Handle = NonNullable<Middleware["handleWorkDoneProgress"]>;

/** A notification that is on the screen. */
interface Shown {
  progress: vscode.Progress<{ message?: string; increment?: number }>;
  percentage: number;
  end: () => void;
}

/**
 * A run that a person asked for shows a notification with a button that cancels it. One that a save started is in the
 * status bar alone, and is stopped there: a notification on every save would be in the way.
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
      if (params.message === ASKED_FOR) {
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
