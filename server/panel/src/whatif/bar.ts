// A speedup as a bar from 1× with whiskers over its range, and a mark where it was measured. All bars of a list
// share one scale, which goes by ratio: half as fast is as far to the left as twice as fast is to the right.

import { element } from "../dom";
import type { Estimate } from "../values";
import type { Measured, Prediction, WhatIf } from "./document";
import { besideNow } from "./words";

/** Speedups at both ends of the bars. */
export interface Scale {
  low: number;
  high: number;
}

/** Beyond these a bar is cut off: the number beside it says the rest. */
const LEAST = 0.25;
const MOST = 8;
/** Less is not spread over the whole width, so that a small gain looks small. */
const LEAST_SHOWN = { low: 0.95, high: 1.3 };

export function scaleOf(predictions: readonly Prediction[]): Scale {
  const lows = predictions.map(({ speedup }) => speedup.low);
  const highs = predictions.map(({ speedup }) => speedup.high);
  return {
    low: Math.max(LEAST, Math.min(LEAST_SHOWN.low, ...lows)),
    high: Math.min(MOST, Math.max(LEAST_SHOWN.high, ...highs)),
  };
}

/** Where a speedup is: 0 at the left end, 1 at the right one. */
export function at(speedup: number, { low, high }: Scale): number {
  const share = Math.log(speedup / low) / Math.log(high / low);
  return Math.min(1, Math.max(0, share));
}

/** The speedup that was measured: as many samples an iteration as were predicted, in another time. */
export function measuredSpeedup({ speedup, timeNs }: WhatIf, measured: Measured, nowNs: number | null): number | null {
  return timeNs === null || timeNs.value <= 0 ? null : (speedup.value * timeNs.value) / besideNow(measured, nowNs);
}

/** What it shows is in the words beside it. */
export function speedBar(speedup: Estimate, measured: number | null, scale: Scale): HTMLElement {
  const [one, value] = [at(1, scale), at(speedup.value, scale)];
  return element(
    "span",
    { class: "speed-bar", "aria-hidden": "true" },
    span("speed-value", Math.min(one, value), Math.max(one, value), speedup.value < 1),
    span("speed-range", at(speedup.low, scale), at(speedup.high, scale)),
    span("speed-one", one, one),
    measured !== null && span("speed-measured", at(measured, scale), at(measured, scale)),
  );
}

function span(name: string, from: number, to: number, slower = false): HTMLElement {
  const made = element("i", { class: slower ? `${name} slower` : name });
  made.style.setProperty("--from", from.toFixed(4));
  made.style.setProperty("--to", to.toFixed(4));
  return made;
}
