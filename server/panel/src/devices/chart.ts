// The chart: each GPU is a point with its ranges. Those on the Pareto front are connected and labelled.

import { duration } from "../format";
import { LogAxis } from "../log_axis";
import { Surface, type Paint } from "../surface";
import { colours } from "../theme";
import type { Tooltip } from "../tooltip";
import type { Device } from "./document";
import { frontier, points, type Point } from "./scatter";
import { dollars, estimated, memory } from "./words";

const LEFT = 58;
const BOTTOM = 40;
const TOP = 14;
const RIGHT = 16;
/** The pointer hits a point within this distance, in pixels. */
const NEAR = 12;

/** Maps a price and a time to canvas pixels. */
interface Axes {
  usd: LogAxis;
  time: LogAxis;
  x: (usd: number) => number;
  y: (timeNs: number) => number;
}

export class DeviceChart {
  readonly #surface: Surface;
  #points: Point[] = [];
  #unit = "";
  #pointed: Point | null = null;

  constructor(canvas: HTMLCanvasElement, tooltip: Tooltip) {
    this.#surface = new Surface(canvas, (context) => {
      this.#draw(context);
    });
    canvas.addEventListener("pointermove", (event) => {
      const point = this.#near(this.#surface.locate(event));
      if (point === null) tooltip.hide();
      else tooltip.show(note(point, this.#unit), event);
      if (point !== this.#pointed) this.#surface.invalidate();
      this.#pointed = point;
    });
    canvas.addEventListener("pointerleave", () => {
      tooltip.hide();
      this.#pointed = null;
      this.#surface.invalidate();
    });
  }

  /** `unit` is what the price covers: an epoch, or a million samples. */
  show(devices: readonly Device[], unit: string): number {
    this.#points = points(devices);
    this.#unit = unit;
    this.#pointed = null;
    this.#surface.invalidate();
    return this.#points.length;
  }

  restyle(): void {
    this.#surface.invalidate();
  }

  svg(): string | null {
    return this.#points.length === 0 ? null : this.#surface.svg(`Iteration time against price of ${this.#unit}`);
  }

  #axes(): Axes {
    const { width, height } = this.#surface;
    const usd = new LogAxis(this.#points.map((point) => point.usd.value), Math.max(1, width - LEFT - RIGHT));
    const time = new LogAxis(this.#points.map((point) => point.timeNs.value), Math.max(1, height - TOP - BOTTOM));
    return {
      usd,
      time,
      x: (value) => LEFT + usd.at(value),
      y: (value) => height - BOTTOM - time.at(value),
    };
  }

  #near({ x, y }: { x: number; y: number }): Point | null {
    const axes = this.#axes();
    let best: Point | null = null;
    let least = NEAR;
    for (const point of this.#points) {
      const distance = Math.hypot(axes.x(point.usd.value) - x, axes.y(point.timeNs.value) - y);
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
    context.lineWidth = 2;
    context.beginPath();
    for (const point of best) context.lineTo(axes.x(point.usd.value), axes.y(point.timeNs.value));
    context.stroke();
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
    for (const value of axes.time.ticks()) {
      const y = Math.round(axes.y(value));
      context.fillStyle = palette.grid;
      context.fillRect(LEFT, y, width - LEFT - RIGHT, 1);
      if (above - y < 15) continue;
      above = y;
      context.fillStyle = palette.quiet;
      const label = duration(value);
      context.fillText(label, LEFT - 6 - context.measureText(label).width, y);
    }
    context.fillStyle = palette.quiet;
    const title = `price of ${this.#unit} →`;
    context.fillText(title, width - RIGHT - context.measureText(title).width, height - 10);
    context.fillText("↑ iteration time", 4, 7);
  }

  #point(context: Paint, axes: Axes, point: Point): void {
    const palette = colours();
    const { device, timeNs, usd } = point;
    const x = axes.x(usd.value);
    const y = axes.y(timeNs.value);
    const noRoom = device.fits === false;
    const colour = device.here ? palette.memory : palette.accent;
    // The price is proportional to the time, so one stroke shows the range of both.
    const isMarked = point === this.#pointed || device.here;
    context.strokeStyle = isMarked && !noRoom ? colour : palette.edge;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(axes.x(usd.low), axes.y(timeNs.low));
    context.lineTo(axes.x(usd.high), axes.y(timeNs.high));
    context.stroke();
    context.beginPath();
    context.arc(x, y, device.here || point === this.#pointed ? 6 : 4, 0, 2 * Math.PI);
    context.lineWidth = 1.5;
    context.strokeStyle = noRoom ? palette.quiet : colour;
    context.fillStyle = noRoom ? palette.surface : colour;
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
    const here = this.#points.filter(({ device }) => device.here);
    for (const { device, timeNs, usd } of [...here, ...best]) {
      const long = context.measureText(device.name).width;
      const x = axes.x(usd.value) + 9;
      const left = x + long > width - 4 ? x - long - 18 : x;
      const y = axes.y(timeNs.value);
      const isFree = taken.every((other) => left > other.right || left + long < other.left || Math.abs(y - other.y) > 12);
      if (!isFree || left < LEFT) continue;
      taken.push({ left, right: left + long, y });
      context.fillText(device.name, left, y);
    }
  }
}

function note({ device, timeNs, usd }: Point, unit: string) {
  const facts: [string, string][] = [
    ["iteration", `${estimated(device, duration(timeNs.value))} (${duration(timeNs.low)} to ${duration(timeNs.high)})`],
    [`price of ${unit}`, `~${dollars(usd.value)} (${dollars(usd.low)} to ${dollars(usd.high)})`],
    ["memory", memory(device)],
  ];
  return { title: device.name, about: device.here ? "measured here" : "predicted", facts };
}
