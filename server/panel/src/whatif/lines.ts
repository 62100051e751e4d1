// The lines that an optimization changes, as links to the editor.

import type { Actions } from "../actions";
import { element } from "../dom";
import { counted } from "../format";
import { placeLink } from "../place_link";
import type { Place } from "../values";

export function lineLinks(lines: readonly Place[], actions: Actions, most: number): HTMLElement {
  const shown = lines.slice(0, most);
  const more = lines.length - shown.length;
  const links = shown.flatMap((place, at) => [at > 0 && ", ", placeLink(place, actions.placeName(place), actions)]);
  return element("span", { class: "lines" }, ...links, more > 0 && element("span", { class: "quiet" }, ` and ${counted(more, "more line")}`));
}
