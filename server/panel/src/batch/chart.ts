// One curve against the batch size, with marks for the largest batch and for saturation. The table and the handle have
// the same information.

import { AXIS, ticks } from "../axis";
import { element } from "../dom";
import { count } from "../format";
import { Surface, type Paint } from "../surface";
import { colours, type Palette } from "../theme";
import type { Estimate } from "../values";
import type { BatchSize, Point } from "./document";
import { reach, share, type Reach } from "./scale";

/** Room for the names of the marks, ... */
const TOP = 18;
/** ... and for the values of the ticks. The canvas is wider by this (panel.css). */
const LEFT = 56;
/** The distance of ticks, in pixels. */
const BETWEEN_ROWS = 28;
const BETWEEN_COLUMNS = 44;

export interface Wanted {
  label: string;
  of: (point: Point) => Estimate | null;
  text: (value: number) => string;
  /** The value of a tick. */
  tick: (value: number) => string;
  /** A line that the curve should stay below. */
  limit: (sizes: BatchSize) => number | null;
}

interface Scene {
  points: { point: Point; range: Estimate }[];
  reach: Reach;
  top: number;
  limit: number | null;
  marks: { batch: number; name: string; dash: number[] }[];
}

export class Chart {
  readonly root = element("div", { class: "batch-chart" });
  readonly #surface: Surface;
  #scene: Scene | null = null;

  constructor(private readonly wanted: Wanted) {
    const canvas = element("canvas", { "aria-hidden": "true" });
    this.root.append(canvas);
    this.#surface = new Surface(canvas, (context) => {
      this.#draw(context);
    });
  }

  show(sizes: BatchSize): void {
    const { of, limit } = this.wanted;
    const points = sizes.points.flatMap((point) => {
      const range = of(point);
      return range === null ? [] : [{ point, range }];
    });
    const line = limit(sizes);
    // A limit far above the curve would flatten it.
    const highest = Math.max(1e-9, ...points.map(({ range }) => range.high));
    const top = line !== null && line < highest * 3 ? Math.max(highest, line) : highest;
    const marks = [
      { batch: sizes.saturation?.value, name: "saturates", dash: [2, 3] },
      { batch: sizes.largest?.value, name: "largest that fits", dash: [] },
    ]
      .flatMap(({ batch, ...mark }) => (batch === undefined ? [] : [{ batch, ...mark }]))
      .sort((a, b) => b.batch - a.batch);
    this.#scene = { points, reach: reach(sizes), top, limit: line !== null && line <= top ? line : null, marks };
    this.root.classList.toggle("nothing", points.length < 2);
    this.#surface.invalidate();
  }

  restyle(): void {
    this.#surface.invalidate();
  }

  svg(): string | null {
    return this.#surface.svg(`${this.wanted.label} by batch size`);
  }

  #draw(context: Paint): void {
    const scene = this.#scene;
    const palette = colours();
    const { width, height } = this.#surface;
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, width, height);
    if (scene === null || scene.points.length < 2) return;
    const bottom = height - AXIS;
    const x = (batch: number) => LEFT + share(batch, scene.reach) * (width - LEFT);
    const y = (value: number) => bottom - (value / scene.top) * (bottom - TOP);
    context.font = `11px ${palette.sans}`;
    context.textBaseline = "middle";
    this.#axes(context, scene, x, y, palette);
    curve(context, scene, x, y, palette);
    if (scene.limit !== null) {
      line(context, [LEFT, y(scene.limit)], [width, y(scene.limit)], palette.worse, [6, 4]);
      context.fillStyle = palette.text;
      context.fillText("available memory", LEFT + 4, y(scene.limit) - 8);
    }
    // From the right, so that the names fit.
    let free = width;
    for (const { batch, name, dash } of scene.marks) {
      if (batch < scene.reach.first || batch > scene.reach.last) continue;
      line(context, [x(batch), TOP], [x(batch), bottom], palette.text, dash);
      const long = context.measureText(name).width;
      const left = Math.min(free - long, x(batch) - long / 2);
      if (left < LEFT) continue;
      free = left - 8;
      context.fillStyle = palette.quiet;
      context.fillText(name, left, TOP / 2);
    }
  }

  #axes(context: Paint, scene: Scene, x: (batch: number) => number, y: (value: number) => number, palette: Palette): void {
    const { width, height } = this.#surface;
    const bottom = height - AXIS;
    context.fillStyle = palette.edge;
    context.fillRect(LEFT, bottom, width - LEFT, 1);
    for (const value of ticks({ start: 0, end: scene.top }, bottom - TOP, BETWEEN_ROWS).at.filter((value) => value > 0)) {
      context.fillStyle = palette.grid;
      context.fillRect(LEFT, Math.round(y(value)), width - LEFT, 1);
      context.fillStyle = palette.quiet;
      const label = this.wanted.tick(value);
      context.fillText(label, LEFT - 8 - context.measureText(label).width, y(value));
    }
    let free = -Infinity;
    for (let batch = 2 ** Math.ceil(Math.log2(scene.reach.first)); batch <= scene.reach.last; batch *= 2) {
      if (x(batch) < free) continue;
      free = x(batch) + BETWEEN_COLUMNS;
      const label = count(batch);
      const long = context.measureText(label).width;
      context.fillStyle = palette.edge;
      context.fillRect(Math.min(width - 1, Math.round(x(batch))), bottom, 1, 4);
      context.fillStyle = palette.quiet;
      context.fillText(label, Math.min(width - long, x(batch) - long / 2), bottom + AXIS / 2 + 3);
    }
  }
}

function curve(context: Paint, { points }: Scene, x: (batch: number) => number, y: (value: number) => number, palette: Palette): void {
  context.beginPath();
  for (const { point, range } of points) context.lineTo(x(point.batch), y(range.high));
  for (const { point, range } of [...points].reverse()) context.lineTo(x(point.batch), y(range.low));
  context.fillStyle = palette.accentSoft;
  context.fill();
  if (palette.highContrast) {
    context.strokeStyle = palette.accent;
    context.lineWidth = 1;
    context.setLineDash([1, 2]);
    context.stroke();
    context.setLineDash([]);
  }
  context.beginPath();
  for (const { point, range } of points) context.lineTo(x(point.batch), y(range.value));
  context.strokeStyle = palette.accent;
  context.lineWidth = 2;
  context.stroke();
  context.fillStyle = palette.accent;
  for (const { point, range } of points.filter(({ point }) => point.measured)) {
    context.beginPath();
    context.arc(x(point.batch), y(range.value), 4, 0, 2 * Math.PI);
    context.fill();
  }
}

function line(context: Paint, from: [number, number], to: [number, number], colour: string, dash: number[]): void {
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(...to);
  context.stroke();
  context.setLineDash([]);
}
