// The page's content before the first measurement.

import type { Status } from "./document";
import { element } from "./dom";

export function emptyState(status: Status, hasEditor: boolean): HTMLElement[] {
  const { title, text } = hasEditor ? words(status) : WITHOUT_EDITOR;
  return [element("h2", {}, title), ...text.filter(Boolean).map((line) => element("p", {}, line))];
}

const WITHOUT_EDITOR = {
  title: "No measurements yet",
  text: ["Run `ridgeline profile` in the project. The results appear here when it finishes."],
};

function words(status: Status): { title: string; text: string[] } {
  switch (status.state) {
    case "waiting_for_trust":
      return {
        title: "Waiting for permission to run",
        text: [
          "Ridgeline runs code of this workspace only with your permission. Answer the question in your editor, or press “Profile now” to be asked again.",
        ],
      };
    case "preparing":
    case "running":
      return {
        title: "First run",
        text: [
          "Ridgeline runs a few training iterations and shows here what each line costs.",
          "The first run takes longest because it imports the project's packages. Later runs reuse the imports.",
        ],
      };
    case "failed":
      return {
        title: "Run failed",
        text: [status.message ?? "", "Fix the script and save it, or press “Profile now”."],
      };
    case "paused":
      return {
        title: "Paused",
        text: ["No measurements yet, and profiling on save is paused. Press “Resume” or “Profile now”."],
      };
    default:
      return {
        title: "No measurements yet",
        text: ["Save your training script or press “Profile now” to profile a few iterations."],
      };
  }
}
