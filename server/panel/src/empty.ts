// What shows while nothing has been measured.

import type { Status } from "./document";
import { element } from "./dom";

export function emptyState(status: Status, hasEditor: boolean): HTMLElement[] {
  const { title, text } = hasEditor ? words(status) : WITHOUT_EDITOR;
  return [element("h2", {}, title), ...text.filter(Boolean).map((line) => element("p", {}, line))];
}

const WITHOUT_EDITOR = {
  title: "Nothing is measured yet",
  text: ["Run `ridgeline profile` in the project: what it measures shows here as soon as it is done."],
};

function words(status: Status): { title: string; text: string[] } {
  switch (status.state) {
    case "waiting_for_trust":
      return {
        title: "Waiting for your consent",
        text: [
          "Nothing of this workspace runs before you allowed it once. Answer the question in your editor, or press “Profile now” to be asked again.",
        ],
      };
    case "preparing":
    case "running":
      return {
        title: "Running for the first time",
        text: [
          "Ridgeline runs a few iterations of your training loop and shows here what each line costs.",
          "The first run takes longest: it imports what the project imports. Later ones start from there.",
        ],
      };
    case "failed":
      return {
        title: "The run failed",
        text: [status.message ?? "", "Mend the script and save it, or press “Profile now”."],
      };
    case "paused":
      return {
        title: "Paused",
        text: ["Nothing is measured yet, and saving starts no run. Press “Resume” or “Profile now”."],
      };
    default:
      return {
        title: "Nothing is measured yet",
        text: ["Save your training script, or press “Profile now”: a few iterations run, and their costs show here."],
      };
  }
}
