// The chart: each GPU is a point with its ranges, and each machine with several GPUs a square. Those on the Pareto front
// are connected and labelled.

import { count, duration, significant } from "../format";
import { LogAxis } from "../log_axis";
import { Surface, type Paint } from "../surface";
import { colours } from "../theme";
import type { Tooltip } from "../tooltip";
import { families, frontier, type Point } from "./scatter";
import { dollars } from "./words";

const LEFT = 58;
const BOTTOM = 40;
const TOP = 14;
const RIGHT = 16;
/** The pointer hits a point within this distance, in pixels. */
const NEAR = 12;

/** Maps a price and a throughput to canvas pixels. */
interface Axes {
  usd: LogAxis;
  rate: LogAxis;
  x: (usd: number) => number;
  y: (samplesPerSecond: number) => number;
}

export class DeviceChart {
  readonly #surface: Surface;
  #points: Point[] = [];
  #pointed: Point | null = null;

  constructor(canvas: HTMLCanvasElement, tooltip: Tooltip) {
    this.#surface = new Surface(canvas, (context) => {
      this.#draw(context);
    });
    canvas.addEventListener("pointermove", (event) => {
      const point = this.#near(this.#surface.locate(event));
      if (point === null) tooltip.hide();
      else tooltip.show(note(point), event);
      if (point !== this.#pointed) this.#surface.invalidate();
      this.#pointed = point;
    });
    canvas.addEventListener("pointerleave", () => {
      tooltip.hide();
      this.#pointed = null;
      this.#surface.invalidate();
    });
  }

  show(points: Point[]): void {
    this.#points = points;
    this.#pointed = null;
    this.#surface.invalidate();
  }

  restyle(): void {
    this.#surface.invalidate();
  }

  svg(): string | null {
    return this.#points.length === 0 ? null : this.#surface.svg("Throughput against price of a million samples");
  }

  #axes(): Axes {
    const { width, height } = this.#surface;
    const usd = new LogAxis(this.#points.map((point) => point.usdPerMillionSamples.value), Math.max(1, width - LEFT - RIGHT));
    const rate = new LogAxis(this.#points.map((point) => point.samplesPerSecond.value), Math.max(1, height - TOP - BOTTOM));
    return {
      usd,
      rate,
      x: (value) => LEFT + usd.at(value),
      y: (value) => height - BOTTOM - rate.at(value),
    };
  }

  #near({ x, y }: { x: number; y: number }): Point | null {
    const axes = this.#axes();
    let best: Point | null = null;
    let least = NEAR;
    for (const point of this.#points) {
      const at = place(axes, point);
      const distance = Math.hypot(at.x - x, at.y - y);
      if (distance <= least) [best, least] = [point, distance];
    }
    return best;
  }

  #draw(context: Paint): void {
    const palette = colours();
    const { width, height } = this.#surface;
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, width, height);
    if (this.#points.length === 0) return;
    const axes = this.#axes();
    this.#drawAxes(context, axes);
    const best = frontier(this.#points);
    context.strokeStyle = palette.edge;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    for (const family of families(this.#points)) connect(context, axes, family);
    context.setLineDash([]);
    context.lineWidth = 2;
    connect(context, axes, best);
    for (const point of this.#points) this.#point(context, axes, point);
    this.#names(context, axes, best);
  }

  #drawAxes(context: Paint, axes: Axes): void {
    const palette = colours();
    const { width, height } = this.#surface;
    const bottom = height - BOTTOM;
    context.font = `11px ${palette.sans}`;
    context.textBaseline = "middle";
    let free = LEFT - 8;
    for (const value of axes.usd.ticks()) {
      const x = Math.round(axes.x(value));
      context.fillStyle = palette.grid;
      context.fillRect(x, TOP, 1, bottom - TOP);
      const label = dollars(value);
      const long = context.measureText(label).width;
      if (x - long / 2 < free || x + long / 2 > width) continue;
      free = x + long / 2 + 8;
      context.fillStyle = palette.quiet;
      context.fillText(label, x - long / 2, bottom + 11);
    }
    let above = bottom + 20;
    for (const value of axes.rate.ticks()) {
      const y = Math.round(axes.y(value));
      context.fillStyle = palette.grid;
      context.fillRect(LEFT, y, width - LEFT - RIGHT, 1);
      if (above - y < 15) continue;
      above = y;
      context.fillStyle = palette.quiet;
      const label = significant(value);
      context.fillText(label, LEFT - 6 - context.measureText(label).width, y);
    }
    context.fillStyle = palette.quiet;
    const title = "price of a million samples →";
    context.fillText(title, width - RIGHT - context.measureText(title).width, height - 10);
    context.fillText("↑ samples/s", 4, 7);
  }

  #point(context: Paint, axes: Axes, point: Point): void {
    const palette = colours();
    const { samplesPerSecond: rate, usdPerMillionSamples: usd } = point;
    const { x, y } = place(axes, point);
    const colour = point.here ? palette.memory : palette.accent;
    // Twice the throughput is half the price, so one stroke shows the range of both.
    const isMarked = point === this.#pointed || point.here;
    context.strokeStyle = isMarked && point.fits ? colour : palette.edge;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(axes.x(usd.low), axes.y(rate.high));
    context.lineTo(axes.x(usd.high), axes.y(rate.low));
    context.stroke();
    const radius = isMarked ? 6 : 4;
    context.beginPath();
    if (point.gpus === 1) context.arc(x, y, radius, 0, 2 * Math.PI);
    else context.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    context.lineWidth = 1.5;
    context.strokeStyle = point.fits ? colour : palette.quiet;
    context.fillStyle = point.fits ? colour : palette.surface;
    context.fill();
    context.stroke();
  }

  // Skip a label that would overlap another.
  #names(context: Paint, axes: Axes, best: readonly Point[]): void {
    const palette = colours();
    const { width } = this.#surface;
    context.font = `11px ${palette.sans}`;
    context.fillStyle = palette.text;
    const taken: { left: number; right: number; y: number }[] = [];
    const here = this.#points.filter((point) => point.here);
    for (const point of [...here, ...best.filter((point) => !point.here)]) {
      const long = context.measureText(point.label).width;
      const { x: middle, y } = place(axes, point);
      const x = middle + 9;
      const left = x + long > width - 4 ? x - long - 18 : x;
      const isFree = taken.every((other) => left > other.right || left + long < other.left || Math.abs(y - other.y) > 12);
      if (!isFree || left < LEFT) continue;
      taken.push({ left, right: left + long, y });
      context.fillText(point.label, left, y);
    }
  }
}

function place(axes: Axes, { usdPerMillionSamples, samplesPerSecond }: Point): { x: number; y: number } {
  return { x: axes.x(usdPerMillionSamples.value), y: axes.y(samplesPerSecond.value) };
}

function connect(context: Paint, axes: Axes, points: readonly Point[]): void {
  context.beginPath();
  points.forEach((point, index) => {
    const { x, y } = place(axes, point);
    if (index === 0) context.moveTo(x, y);
    else context.lineTo(x, y);
  });
  context.stroke();
}

function note({ label, gpus, batchSize, here, measured, fits, timeNs, samplesPerSecond: rate, usdPerMillionSamples: usd }: Point) {
  const mark = measured ? "" : "~";
  const facts: [string, string][] = [
    ["throughput", `${mark}${significant(rate.value)} samples/s (${significant(rate.low)} to ${significant(rate.high)})`],
    ["price of a million samples", `~${dollars(usd.value)} (${dollars(usd.low)} to ${dollars(usd.high)})`],
  ];
  if (batchSize !== null) facts.push([gpus === 1 ? "batch size" : "batch size of each GPU", count(batchSize)]);
  if (timeNs !== null) facts.push(["iteration", `${mark}${duration(timeNs.value)} (${duration(timeNs.low)} to ${duration(timeNs.high)})`]);
  if (!fits) facts.push(["memory", "too small for this batch"]);
  return { title: label, about: measured ? "measured here" : here ? "predicted for the GPU of the run" : "predicted", facts };
}
