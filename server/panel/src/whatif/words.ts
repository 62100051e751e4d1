// What is said of predictions and measurements, in words.

import { bytes, counted, duration, percent, significant } from "../format";
import type { Estimate } from "../values";
import type { Accuracy, Measured, WhatIf, WhatIfs } from "./document";

/** Beyond this the replay is no ground to predict from. */
const LARGEST_REPLAY_ERROR = 0.05;
/** Nearer than this is the same: two runs of one program differ by more. */
const SAME = 0.005;

/** `1.84×`: how many times as many samples a second. */
export function times(speedup: number): string {
  return `${speedup < 9.995 ? speedup.toFixed(2) : significant(speedup)}×`;
}

/** `51 ms to 61 ms`; one of them where both are written alike. */
export function reach({ low, high }: Estimate, write: (value: number) => string): string {
  const [from, to] = [write(low), write(high)];
  return from === to ? from : `${from} to ${to}`;
}

/** `−31%`, `+4%`; empty where nothing changes. */
export function change(from: number | null, to: number): string {
  if (from === null || from <= 0) return "";
  const by = to / from - 1;
  if (Math.abs(by) < SAME) return "";
  return `${by < 0 ? "−" : "+"}${percent(Math.abs(by))}`;
}

export function isGuess({ replayError }: WhatIfs): boolean {
  return replayError !== null && replayError > LARGEST_REPLAY_ERROR;
}

/** How well the graph of the iteration stands for the iteration. */
export function replay(whatIfs: WhatIfs): string {
  const { replayError } = whatIfs;
  if (replayError === null) return "The simulation accuracy for this recording is unknown.";
  // Rounded up to what is shown: nothing is exact.
  const within = percent(Math.max(0.001, replayError));
  if (isGuess(whatIfs)) return `The simulation is ${within} off the recorded iteration: treat these predictions as a guess.`;
  return `The simulation reproduces the recorded iteration within ${within}.`;
}

/** How far the predictions were off here. */
export function accuracy(known: Accuracy | null): string {
  if (known === null) return "No prediction has been measured here yet.";
  const { pairs, meanError, largestError } = known;
  if (pairs === 1) return `The one prediction measured here was ${percent(meanError)} off.`;
  return `The ${counted(pairs, "prediction")} measured here were ${percent(meanError)} off on average, and ${percent(largestError)} at most.`;
}

/** What was measured, as it would be beside the recorded iteration: machines have faster and slower hours. */
export function besideNow({ timeNs, beforeNs }: Measured, nowNs: number | null): number {
  return beforeNs === null || nowNs === null ? timeNs : timeNs * (nowNs / beforeNs);
}

export interface MeasuredWords {
  time: string;
  peak: string | null;
  isWithin: boolean;
}

/** What was measured against what was predicted. */
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

/** Why nothing can be asked of a row: `apply` and `measure` each null where it can. */
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
