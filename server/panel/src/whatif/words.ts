// Formats predictions and measurements as text.

import { bytes, counted, duration, percent, significant } from "../format";
import type { Estimate } from "../values";
import type { Accuracy, Measured, WhatIf, WhatIfs } from "./document";

/** Above this simulation error, predictions are only a guess. */
const LARGEST_REPLAY_ERROR = 0.05;
/** Smaller differences count as equal: two runs of one program differ by more. */
const SAME = 0.005;

/** Formats a throughput ratio: `1.84×`. */
export function times(speedup: number): string {
  return `${speedup < 9.995 ? speedup.toFixed(2) : significant(speedup)}×`;
}

/** Formats a range: `51 ms to 61 ms`, or one value if both look the same. */
export function reach({ low, high }: Estimate, write: (value: number) => string): string {
  const [from, to] = [write(low), write(high)];
  return from === to ? from : `${from} to ${to}`;
}

/** Formats a change: `−31%`, `+4%`. Empty if nothing changes. */
export function change(from: number | null, to: number): string {
  if (from === null || from <= 0) return "";
  const by = to / from - 1;
  if (Math.abs(by) < SAME) return "";
  return `${by < 0 ? "−" : "+"}${percent(Math.abs(by))}`;
}

export function isGuess({ replayError }: WhatIfs): boolean {
  return replayError !== null && replayError > LARGEST_REPLAY_ERROR;
}

/** Describes how well the simulation reproduces the recorded iteration. */
export function replay(whatIfs: WhatIfs): string {
  const { replayError } = whatIfs;
  if (replayError === null) return "The simulation accuracy for this recording is unknown.";
  // At least the smallest value that can be shown: no simulation is exact.
  const within = percent(Math.max(0.001, replayError));
  if (isGuess(whatIfs)) return `The simulation is ${within} off the recorded iteration: treat these predictions as a guess.`;
  return `The simulation reproduces the recorded iteration within ${within}.`;
}

/** Describes the error of earlier predictions in this project. */
export function accuracy(known: Accuracy | null): string {
  if (known === null) return "No prediction has been measured here yet.";
  const { pairs, meanError, largestError } = known;
  if (pairs === 1) return `The one prediction measured here was ${percent(meanError)} off.`;
  return `The ${counted(pairs, "prediction")} measured here were ${percent(meanError)} off on average, and ${percent(largestError)} at most.`;
}

/** Scales a measurement to the recorded iteration, because a machine's speed drifts over time. */
export function besideNow({ timeNs, beforeNs }: Measured, nowNs: number | null): number {
  return beforeNs === null || nowNs === null ? timeNs : timeNs * (nowNs / beforeNs);
}

export interface MeasuredWords {
  time: string;
  peak: string | null;
  isWithin: boolean;
}

/** Formats a measurement and its difference from the prediction. */
export function measuredWords({ timeNs, peakBytes }: WhatIf, measured: Measured, nowNs: number | null): MeasuredWords {
  const before = measured.beforeNs === null ? "" : ` instead of ${duration(measured.beforeNs)}`;
  const time = against(besideNow(measured, nowNs), timeNs);
  const peak = measured.peakBytes === null ? null : against(measured.peakBytes, peakBytes);
  return {
    time: `${duration(measured.timeNs)}${before}${time.text}`,
    peak: measured.peakBytes === null ? null : `${bytes(measured.peakBytes)}${peak?.text ?? ""}`,
    isWithin: time.isWithin && (peak?.isWithin ?? true),
  };
}

function against(measured: number, predicted: Estimate | null) {
  if (predicted === null || predicted.value <= 0) return { text: "", isWithin: true };
  const off = measured / predicted.value - 1;
  if (Math.abs(off) < SAME) return { text: ", as predicted", isWithin: true };
  const isWithin = measured >= predicted.low && measured <= predicted.high;
  return { text: `, ${percent(Math.abs(off))} ${off > 0 ? "more" : "less"} than predicted${isWithin ? "" : " and out of range"}`, isWithin };
}

/** Why a row's actions are disabled. `apply` and `measure` are null if available. */
export interface Reasons {
  apply: string | null;
  measure: string | null;
}

export function reasons(row: WhatIf, whatIfs: WhatIfs, hasEditor: boolean): Reasons {
  if (!hasEditor) {
    const why = "no editor connected";
    return { apply: why, measure: why };
  }
  if (!row.edit.possible) {
    const why = row.edit.why ?? "no automatic edit";
    return { apply: why, measure: why };
  }
  const { measuring } = whatIfs;
  if (measuring === null) return { apply: null, measure: null };
  const title = whatIfs.rows.find(({ name }) => name === measuring)?.title ?? measuring;
  return { apply: null, measure: measuring === row.name ? "measurement in progress" : `measuring ${title}` };
}
