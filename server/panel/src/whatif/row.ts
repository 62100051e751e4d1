// One optimization in the list: its estimated savings, its lines and its actions.

import type { Actions } from "../actions";
import { coded, button, element } from "../dom";
import { ago, bytes, duration, moment } from "../format";
import type { Estimate } from "../values";
import { measuredSpeedup, speedBar, type Scale } from "./bar";
import type { Prediction, WhatIf, WhatIfs } from "./document";
import { lineLinks } from "./lines";
import { change, measuredWords, reach, reasons, times } from "./words";

export type Action = "apply" | "measure";

/** State shared by all rows. */
export interface Surroundings {
  whatIfs: WhatIfs;
  scale: Scale;
  actions: Actions;
  hasEditor: boolean;
  /** Null in a report, which has no editor. */
  ask: ((row: WhatIf, action: Action) => void) | null;
  /** Reports why a button is disabled. */
  explain: (why: string) => void;
  /** Names of rows whose details are expanded. */
  unfolded: Set<string>;
}

/** The maximum number of lines shown. The rest are in the details. */
const FIRST_LINES = 2;
const MOST_LINES = 50;

export function whatIfRow(row: WhatIf, around: Surroundings): HTMLElement {
  const { whatIfs, scale, actions } = around;
  const measured = row.measured === null ? null : measuredSpeedup(row, row.measured, whatIfs.before.timeNs);
  return element(
    "li",
    { class: "what-if" },
    element("h3", {}, row.title),
    element("p", { class: "speed" }, speedBar(row.speedup, measured, scale), speedWords(row)),
    element(
      "dl",
      { class: "then" },
      fact("Iteration time", ...thenAndNow(whatIfs.before.timeNs, row.timeNs, duration)),
      fact("Peak memory", ...thenAndNow(whatIfs.before.peakBytes, row.peakBytes, bytes)),
      row.lines.length > 0 && fact("Location", lineLinks(row.lines, actions, FIRST_LINES)),
    ),
    row.isResearch ? null : buttons(row, around),
    measuredLine(row, whatIfs.before.timeNs, around.ask !== null),
    details(row, around),
  );
}

/** `~1.84× as fast`, and its range. */
export function speedWords({ speedup }: Prediction): HTMLElement {
  const [value, range] = [times(speedup.value), reach(speedup, times)];
  return element(
    "span",
    { class: "speed-words" },
    element("b", {}, `~${value}`),
    " speedup ",
    range !== value && element("span", { class: "quiet" }, range),
  );
}

/** `102 ms → ~56 ms −45%`. */
export function thenAndNow(now: number | null, then: Estimate | null, write: (value: number) => string): (Node | string)[] {
  if (then === null) return [element("span", { class: "quiet" }, "unknown")];
  const told = `~${write(then.value)}`;
  if (now === null) return [told];
  return [
    element("span", { class: "quiet" }, write(now)),
    element("span", { class: "unseen" }, " becomes "),
    element("span", { class: "quiet", "aria-hidden": "true" }, " → "),
    told,
    element("span", { class: "quiet" }, ` ${change(now, then.value)}`),
  ];
}

function fact(label: string, ...value: (Node | string)[]): HTMLElement {
  return element("div", {}, element("dt", {}, label), element("dd", {}, ...value));
}

function buttons(row: WhatIf, { whatIfs, hasEditor, ask, explain }: Surroundings): HTMLElement | null {
  if (ask === null) return null;
  const why = reasons(row, whatIfs, hasEditor);
  const made = (label: string, reason: string | null, action: Action) => {
    // Not `disabled`: a button that cannot be focused cannot explain why.
    const pressed = () => {
      if (reason === null) ask(row, action);
      else explain(`${row.title}: ${reason}`);
    };
    const attributes = { "aria-disabled": reason === null ? null : "true", title: reason };
    const it = button(label, attributes, pressed);
    it.append(element("span", { class: "unseen" }, ` ${row.title}`));
    return it;
  };
  const again = row.measured === null ? "Measure" : "Measure again";
  return element(
    "div",
    { class: "what-if-buttons" },
    made("Apply", why.apply, "apply"),
    made(whatIfs.measuring === row.name ? "Measuring…" : again, why.measure, "measure"),
  );
}

function measuredLine(row: WhatIf, nowNs: number | null, isLive: boolean): HTMLElement | null {
  const { measured } = row;
  if (measured === null) return null;
  const { time, peak, isWithin } = measuredWords(row, measured, nowNs);
  const { whenMs } = measured;
  const when = whenMs === null ? null : isLive ? ago(whenMs, Date.now()) : moment(whenMs);
  return element(
    "p",
    { class: "what-if-measured" },
    element("span", { class: isWithin ? "badge" : "badge off" }, "measured"),
    [time, peak].filter((part) => part !== null).join(" · "),
    when !== null && element("span", { class: "quiet", title: whenMs === null ? null : moment(whenMs) }, ` · ${when}`),
  );
}

function details(row: WhatIf, { actions, hasEditor, ask, unfolded }: Surroundings): HTMLElement {
  const { timeNs, peakBytes, lines, source, notes, edit } = row;
  const whyNot = !row.isResearch && ask !== null && hasEditor && !edit.possible ? (edit.why ?? "no automatic edit") : null;
  const made = element(
    "details",
    { open: unfolded.has(row.name) },
    element("summary", {}, "Details", element("span", { class: "unseen" }, ` of ${row.title}`)),
    element(
      "dl",
      {},
      timeNs !== null && fact("Iteration time", reach(timeNs, duration)),
      peakBytes !== null && fact("Peak memory", reach(peakBytes, bytes)),
      source !== "" && fact("Source", source),
      lines.length > FIRST_LINES && fact("Lines", lineLinks(lines, actions, MOST_LINES)),
      whyNot !== null && fact("No edit", whyNot),
    ),
    notes.length > 0 && element("ul", { class: "plain" }, ...notes.map((note) => element("li", {}, ...coded(note)))),
  );
  made.addEventListener("toggle", () => {
    if (made.open) unfolded.add(row.name);
    else unfolded.delete(row.name);
  });
  return made;
}
