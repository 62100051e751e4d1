// A slider for activation recomputation (checkpointing), from fastest to smallest.

import type { Actions } from "../actions";
import { button, element, fill, set, write } from "../dom";
import type { Place } from "../document";
import { bytes, duration } from "../format";
import { shareBar } from "../table";
import type { RecomputeStep, WhatIfs } from "./document";
import { lineLinks } from "./lines";
import { change } from "./words";

const MOST_LINES = 12;

/** The slider's access to the editor. */
export interface Requests {
  /** Null in a report. */
  recompute: ((lines: readonly Place[]) => void) | null;
  explain: (why: string) => void;
}

export class Recompute {
  readonly root = element("div", { class: "recompute" });
  readonly #slider = element("input", { type: "range", min: 0, step: 1, value: 0, "aria-label": "Recomputed activations, from fastest to smallest" });
  readonly #time = element("dd");
  readonly #peak = element("dd", { class: "of-memory" });
  readonly #lines = element("p");
  readonly #apply: HTMLButtonElement;
  #steps: readonly RecomputeStep[] = [];
  #hasEditor = false;
  #before: WhatIfs["before"] = { timeNs: null, peakBytes: null };

  constructor(
    private readonly actions: Actions,
    private readonly requests: Requests,
  ) {
    // Not `disabled`: a button that cannot be focused cannot explain why.
    this.#apply = button("Apply", {}, () => {
      const step = this.#step();
      const why = this.#whyNot(step);
      if (why !== null) this.requests.explain(`Recompute activations: ${why}`);
      else if (step !== undefined) this.requests.recompute?.(step.lines);
    });
    this.#apply.append(element("span", { class: "unseen" }, " activation recomputation"));
    this.#slider.addEventListener("input", () => {
      this.#stand();
    });
    fill(
      this.root,
      element("h3", {}, "Trade time for memory: activation recomputation"),
      element(
        "div",
        { class: "recompute-slider" },
        element("span", { class: "quiet", "aria-hidden": "true" }, "fastest"),
        this.#slider,
        element("span", { class: "quiet", "aria-hidden": "true" }, "smallest"),
      ),
      element(
        "dl",
        {},
        element("div", {}, element("dt", {}, "Iteration time"), this.#time),
        element("div", {}, element("dt", {}, "Peak memory"), this.#peak),
      ),
      this.#lines,
      ...(requests.recompute === null ? [] : [element("div", { class: "what-if-buttons" }, this.#apply)]),
    );
  }

  show({ recompute, before }: WhatIfs, hasEditor: boolean): void {
    this.#hasEditor = hasEditor;
    this.#steps = recompute;
    this.#before = before;
    // A slider with one position is useless.
    this.root.hidden = recompute.length < 2;
    set(this.#slider, { max: Math.max(0, recompute.length - 1) });
    this.#stand();
  }

  #step(): RecomputeStep | undefined {
    return this.#steps[Number(this.#slider.value)];
  }

  /** Returns why the code cannot be edited from here, or null if it can. */
  #whyNot(step: RecomputeStep | undefined): string | null {
    if (!this.#hasEditor) return "no editor connected";
    if (step === undefined || step.lines.length === 0) return "nothing to recompute here";
    return step.isAnEdit ? null : "a line also calls other modules, or a library calls these modules";
  }

  #stand(): void {
    const step = this.#step();
    if (step === undefined) return;
    const whyNot = this.#whyNot(step);
    set(this.#apply, { "aria-disabled": whyNot === null ? null : "true", title: whyNot });
    const { timeNs, peakBytes } = this.#before;
    const most = (of: (one: RecomputeStep) => number) => Math.max(...this.#steps.map(of));
    const time = told(duration(step.timeNs), change(timeNs, step.timeNs));
    const peak = told(bytes(step.peakBytes), change(peakBytes, step.peakBytes));
    fill(this.#time, shareBar(step.timeNs / most((one) => one.timeNs), time));
    fill(this.#peak, shareBar(step.peakBytes / Math.max(1, most((one) => one.peakBytes)), peak));
    set(this.#slider, { "aria-valuetext": `iteration time ${time.replace("~", "about ")}, peak memory ${peak.replace("~", "about ")}` });
    if (step.lines.length === 0) write(this.#lines, "No recomputation.");
    else fill(this.#lines, "Recomputed: ", lineLinks(step.lines, this.actions, MOST_LINES));
  }
}

function told(value: string, by: string): string {
  return by === "" ? `~${value}` : `~${value} (${by})`;
}
