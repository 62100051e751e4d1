// Reads `predictions.batch_size` of the panel's document (docs/panel.md) and corrects invalid values.

import { fields, isFields, list, maybeAmount, readEstimate, readPlace, text, type Estimate, type Fields, type Place } from "../values";

export interface Point {
  batch: number;
  samplesPerSecond: Estimate | null;
  peakBytes: Estimate | null;
  measured: boolean;
  fits: boolean | null;
}

export interface BatchSize {
  state: "measuring" | "ready" | "unavailable";
  message: string | null;
  current: number;
  site: { text: string; place: Place | null; note: string | null } | null;
  refusal: string | null;
  /** Ascending by batch size, without duplicates. */
  points: Point[];
  capacityBytes: number | null;
  largest: Estimate | null;
  saturation: Estimate | null;
}

const POINTS = 64;
/** The largest batch size that the server accepts. */
export const MOST = 16_777_216;

/** Reads the batch-size prediction. Returns null if there is nothing to show. */
export function readBatchSize(document: unknown): BatchSize | null {
  const predictions = fields(fields(document).predictions);
  const all = predictions.batch_size;
  if (!isFields(all)) return null;
  const current = batch(all.current);
  if (current === null) return null;
  const state = all.state;
  const points = new Map<number, Point>();
  for (const value of list(all.points, POINTS)) {
    const point = readPoint(value);
    if (point !== null) points.set(point.batch, point);
  }
  const site = fields(all.site);
  return {
    state: state === "ready" || state === "measuring" ? state : "unavailable",
    message: text(all.message) || null,
    current,
    site: text(site.text) === "" ? null : { text: text(site.text), place: readPlace(site.place), note: text(site.note) || null },
    refusal: text(all.refusal) || null,
    points: [...points.values()].sort((a, b) => a.batch - b.batch),
    capacityBytes: maybeAmount(all.capacity_bytes),
    largest: readEstimate(all.largest),
    saturation: readEstimate(all.saturation),
  };
}

function readPoint(it: Fields): Point | null {
  const of = batch(it.batch);
  if (of === null) return null;
  return {
    batch: of,
    samplesPerSecond: readEstimate(it.samples_per_second),
    peakBytes: readEstimate(it.peak_bytes),
    measured: it.measured === true,
    fits: typeof it.fits === "boolean" ? it.fits : null,
  };
}

function batch(value: unknown): number | null {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 ? Math.min(value, MOST) : null;
}
