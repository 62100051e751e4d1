// Costs that belong to no line, and notes on the recording.

import type { Recording } from "./document";
import { coded, element, fill } from "./dom";
import { duration, percent } from "./format";

/** Longer lists start collapsed. */
const SHORT = 5;

export function showNotes(root: HTMLElement, recording: Recording): void {
  const share = (time: number) => (recording.durationNs > 0 ? percent(time / recording.durationNs) : "");
  // Keep lists expanded that the user expanded.
  const open = new Set([...root.querySelectorAll("details[open]")].map(({ id }) => id));
  const folded = (id: string, title: string, items: Node[]) => {
    if (items.length === 0) return null;
    const list = element("ul", { class: "plain" }, ...items);
    if (items.length <= SHORT) return element("div", {}, element("h3", {}, title), list);
    return element("details", { id, open: open.has(id) }, element("summary", {}, `${title} (${items.length})`), list);
  };
  fill(
    root,
    folded(
      "untracked",
      "Not attributed to your code",
      recording.untracked.map(({ name, timeNs }) =>
        element("li", {}, `${name} `, element("b", {}, duration(timeNs)), element("span", { class: "quiet" }, ` ${share(timeNs)}`)),
      ),
    ),
    folded(
      "remarks",
      "Notes",
      recording.notes.map((note) => element("li", {}, ...coded(note))),
    ),
  );
}
