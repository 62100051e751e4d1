// `predictions.batch_size` of the panel's document, as docs/panel.md says it, put right on reading.

import type { Place } from "../document";

export interface Range {
  low: number;
  value: number;
  high: number;
}

export interface Point {
  batch: number;
  samplesPerSecond: Range | null;
  peakBytes: Range | null;
  measured: boolean;
  fits: boolean | null;
}

export interface BatchSize {
  state: "measuring" | "ready" | "unavailable";
  message: string | null;
  current: number;
  site: { text: string; place: Place | null; note: string | null } | null;
  refusal: string | null;
  /** Ascending by batch, each once. */
  points: Point[];
  capacityBytes: number | null;
  largest: Range | null;
  saturation: Range | null;
}

const POINTS = 64;
const CHARACTERS = 500;
/** The server sets no larger one. */
export const MOST = 16_777_216;

type Fields = Partial<Record<string, unknown>>;

/** Null where nothing of other batch sizes can be shown. */
export function readBatchSize(document: unknown): BatchSize | null {
  const predictions = fields(fields(document).predictions);
  const it = predictions.batch_size;
  if (typeof it !== "object" || it === null || Array.isArray(it)) return null;
  const all = it as Fields;
  const current = batch(all.current);
  if (current === null) return null;
  const state = all.state;
  const points = new Map<number, Point>();
  for (const value of Array.isArray(all.points) ? (all.points as unknown[]).slice(0, POINTS) : []) {
    const point = readPoint(fields(value));
    if (point !== null) points.set(point.batch, point);
  }
  const site = fields(all.site);
  return {
    state: state === "ready" || state === "measuring" ? state : "unavailable",
    message: text(all.message),
    current,
    site: text(site.text) === null ? null : { text: text(site.text) ?? "", place: place(site.place), note: text(site.note) },
    refusal: text(all.refusal),
    points: [...points.values()].sort((a, b) => a.batch - b.batch),
    capacityBytes: amount(all.capacity_bytes),
    largest: range(all.largest),
    saturation: range(all.saturation),
  };
}

function readPoint(it: Fields): Point | null {
  const of = batch(it.batch);
  if (of === null) return null;
  return {
    batch: of,
    samplesPerSecond: range(it.samples_per_second),
    peakBytes: range(it.peak_bytes),
    measured: it.measured === true,
    fits: typeof it.fits === "boolean" ? it.fits : null,
  };
}

function place(value: unknown): Place | null {
  const { file, line } = fields(value);
  const isPlace = Number.isSafeInteger(file) && Number.isSafeInteger(line) && (file as number) >= 0 && (line as number) >= 1;
  return isPlace ? { file: file as number, line: line as number } : null;
}

function range(value: unknown): Range | null {
  const it = fields(value);
  const middle = amount(it.value);
  if (middle === null) return null;
  return { low: Math.min(amount(it.low) ?? middle, middle), value: middle, high: Math.max(amount(it.high) ?? middle, middle) };
}

function batch(value: unknown): number | null {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 ? Math.min(value, MOST) : null;
}

function amount(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : null;
}

function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value.slice(0, CHARACTERS) : null;
}

function fields(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value) : {};
}
