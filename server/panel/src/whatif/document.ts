// Reads `what_ifs` of the document: the estimated savings of each optimization (docs/whatif.md).

import { amount, array, fields, isFields, list, maybeAmount, readEstimate, readPlace, text, type Estimate, type Fields, type Place } from "../values";

/** The estimated savings of one optimization or a combination. */
export interface Prediction {
  title: string;
  /** Throughput ratio in samples per second. */
  speedup: Estimate;
  timeNs: Estimate | null;
  peakBytes: Estimate | null;
}

export interface WhatIf extends Prediction {
  name: string;
  /** The paper or page that the estimate is based on. */
  source: string;
  lines: Place[];
  notes: string[];
  /** Whether the code can be edited from here, or why not. */
  edit: { possible: boolean; why: string | null };
  /** Published research that PyTorch does not offer. */
  isResearch: boolean;
  /** The result of measuring it; null if never measured. */
  measured: Measured | null;
}

export interface Measured {
  /** Time without the optimization in the same measurement; null if unknown. */
  beforeNs: number | null;
  timeNs: number;
  peakBytes: number | null;
  whenMs: number | null;
}

export interface Refusal {
  title: string;
  why: string;
}

/** One option for activation recomputation. */
export interface RecomputeStep {
  timeNs: number;
  peakBytes: number;
  lines: Place[];
  /** Checkpointing these lines implements the option. */
  isAnEdit: boolean;
}

export interface Accuracy {
  pairs: number;
  meanError: number;
  largestError: number;
}

export interface WhatIfs {
  /** Relative error of the simulation against the recorded iteration. */
  replayError: number | null;
  message: string | null;
  before: { timeNs: number | null; peakBytes: number | null };
  /** Fastest first, with research last. */
  rows: WhatIf[];
  combinations: Prediction[];
  refusals: Refusal[];
  /** From fastest to smallest. */
  recompute: RecomputeStep[];
  accuracy: Accuracy | null;
  /** The name of the optimization being measured. */
  measuring: string | null;
  /** Notes that apply to all of them. */
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

/** Rows are identified by name in requests. */
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
