// The headline numbers as cards, with their changes.

import type { Change, Recording } from "./document";
import { element, fill, write } from "./dom";

export function showHeadline(root: HTMLElement, caption: HTMLElement, recording: Recording): void {
  fill(
    root,
    ...recording.headline.map(({ label, text, sinceLast, sinceHead }) =>
      element(
        "li",
        { class: "card" },
        element("span", { class: "label" }, label),
        element("span", { class: "value" }, text),
        change(sinceLast, "since last run"),
        change(sinceHead, "since HEAD"),
      ),
    ),
  );
  const { last, head } = recording.changesAgainst;
  const against = [
    last === null ? "" : `“Last run” is ${last}.`,
    head === null ? "" : `“HEAD” is the last run of commit ${head}.`,
  ];
  write(caption, against.filter(Boolean).join(" "));
}

// The word repeats the meaning of the colour. "same" needs none.
function change(change: Change | null, since: string): HTMLElement | null {
  if (change === null) return null;
  const { text, verdict } = change;
  return element(
    "span",
    { class: "change" },
    element("b", { class: verdict }, verdict === "better" || verdict === "worse" ? `${text} ${verdict}` : text || "same"),
    ` ${since}`,
    verdict === "same_code" && element("span", { title: "The code has not changed, so the machine was faster or slower." }, " · same code"),
  );
}
