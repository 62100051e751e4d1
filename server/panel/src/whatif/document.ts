// `what_ifs` of the document: what each optimization would bring, as docs/whatif.md says it.

import { amount, array, fields, isFields, list, maybeAmount, readEstimate, readPlace, text, type Estimate, type Fields, type Place } from "../values";

/** What one optimization, or several together, would bring. */
export interface Prediction {
  title: string;
  /** How many times as many samples a second. */
  speedup: Estimate;
  timeNs: Estimate | null;
  peakBytes: Estimate | null;
}

export interface WhatIf extends Prediction {
  name: string;
  /** The paper or the page that it is after. */
  source: string;
  lines: Place[];
  notes: string[];
  /** Whether the code can be changed from here, or why not. */
  edit: { possible: boolean; why: string | null };
  /** Published, and PyTorch has no way to apply it. */
  isResearch: boolean;
  /** What came out when it was tried; null: it never was. */
  measured: Measured | null;
}

export interface Measured {
  /** Without it, run right beside it; null where that is not known. */
  beforeNs: number | null;
  timeNs: number;
  peakBytes: number | null;
  whenMs: number | null;
}

export interface Refusal {
  title: string;
  why: string;
}

/** One choice of what is computed again in the backward pass. */
export interface RecomputeStep {
  timeNs: number;
  peakBytes: number;
  lines: Place[];
  /** Checkpoints on these lines do just that. */
  isAnEdit: boolean;
}

export interface Accuracy {
  pairs: number;
  meanError: number;
  largestError: number;
}

export interface WhatIfs {
  /** How far the replay is from the recorded iteration. */
  replayError: number | null;
  message: string | null;
  before: { timeNs: number | null; peakBytes: number | null };
  /** Fastest first; research last. */
  rows: WhatIf[];
  combinations: Prediction[];
  refusals: Refusal[];
  /** From fastest to smallest. */
  recompute: RecomputeStep[];
  accuracy: Accuracy | null;
  /** The name of the one that is being measured. */
  measuring: string | null;
  /** What a person should know about all of it. */
  notes: string[];
}

const ROWS = 200;
const STEPS = 1_000;
const LINES = 1_000;
const NOTES = 50;

export function readWhatIfs(value: unknown): WhatIfs | null {
  if (!isFields(value)) return null;
  const before = fields(value.before);
  return {
    replayError: maybeAmount(value.replay_error),
    message: text(value.message) || null,
    before: { timeNs: maybeAmount(before.time_ns), peakBytes: maybeAmount(before.peak_bytes) },
    rows: unique(list(value.rows, ROWS).flatMap((row) => readWhatIf(row) ?? [])),
    combinations: list(value.combinations, ROWS).flatMap((row) => readPrediction(row) ?? []),
    refusals: list(value.refusals, ROWS).flatMap((refusal) => {
      const title = text(refusal.title) || text(refusal.name);
      return title === "" ? [] : [{ title, why: text(refusal.why) || "for an unknown reason" }];
    }),
    recompute: list(value.recompute, STEPS).flatMap((step) => readStep(step) ?? []),
    accuracy: readAccuracy(value.accuracy),
    measuring: text(value.measuring) || null,
    notes: readNotes(value.notes),
  };
}

/** A name stands for a row when something is asked of it. */
function unique(rows: WhatIf[]): WhatIf[] {
  const seen = new Set<string>();
  return rows.filter(({ name }) => {
    const isNew = !seen.has(name);
    seen.add(name);
    return isNew;
  });
}

function readWhatIf(it: Fields): WhatIf | null {
  const name = text(it.name);
  const prediction = readPrediction(it);
  if (name === "" || prediction === null) return null;
  const edit = fields(it.edit);
  return {
    ...prediction,
    name,
    source: text(it.source),
    lines: readLines(it.lines),
    notes: readNotes(it.notes),
    edit: { possible: edit.possible === true, why: text(edit.why) || null },
    isResearch: it.research === true,
    measured: readMeasured(it.measured),
  };
}

function readPrediction(it: Fields): Prediction | null {
  const speedup = readEstimate(it.speedup);
  const title = text(it.title) || text(it.name);
  if (title === "" || speedup === null || speedup.value <= 0) return null;
  return { title, speedup, timeNs: readEstimate(it.time_ns), peakBytes: readEstimate(it.peak_bytes) };
}

function readMeasured(value: unknown): Measured | null {
  const it = fields(value);
  const timeNs = amount(it.time_ns);
  if (timeNs <= 0) return null;
  const beforeNs = amount(it.before_ns);
  return { beforeNs: beforeNs > 0 ? beforeNs : null, timeNs, peakBytes: maybeAmount(it.peak_bytes), whenMs: maybeAmount(it.when_unix_ms) };
}

function readStep(it: Fields): RecomputeStep | null {
  const timeNs = amount(it.time_ns);
  const peakBytes = maybeAmount(it.peak_bytes);
  return timeNs > 0 && peakBytes !== null ? { timeNs, peakBytes, lines: readLines(it.lines), isAnEdit: it.is_an_edit === true } : null;
}

function readAccuracy(value: unknown): Accuracy | null {
  const it = fields(value);
  const pairs = amount(it.pairs);
  const meanError = maybeAmount(it.mean_error);
  const largestError = maybeAmount(it.largest_error);
  if (pairs < 1 || meanError === null || largestError === null) return null;
  return { pairs, meanError, largestError };
}

function readLines(value: unknown): Place[] {
  return array(value, LINES).flatMap((line) => readPlace(line) ?? []);
}

function readNotes(value: unknown): string[] {
  return array(value, NOTES).map(text).filter(Boolean);
}
