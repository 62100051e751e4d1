// Reads `roofline` of the document: operators by their FLOPs per byte and FLOP/s, and the device's ceilings.

import { amount, fields, list, maybeAmount, readPlace, text, type Fields, type Place } from "../values";

/** The calls of an operator with the same shapes from one line. */
export interface Point {
  name: string;
  inputs: string;
  kernel: string | null;
  place: Place | null;
  phase: string;
  timeNs: number;
  flops: number;
  bytes: number;
  /** The name of the peak that applies. */
  peak: string;
  bound: "compute" | "memory" | null;
  /** The share of the attainable rate. Above 1 if the data was in a cache. */
  shareOfRoof: number | null;
  /** FLOPs per byte. */
  intensity: number;
  /** FLOP/s. */
  rate: number;
}

export interface Peak {
  name: string;
  flopsPerSecond: number;
}

export interface Roofline {
  /** The source of the ceilings; null if they are unknown. */
  ratesFrom: string | null;
  /** Bytes per second; null if unknown. */
  bandwidth: number | null;
  peaks: Peak[];
  /** Highest time first. */
  points: Point[];
  leftOut: number;
  withoutFlopsNs: number;
  unknownNs: number;
}

const POINTS = 1_000;
const PEAKS = 10;

export function readRoofline(value: unknown): Roofline {
  const it = fields(value);
  const bandwidth = amount(it.bandwidth);
  return {
    ratesFrom: text(it.rates_from) || null,
    bandwidth: bandwidth > 0 ? bandwidth : null,
    peaks: list(it.peaks, PEAKS)
      .map((peak) => ({ name: text(peak.name), flopsPerSecond: amount(peak.flops_per_second) }))
      .filter(({ flopsPerSecond }) => flopsPerSecond > 0),
    points: list(it.points, POINTS).flatMap((point) => readPoint(point) ?? []),
    leftOut: amount(it.left_out),
    withoutFlopsNs: amount(it.without_flops_ns),
    unknownNs: amount(it.unknown_ns),
  };
}

function readPoint(it: Fields): Point | null {
  const [timeNs, flops, bytes] = [amount(it.time_ns), amount(it.flops), amount(it.bytes)];
  if (timeNs <= 0 || flops <= 0 || bytes <= 0) return null;
  return {
    name: text(it.name) || "(no name)",
    inputs: text(it.inputs),
    kernel: text(it.kernel) || null,
    place: readPlace(it.place),
    phase: text(it.phase),
    timeNs,
    flops,
    bytes,
    peak: text(it.peak),
    bound: it.bound === "compute" || it.bound === "memory" ? it.bound : null,
    shareOfRoof: maybeAmount(it.share_of_roof),
    intensity: flops / bytes,
    rate: flops / (timeNs / 1e9),
  };
}
