// Estimated savings of optimizations: a ranked list, the best combination, those that do not apply, and the choice of
// activations to recompute.

import type { Actions } from "../actions";
import type { Place } from "../document";
import { button, element, fill, write } from "../dom";
import { bytes, counted, duration } from "../format";
import { rememberFocus } from "../focus";
import { Segmented } from "../segmented";
import { ListTable } from "../table";
import { scaleOf } from "./bar";
import type { Prediction, Refusal, WhatIf, WhatIfs } from "./document";
import { Recompute } from "./recompute";
import { speedWords, thenAndNow, whatIfRow, type Action } from "./row";
import { accuracy, isGuess, replay } from "./words";

const FIRST_ROWS = 6;
const MOST_COMBINATIONS = 5;
const ORDERS = [
  { key: "fastest", label: "Fastest first" },
  { key: "smallest", label: "Smallest first" },
];

/** The section's access to the editor. */
export interface Requests {
  /** Applies or measures an optimization. Null in a report. */
  ask: ((name: string, action: Action) => void) | null;
  recompute: ((lines: readonly Place[]) => void) | null;
  explain: (why: string) => void;
}

export class WhatIfSection {
  readonly #message = element("p", { class: "what-if-message", role: "status" });
  readonly #about = element("p", { class: "about-predictions" });
  readonly #notes = element("ul", { class: "plain what-if-notes" });
  readonly #order: Segmented;
  readonly #list = element("ol", { class: "what-if-list" });
  readonly #researchList = element("ol", { class: "what-if-list" });
  readonly #research = element("div", { class: "research" }, element("h3", {}, "Research: published, not available in PyTorch"), this.#researchList);
  readonly #all: HTMLButtonElement;
  readonly #together: ListTable<Prediction>;
  readonly #combinations: HTMLElement;
  readonly #recompute: Recompute;
  readonly #refusals = element("ul", { class: "plain" });
  readonly #refused = element("summary");
  readonly #folded = element("details", {}, this.#refused, this.#refusals);
  readonly #unfolded = new Set<string>();
  #whatIfs: WhatIfs | null = null;
  #hasEditor = false;
  /** Keep the user's choices when a new document arrives. */
  #by = "fastest";
  #open = false;

  constructor(
    root: HTMLElement,
    private readonly actions: Actions,
    private readonly requests: Requests,
  ) {
    this.#order = new Segmented("Sort order of optimizations", (key) => {
      this.#by = key;
      this.#render();
    });
    this.#all = button("", { class: "quiet" }, () => {
      this.#open = !this.#open;
      this.#render();
    });
    this.#together = new ListTable<Prediction>(
      "Best combination",
      [
        { head: "Combination", class: "name", cell: ({ title }) => title },
        { head: "Speedup", class: "speed-cell", cell: speedWords },
        { head: "Iteration time", class: "number", cell: ({ timeNs }) => cell(thenAndNow(this.#whatIfs?.before.timeNs ?? null, timeNs, duration)) },
        { head: "Peak memory", class: "number", cell: ({ peakBytes }) => cell(thenAndNow(this.#whatIfs?.before.peakBytes ?? null, peakBytes, bytes)) },
      ],
      MOST_COMBINATIONS,
    );
    this.#combinations = element("div", {}, element("h3", {}, "Best combination within the memory limit"), this.#together.root);
    this.#recompute = new Recompute(actions, requests);
    fill(
      root,
      this.#message,
      this.#about,
      this.#notes,
      element("div", { class: "toolbar" }, this.#order.root),
      this.#list,
      this.#all,
      this.#combinations,
      this.#recompute.root,
      this.#research,
      this.#folded,
    );
  }

  show(whatIfs: WhatIfs, hasEditor: boolean): void {
    this.#whatIfs = whatIfs;
    this.#hasEditor = hasEditor;
    this.#render();
    this.#together.show(whatIfs.combinations);
    this.#combinations.hidden = whatIfs.combinations.length === 0;
    this.#recompute.show(whatIfs, hasEditor);
    write(this.#refused, `${counted(whatIfs.refusals.length, "optimization")} not applicable, and why`);
    fill(this.#refusals, ...byReason(whatIfs.refusals).map(([why, titles]) => element("li", {}, element("b", {}, titles.join("; ")), `: ${why}`)));
    this.#folded.hidden = whatIfs.refusals.length === 0;
  }

  #render(): void {
    const whatIfs = this.#whatIfs;
    if (whatIfs === null) return;
    const { rows } = whatIfs;
    write(this.#message, said(whatIfs));
    this.#message.hidden = this.#message.textContent === "";
    fill(this.#about, ...about(whatIfs));
    this.#about.hidden = rows.length === 0;
    fill(this.#notes, ...whatIfs.notes.map((note) => element("li", {}, note)));
    this.#notes.hidden = whatIfs.notes.length === 0;
    this.#order.show(ORDERS, this.#by);
    this.#order.root.parentElement!.hidden = rows.length < 2 || rows.every(({ peakBytes }) => peakBytes === null);
    const applicable = ordered(rows.filter(({ isResearch }) => !isResearch), this.#by);
    const shown = applicable.slice(0, this.#open ? undefined : FIRST_ROWS);
    const research = ordered(rows.filter(({ isResearch }) => isResearch), this.#by);
    const { ask, explain } = this.requests;
    const around = {
      whatIfs,
      scale: scaleOf(rows),
      actions: this.actions,
      hasEditor: this.#hasEditor,
      ask: ask === null ? null : (row: WhatIf, action: Action) => { ask(row.name, action); },
      explain,
      unfolded: this.#unfolded,
    };
    const restore = rememberFocus();
    fill(this.#list, ...shown.map((row) => whatIfRow(row, around)));
    fill(this.#researchList, ...research.map((row) => whatIfRow(row, around)));
    restore();
    this.#research.hidden = research.length === 0;
    this.#all.hidden = applicable.length <= FIRST_ROWS;
    write(this.#all, this.#open ? `Show the first ${FIRST_ROWS}` : `Show all ${applicable.length}`);
    this.#all.setAttribute("aria-expanded", String(this.#open));
  }
}

function ordered(rows: readonly WhatIf[], by: string): WhatIf[] {
  if (by !== "smallest") return [...rows];
  const size = ({ peakBytes }: WhatIf) => peakBytes?.value ?? Infinity;
  return [...rows].sort((a, b) => (size(a) === size(b) ? 0 : size(a) - size(b)));
}

/** Groups refusals by reason, so that a missing GPU is reported only once. */
function byReason(refusals: readonly Refusal[]): [why: string, titles: string[]][] {
  const groups = new Map<string, string[]>();
  for (const { title, why } of refusals) groups.set(why, [...(groups.get(why) ?? []), title]);
  return [...groups];
}

/** Returns the current activity, or why the list is empty. */
function said({ message, rows }: WhatIfs): string {
  return message ?? (rows.length === 0 ? "No known optimization applies to this iteration." : "");
}

function about(whatIfs: WhatIfs): (Node | string)[] {
  const { before } = whatIfs;
  const now = [before.timeNs === null ? "" : `${duration(before.timeNs)} per iteration`, before.peakBytes === null ? "" : `${bytes(before.peakBytes)} peak memory`];
  const told = now.filter(Boolean).join(", ");
  return [
    told === "" ? "" : `Now ${told}. Speedup is in samples per second. ~ = simulated from the recorded step; ranges go from the worst to the best expected case. `,
    element(isGuess(whatIfs) ? "b" : "span", { class: isGuess(whatIfs) ? "worse" : null }, replay(whatIfs)),
    ` ${accuracy(whatIfs.accuracy)}`,
  ];
}

function cell(parts: (Node | string)[]): HTMLElement {
  return element("span", {}, ...parts);
}
