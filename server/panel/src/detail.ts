// The strip below a chart with all details of the selection, and a button that opens its line.

import type { Actions } from "./actions";
import type { Part, Place } from "./document";
import { button, element, fill } from "./dom";
import { duration, percent } from "./format";
import { placeLink } from "./place_link";
import { shareBar } from "./table";
import type { Note } from "./tooltip";

const KINDS: [string, string][] = [
  ["expression", "on this line"],
  ["caller", "called from"],
  ["layer", "by layer"],
];

export function showDetail(
  root: HTMLElement,
  note: Note,
  place: Place | null,
  actions: Actions,
  parts: readonly Part[] = [],
): void {
  // Skip identical content: a screen reader announces every insertion.
  const key = JSON.stringify([note, place, parts, actions.canJump(place)]);
  if (root.dataset.shown === key) return;
  root.dataset.shown = key;
  const { title, about, facts } = note;
  const list = element("dl");
  for (const [label, value] of facts) list.append(element("div", {}, element("dt", {}, label), element("dd", {}, value)));
  const tables = KINDS.map(([kind, caption]) => {
    const own = parts.filter((part) => part.kind === kind);
    return own.length > 0 && partsTable(caption, own, actions);
  });
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
    parts.length > 0 && element("div", { class: "parts" }, ...tables),
  );
}

/** The parts of one kind, with their times and their shares of the sum. */
function partsTable(caption: string, parts: readonly Part[], actions: Actions): HTMLElement {
  const sum = parts.reduce((total, part) => total + part.timeNs, 0);
  const rows = parts.map((part) => {
    const share = sum > 0 ? part.timeNs / sum : 0;
    return element(
      "tr",
      {},
      element("td", {}, placeLink(part.place, part.name, actions)),
      element("td", { class: "number" }, duration(part.timeNs)),
      element("td", { class: "number" }, shareBar(share, percent(share))),
    );
  });
  return element("table", {}, element("caption", {}, caption), element("tbody", {}, ...rows));
}
