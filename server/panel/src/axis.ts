// The time axis of the timeline and the memory curve.

import { duration } from "./format";
import { length, type Range } from "./range";
import type { Palette } from "./theme";
import type { Paint } from "./surface";

export const AXIS = 22;

/** Returns round times within the range, about one per `room` pixels. */
export function ticks(range: Range, width: number, room = 110): { at: number[]; step: number } {
  const raw = (length(range) * room) / Math.max(1, width);
  if (!(raw > 0) || !Number.isFinite(raw)) return { at: [], step: 0 };
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= raw) ?? raw;
  const at: number[] = [];
  const first = Math.ceil(range.start / step);
  const last = Math.floor(range.end / step);
  for (let index = first; index <= last && at.length < 100; index += 1) at.push(index * step);
  return { at, step };
}

/** Formats a time with enough digits to distinguish it from the next tick. */
export function tickLabel(at: number, step: number): string {
  const [unit, size] = at >= 1e9 ? ["s", 1e9] : at >= 1e6 ? ["ms", 1e6] : at >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  if (at === 0) return "0";
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return step === 0 ? duration(at) : `${(at / size).toFixed(digits)} ${unit}`;
}

/** Draws ticks and labels at `top`, and faint lines down to `bottom`. */
export function drawAxis(
  context: Paint,
  range: Range,
  width: number,
  top: number,
  bottom: number,
  palette: Palette,
): void {
  const { at, step } = ticks(range, width);
  const scale = width / length(range);
  context.font = `11px ${palette.sans}`;
  context.textBaseline = "middle";
  for (const time of at) {
    const x = Math.round((time - range.start) * scale);
    context.fillStyle = palette.grid;
    context.fillRect(x, top, 1, bottom - top);
    context.fillStyle = palette.quiet;
    const label = tickLabel(time, step);
    // A label at the right end would be clipped.
    if (x + 8 + label.length * 6 < width) context.fillText(label, x + 4, top + AXIS / 2);
  }
}
