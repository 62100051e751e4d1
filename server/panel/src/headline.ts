// The headline numbers as cards, with what changed.

import type { Change, Recording } from "./document";
import { element, fill } from "./dom";

export function showHeadline(root: HTMLElement, recording: Recording): void {
  const { last, head } = recording.changesAgainst;
  fill(
    root,
    ...recording.headline.map(({ label, text, sinceLast, sinceHead }) =>
      element(
        "li",
        { class: "card" },
        element("span", { class: "label" }, label),
        element("span", { class: "value" }, text),
        change(sinceLast, "since the last run", last),
        change(sinceHead, head === null ? "since HEAD" : `since HEAD ${head}`, null),
      ),
    ),
  );
}

// The word says what the colour says; "same" needs none.
function change(change: Change | null, since: string, title: string | null): HTMLElement | null {
  if (change === null) return null;
  const { text, verdict } = change;
  return element(
    "span",
    { class: "change", title },
    element("b", { class: verdict }, verdict === "same" ? text || "same" : `${text} ${verdict}`),
    ` ${since}`,
  );
}
