// The strip under a chart that says everything of what is selected, and opens its line.

import type { Actions } from "./actions";
import type { Place } from "./document";
import { button, element, fill } from "./dom";
import type { Note } from "./tooltip";

export function showDetail(root: HTMLElement, { title, about, facts }: Note, place: Place | null, actions: Actions): void {
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
