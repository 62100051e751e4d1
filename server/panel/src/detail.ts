// The strip below a chart with all details of the selection, and a button that opens its line.

import type { Actions } from "./actions";
import type { Place } from "./document";
import { button, element, fill } from "./dom";
import type { Note } from "./tooltip";

export function showDetail(root: HTMLElement, note: Note, place: Place | null, actions: Actions): void {
  // Skip identical content: a screen reader announces every insertion.
  const key = JSON.stringify([note, place, actions.canJump(place)]);
  if (root.dataset.shown === key) return;
  root.dataset.shown = key;
  const { title, about, facts } = note;
  const list = element("dl");
  for (const [label, value] of facts) list.append(element("div", {}, element("dt", {}, label), element("dd", {}, value)));
  fill(
    root,
    element(
      "div",
      { class: "what" },
      element("strong", { class: "mono" }, title),
      about !== "" && element("span", { class: "about" }, about),
    ),
    list,
    actions.canJump(place) &&
      button(`Open ${actions.placeName(place)}`, { class: "open" }, () => {
        actions.jump(place);
      }),
  );
}
