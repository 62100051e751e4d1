// A speedup as a bar from 1× with whiskers for its range, and a mark for the measurement. All bars of a list share one
// logarithmic scale: half as fast is as far to the left as twice as fast is to the right.

import { element } from "../dom";
import type { Estimate } from "../values";
import type { Measured, Prediction, WhatIf } from "./document";
import { besideNow } from "./words";

/** The speedups at both ends of the scale. */
export interface Scale {
  low: number;
  high: number;
}

/** Bars are clipped at these speedups. The number next to them shows the value. */
const LEAST = 0.25;
const MOST = 8;
/** The minimum extent of the scale, so that a small gain looks small. */
const LEAST_SHOWN = { low: 0.95, high: 1.3 };

export function scaleOf(predictions: readonly Prediction[]): Scale {
  const lows = predictions.map(({ speedup }) => speedup.low);
  const highs = predictions.map(({ speedup }) => speedup.high);
  return {
    low: Math.max(LEAST, Math.min(LEAST_SHOWN.low, ...lows)),
    high: Math.min(MOST, Math.max(LEAST_SHOWN.high, ...highs)),
  };
}

/** Returns the position of a speedup: 0 at the left end, 1 at the right end. */
export function at(speedup: number, { low, high }: Scale): number {
  const share = Math.log(speedup / low) / Math.log(high / low);
  return Math.min(1, Math.max(0, share));
}

/** Returns the measured speedup, with the predicted number of samples per iteration. */
export function measuredSpeedup({ speedup, timeNs }: WhatIf, measured: Measured, nowNs: number | null): number | null {
  return timeNs === null || timeNs.value <= 0 ? null : (speedup.value * timeNs.value) / besideNow(measured, nowNs);
}

/** Hidden from screen readers: the text next to it has the same content. */
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
