// The choice of what is computed again in the backward pass, as a slider from fastest to smallest.

import type { Actions } from "../actions";
import { element, fill, set, write } from "../dom";
import { bytes, duration } from "../format";
import { shareBar } from "../table";
import type { RecomputeStep, WhatIfs } from "./document";
import { lineLinks } from "./lines";
import { change } from "./words";

const MOST_LINES = 12;

export class Recompute {
  readonly root = element("div", { class: "recompute" });
  readonly #slider = element("input", { type: "range", min: 0, step: 1, value: 0, "aria-label": "What is computed again, from fastest to smallest" });
  readonly #time = element("dd");
  readonly #peak = element("dd", { class: "of-memory" });
  readonly #lines = element("p");
  #steps: readonly RecomputeStep[] = [];
  #before: WhatIfs["before"] = { timeNs: null, peakBytes: null };

  constructor(private readonly actions: Actions) {
    this.#slider.addEventListener("input", () => {
      this.#stand();
    });
    fill(
      this.root,
      element("h3", {}, "Memory for time: compute activations again"),
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
        element("div", {}, element("dt", {}, "Iteration"), this.#time),
        element("div", {}, element("dt", {}, "Peak memory"), this.#peak),
      ),
      this.#lines,
    );
  }

  show({ recompute, before }: WhatIfs): void {
    this.#steps = recompute;
    this.#before = before;
    // One choice is none.
    this.root.hidden = recompute.length < 2;
    set(this.#slider, { max: Math.max(0, recompute.length - 1) });
    this.#stand();
  }

  #stand(): void {
    const step = this.#steps[Number(this.#slider.value)];
    if (step === undefined) return;
    const { timeNs, peakBytes } = this.#before;
    const most = (of: (one: RecomputeStep) => number) => Math.max(...this.#steps.map(of));
    const time = told(duration(step.timeNs), change(timeNs, step.timeNs));
    const peak = told(bytes(step.peakBytes), change(peakBytes, step.peakBytes));
    fill(this.#time, shareBar(step.timeNs / most((one) => one.timeNs), time));
    fill(this.#peak, shareBar(step.peakBytes / Math.max(1, most((one) => one.peakBytes)), peak));
    set(this.#slider, { "aria-valuetext": `iteration ${time.replace("~", "about ")}, peak memory ${peak.replace("~", "about ")}` });
    if (step.lines.length === 0) write(this.#lines, "Nothing is computed again.");
    else fill(this.#lines, "Computed again: ", lineLinks(step.lines, this.actions, MOST_LINES));
  }
}

function told(value: string, by: string): string {
  return by === "" ? `~${value}` : `~${value} (${by})`;
}
