// Paints the visible part of a timeline. Boxes are grouped by colour first, because changing the fill style thousands
// of times costs more than painting the boxes.

import { AXIS, drawAxis } from "../axis";
import type { Labels } from "../label";
import { phasePatterns } from "../pattern";
import { length, type Range } from "../range";
import type { Palette } from "../theme";
import type { Finding } from "./find";
import type { Flow } from "./flows";
import { rowOf, type Timeline } from "./model";
import { visit } from "./visit";
import type { Paint } from "../surface";

export const ROW = 17;
export const HEAD = 19;

const GAP = 8;
const PADDING = 4;
/** Boxes narrower than this, in pixels, get no label. */
const WORD = 34;
/** The maximum number of labels. More are unreadable and take longer than a frame to paint. */
const WORDS = 400;

/** In high contrast, boxes are hollow, with a strip of this height that has the colour and pattern of the phase. */
const STRIP = 4;
/** Boxes narrower than this, in pixels, are solid. */
const FRAMED = 5;

/** Half the width of an arrow's head, in pixels. */
const ARROW = 3;

/** Height of a tick for a match, in pixels. */
const TICK = 5;

/** Positions of rows and track names, in pixels from the top of the first track. */
export interface Placement {
  rowTop: Float64Array;
  trackTop: Float64Array;
  height: number;
}

export function placeRows(timeline: Timeline): Placement {
  const rowTop = new Float64Array(timeline.rows.length);
  const trackTop = new Float64Array(timeline.tracks.length);
  let y = 0;
  timeline.tracks.forEach((track, index) => {
    trackTop[index] = y;
    y += HEAD;
    for (let row = track.firstRow; row < track.endRow; row += 1) {
      rowTop[row] = y;
      y += ROW;
    }
    y += GAP;
  });
  return { rowTop, trackTop, height: y };
}

/** Returns the row at a vertical position, or -1. */
export function rowAt(placement: Placement, y: number): number {
  return placement.rowTop.findIndex((top) => y >= top && y < top + ROW);
}

export interface Scene {
  timeline: Timeline;
  placement: Placement;
  range: Range;
  /** Vertical scroll offset of the tracks. */
  scroll: number;
  hovered: number;
  hoveredRow: number;
  selected: number;
  selectedRow: number;
  focused: boolean;
  /** Time of the shared cursor, or null. */
  cursor: number | null;
  /** The marked range of time, or null. */
  marked: Range | null;
  /** The result of a search, or null. */
  matches: Finding | null;
  /** The launches of the selected span. */
  flows: Flow[];
}

// Boxes by colour as left, top and width. Buffers grow on demand and are reused between frames.
class Boxes {
  #values = new Float32Array(3 * 1024);
  #size = 0;

  clear(): void {
    this.#size = 0;
  }

  push(left: number, top: number, width: number): void {
    if (this.#size + 3 > this.#values.length) {
      const larger = new Float32Array(2 * this.#values.length);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#size++] = left;
    this.#values[this.#size++] = top;
    this.#values[this.#size++] = width;
  }

  paint(context: Paint): void {
    for (let at = 0; at < this.#size; at += 3) {
      context.fillRect(this.#values[at]!, this.#values[at + 1]!, this.#values[at + 2]!, ROW - 1);
    }
  }

  /** Clears the inside of the boxes, so that a border and a strip with the pattern remain. */
  hollow(context: Paint, inside: string, pattern: CanvasPattern | null | undefined): void {
    const height = ROW - 2 - STRIP;
    for (const [style, down, high] of [[inside, 1, height], [pattern, 1 + height, STRIP]] as const) {
      if (style === undefined || style === null) continue;
      context.fillStyle = style;
      for (let at = 0; at < this.#size; at += 3) {
        const width = this.#values[at + 2]!;
        if (width >= FRAMED) context.fillRect(this.#values[at]! + 1, this.#values[at + 1]! + down, width - 2, high);
      }
    }
  }
}

export class Painter {
  readonly #boxes: Boxes[] = [];
  /** Boxes without a match of the search. */
  readonly #faint = new Boxes();
  readonly #words: { text: string; x: number; y: number; ink: string }[] = [];

  draw(
    context: Paint,
    scene: Scene,
    width: number,
    height: number,
    palette: Palette,
    labels: Labels,
  ): void {
    const { timeline, placement, range, scroll } = scene;
    context.fillStyle = palette.sunken;
    context.fillRect(0, 0, width, height);
    drawAxis(context, range, width, 0, height, palette);
    const colours = [...palette.phase, palette.idle];
    while (this.#boxes.length < colours.length) this.#boxes.push(new Boxes());
    for (const boxes of this.#boxes) boxes.clear();
    this.#faint.clear();
    this.#words.length = 0;

    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, height - AXIS);
    context.clip();
    timeline.tracks.forEach((track, index) => {
      const top = AXIS + placement.trackTop[index]! - scroll;
      const bottom = top + HEAD + (track.endRow - track.firstRow) * ROW;
      if (bottom < AXIS || top > height) return;
      this.#words.push({ text: track.name, x: PADDING, y: top + HEAD / 2 + 1, ink: palette.quiet });
      for (let row = track.firstRow; row < track.endRow; row += 1) {
        const y = AXIS + placement.rowTop[row]! - scroll;
        if (y + ROW >= AXIS && y <= height) this.#row(scene, row, y, width, palette, labels, context);
      }
    });
    context.fillStyle = palette.idle;
    this.#faint.paint(context);
    colours.forEach((colour, which) => {
      context.fillStyle = colour;
      this.#boxes[which]!.paint(context);
    });
    if (palette.highContrast) {
      const patterns = phasePatterns(context, palette);
      this.#boxes.forEach((boxes, which) => {
        boxes.hollow(context, palette.surface, patterns[which]);
      });
    }
    context.font = `11px ${palette.sans}`;
    context.textBaseline = "middle";
    let ink = "";
    for (const word of this.#words) {
      if (word.ink !== ink) context.fillStyle = ink = word.ink;
      context.fillText(word.text, word.x, word.y);
    }
    this.#flows(context, scene, width, palette);
    const thicker = palette.highContrast ? 1 : 0;
    this.#outline(context, scene, scene.hovered, scene.hoveredRow, palette.text, 1 + thicker, width);
    this.#outline(context, scene, scene.selected, scene.selectedRow, scene.focused ? palette.focus : palette.text, 2 + thicker, width);
    context.restore();
    this.#range(context, scene, width, height, palette);
    if (scene.cursor !== null) {
      const x = Math.round(((scene.cursor - range.start) / length(range)) * width);
      context.fillStyle = palette.quiet;
      context.fillRect(x, 0, 1, height);
    }
  }

  #row(
    scene: Scene,
    index: number,
    y: number,
    width: number,
    palette: Palette,
    labels: Labels,
    context: Paint,
  ): void {
    const { timeline, range } = scene;
    const row = timeline.rows[index]!;
    const idle = timeline.tracks[row.track]!.kind === "idle";
    const scale = width / length(range);
    visit(timeline, row, range.start, range.end, 1 / scale, (start, end, span, count) => {
      const left = Math.max(0, Math.round((start - range.start) * scale));
      let right = Math.min(width, Math.round((end - range.start) * scale));
      // Leave a gap between neighbours if there is room.
      if (right - left > 3) right -= 1;
      const wide = Math.max(1, right - left);
      const phase = timeline.phase[span]!;
      if (scene.matches !== null && scene.matches.marks[span] === 0) {
        this.#faint.push(left, y, wide);
        return;
      }
      this.#boxes[idle ? palette.phase.length : phase]!.push(left, y, wide);
      if (wide < WORD || count > 1 || idle || this.#words.length >= WORDS) return;
      const text = labels.fit(context, timeline.names[timeline.name[span]!] ?? "", wide - 2 * PADDING);
      if (text !== "") this.#words.push({ text, x: left + PADDING, y: y + (palette.highContrast ? ROW - STRIP : ROW) / 2, ink: palette.phaseInk[phase]! });
    });
  }

  /** Paints a line with an arrow from each launch to the start of its work. */
  #flows(context: Paint, scene: Scene, width: number, palette: Palette): void {
    const { timeline, range, placement, scroll, flows } = scene;
    const scale = width / length(range);
    context.strokeStyle = palette.text;
    context.fillStyle = palette.text;
    context.lineWidth = 1;
    for (const { from, to } of flows) {
      const x = (timeline.end[from]! - range.start) * scale;
      const endX = (timeline.start[to]! - range.start) * scale;
      if (Math.max(x, endX) < 0 || Math.min(x, endX) > width) continue;
      const top = (span: number) => AXIS + placement.rowTop[rowOf(timeline, span)]! - scroll;
      const [y, endY] = [top(from) + ROW - 1, top(to)];
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(endX, endY);
      context.stroke();
      context.beginPath();
      context.moveTo(endX, endY);
      context.lineTo(endX - ARROW, endY - 2 * ARROW);
      context.lineTo(endX + ARROW, endY - 2 * ARROW);
      context.fill();
    }
  }

  /** Paints the marked range, and a tick on the axis for each match: boxes of several spans hide short matches. */
  #range(context: Paint, scene: Scene, width: number, height: number, palette: Palette): void {
    const { timeline, range, marked, matches } = scene;
    const scale = width / length(range);
    const x = (time: number) => Math.round((time - range.start) * scale);
    if (marked !== null) {
      const left = Math.max(-2, x(marked.start));
      const right = Math.min(width + 2, x(marked.end));
      context.globalAlpha = 0.18;
      context.fillStyle = palette.accent;
      context.fillRect(left, 0, Math.max(1, right - left), height);
      context.globalAlpha = 1;
      context.fillRect(left, 0, 1, height);
      context.fillRect(right, 0, 1, height);
    }
    context.fillStyle = palette.accent;
    let last = -1;
    for (const span of matches?.spans ?? []) {
      const at = x(timeline.start[span]!);
      if (at <= last || at < 0 || at > width) continue;
      context.fillRect(at, AXIS - TICK, 2, TICK);
      last = at + 1;
    }
  }

  #outline(
    context: Paint,
    scene: Scene,
    span: number,
    row: number,
    colour: string,
    thickness: number,
    width: number,
  ): void {
    if (span < 0 || row < 0) return;
    const { timeline, range, placement, scroll } = scene;
    const scale = width / length(range);
    const left = Math.max(-4, (timeline.start[span]! - range.start) * scale);
    const right = Math.min(width + 4, (timeline.end[span]! - range.start) * scale);
    if (right < 0 || left > width) return;
    context.strokeStyle = colour;
    context.lineWidth = thickness;
    const top = AXIS + placement.rowTop[row]! - scroll;
    context.strokeRect(left - thickness / 2, top - thickness / 2, Math.max(2, right - left) + thickness / 2, ROW - 1 + thickness);
  }
}
