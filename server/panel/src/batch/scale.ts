// The scale of batch sizes on a chart, and interpolation of the curve. The scale is logarithmic: from 8 to 16 is as far
// as from 64 to 128.

import type { Estimate } from "../values";
import { MOST, type BatchSize, type Point } from "./document";

export interface Reach {
  first: number;
  last: number;
}

/** Returns the batch sizes that a chart covers: all points, and the one in the code. */
export function reach({ points, current }: BatchSize): Reach {
  const batches = [...points.map((point) => point.batch), current];
  const first = Math.min(...batches);
  return { first, last: Math.max(first + 1, ...batches) };
}

/** Returns the position of a batch size: 0 at the first, 1 at the last. */
export function share(batch: number, { first, last }: Reach): number {
  return clamp(Math.log(batch / first) / Math.log(last / first), 0, 1);
}

/** Batch sizes above this are multiples of it, which suits tensor cores and caches. */
const STEP = 8;

/** Returns the batch size at a share of the width: a power of two up to 8, then a multiple of 8. */
export function batchAt(at: number, { first, last }: Reach): number {
  const exact = first * (last / first) ** clamp(at, 0, 1);
  const batch = exact > STEP ? STEP * Math.round(exact / STEP) : 2 ** Math.round(Math.log2(exact));
  return clamp(batch, first, last);
}

/** Returns the batch size after a key press, or null if it is not one of a slider's keys. */
export function stepped(key: string, batch: number, { first, last }: Reach): number | null {
  const moved: Record<string, number> = {
    ArrowRight: batch + 1,
    ArrowUp: batch + 1,
    ArrowLeft: batch - 1,
    ArrowDown: batch - 1,
    PageUp: batch * 2,
    PageDown: Math.ceil(batch / 2),
    Home: first,
    End: last,
  };
  const next = moved[key];
  return next === undefined ? null : clamp(next, Math.max(1, first), Math.min(MOST, last));
}

/** Interpolates the curve at a batch size between its neighbouring points. */
export function along(points: Point[], batch: number, of: (point: Point) => Estimate | null): Estimate | null {
  const known = points.filter((point) => of(point) !== null);
  const after = known.findIndex((point) => point.batch >= batch);
  const right = known[after];
  if (right === undefined) return null;
  const left = known[after - 1];
  const end = of(right);
  if (end === null || right.batch === batch) return end;
  const start = left === undefined ? null : of(left);
  if (left === undefined || start === null) return null;
  const between = (batch - left.batch) / (right.batch - left.batch);
  const mix = (a: number, b: number) => a + (b - a) * between;
  return { low: mix(start.low, end.low), value: mix(start.value, end.value), high: mix(start.high, end.high) };
}

/** Whether a batch size was measured, so its numbers need no `~`. */
export function isMeasured(points: Point[], batch: number): boolean {
  return points.some((point) => point.batch === batch && point.measured);
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}
