// A bar chart for export, from bars that the page shows as elements.

import { SvgContext } from "./export/svg_context";
import { colours } from "./theme";

export interface Bar {
  label: string;
  /** Where the bar ends, from 0 to 1 of the chart's width. */
  share: number;
  /** Where it starts, if not at 0. */
  start?: number;
  /** The value, after the bar. */
  text: string;
  /** The ends of its range. */
  range?: [low: number, high: number];
}

const WIDTH = 900;
const ROW = 24;
const PADDING = 12;
const GAP = 10;
const MAX_LABEL = 320;
const MAX_TEXT = 260;

export function barsSvg(title: string, bars: readonly Bar[]): string | null {
  if (bars.length === 0) return null;
  const palette = colours();
  const height = 2 * PADDING + ROW * (bars.length + 1);
  const context = new SvgContext(WIDTH, height);
  context.fillStyle = palette.surface;
  context.fillRect(0, 0, WIDTH, height);
  context.textBaseline = "middle";
  context.font = `bold 13px ${palette.sans}`;
  context.fillStyle = palette.text;
  context.fillText(title, PADDING, PADDING + ROW / 2);
  context.font = `12px ${palette.sans}`;
  const widest = (texts: string[], most: number) => Math.min(most, Math.max(...texts.map((text) => context.measureText(text).width)));
  const left = PADDING + widest(bars.map(({ label }) => label), MAX_LABEL) + GAP;
  const right = WIDTH - PADDING - widest(bars.map(({ text }) => text), MAX_TEXT) - GAP;
  const x = (share: number) => left + Math.min(1, Math.max(0, share)) * (right - left);
  bars.forEach(({ label, share, start = 0, text, range }, at) => {
    const y = PADDING + ROW * (at + 1.5);
    context.fillStyle = palette.text;
    context.fillText(label, PADDING, y);
    context.fillText(text, right + GAP, y);
    context.fillStyle = palette.sunken;
    context.fillRect(left, y - 7, right - left, 14);
    context.fillStyle = palette.accent;
    context.fillRect(x(Math.min(start, share)), y - 7, Math.max(1, Math.abs(x(share) - x(start))), 14);
    if (range !== undefined) {
      context.fillStyle = palette.text;
      context.fillRect(x(range[0]), y - 0.5, x(range[1]) - x(range[0]), 1);
      for (const end of range) context.fillRect(x(end) - 0.5, y - 4, 1, 8);
    }
  });
  return context.finish(title);
}
