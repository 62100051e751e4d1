// A link to a source line: a click opens the line in the editor, hovering highlights it there.

import type { Actions } from "./actions";
import { button, element } from "./dom";
import type { Place } from "./values";

export function placeLink(place: Place | null, label: string, actions: Actions): HTMLElement {
  if (!actions.canJump(place)) return element("span", { class: "mono" }, label);
  const link = button(label, { class: "link mono" }, () => {
    actions.jump(place);
  });
  for (const event of ["pointerenter", "focus"]) link.addEventListener(event, () => { actions.highlight(place); });
  for (const event of ["pointerleave", "blur"]) link.addEventListener(event, () => { actions.highlight(null); });
  return link;
}
