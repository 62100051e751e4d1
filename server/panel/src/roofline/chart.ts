// The roofline chart (Williams, Waterman and Patterson, 2009): each operator of a line is a point, whose area is its
// time. The device's ceilings limit the points from above. The table has the same information.

import { PHASES } from "../document";
import { rate, significant } from "../format";
import { LogAxis } from "../log_axis";
import { Surface, type Paint } from "../surface";
import { colours, type Palette } from "../theme";
import type { Point, Roofline } from "./document";

const LEFT = 84;
const RIGHT = 18;
const TOP = 20;
const BOTTOM = 42;
const LEAST_RADIUS = 3;
const MOST_RADIUS = 20;
/** The pointer hits a point within this distance of its edge, in pixels. */
const NEAR = 6;
/** The number of points with a name, if there is room. */
const NAMED = 6;
/** Enough for the names to keep off the slope. */
const SLOPE_BOXES = 60;
/** Circles of this radius have room for the initial of their phase. */
const INITIAL = 7;

export interface RooflineEvents {
  pointed(point: Point | null, event: PointerEvent | null): void;
  opened(point: Point): void;
}

/** A part of the chart that no name may cover. */
interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

interface Axes {
  x: (intensity: number) => number;
  y: (flopsPerSecond: number) => number;
  intensity: LogAxis;
  rate: LogAxis;
}

export class RooflineChart {
  readonly #surface: Surface;
  #roofline: Roofline | null = null;
  /** The time of the largest point. */
  #mostNs = 1;
  #pointed: Point | null = null;

  constructor(
    canvas: HTMLCanvasElement,
    private readonly placeName: (point: Point) => string,
    events: RooflineEvents,
  ) {
    this.#surface = new Surface(canvas, (context) => {
      this.#draw(context);
    });
    const point = (to: Point | null, event: PointerEvent | null) => {
      if (to !== this.#pointed) this.#surface.invalidate();
      this.#pointed = to;
      canvas.classList.toggle("pointing", to?.place != null);
      events.pointed(to, event);
    };
    canvas.addEventListener("pointermove", (event) => {
      point(this.#near(this.#surface.locate(event)), event);
    });
    canvas.addEventListener("pointerleave", () => {
      point(null, null);
    });
    canvas.addEventListener("click", (event) => {
      const found = this.#near(this.#surface.locate(event));
      if (found !== null) events.opened(found);
    });
  }

  show(roofline: Roofline): void {
    this.#roofline = roofline;
    this.#mostNs = Math.max(1, ...roofline.points.map(({ timeNs }) => timeNs));
    this.#pointed = null;
    this.#surface.invalidate();
  }

  restyle(): void {
    this.#surface.invalidate();
  }

  svg(): string | null {
    return (this.#roofline?.points.length ?? 0) === 0 ? null : this.#surface.svg("Roofline of one iteration");
  }

  #axes({ points, bandwidth, peaks }: Roofline): Axes {
    const { width, height } = this.#surface;
    const shown = peaks.filter(({ name }) => points.some(({ peak }) => peak === name));
    const ridges = bandwidth === null ? [] : shown.map(({ flopsPerSecond }) => flopsPerSecond / bandwidth);
    const intensity = new LogAxis([...points.map((point) => point.intensity), ...ridges], Math.max(1, width - LEFT - RIGHT));
    const rates = [...points.map((point) => point.rate), ...shown.map(({ flopsPerSecond }) => flopsPerSecond)];
    const rateAxis = new LogAxis(rates, Math.max(1, height - TOP - BOTTOM));
    return {
      intensity,
      rate: rateAxis,
      x: (value) => LEFT + intensity.at(value),
      y: (value) => height - BOTTOM - rateAxis.at(value),
    };
  }

  #near({ x, y }: { x: number; y: number }): Point | null {
    if (this.#roofline === null) return null;
    const { points } = this.#roofline;
    const axes = this.#axes(this.#roofline);
    let best: Point | null = null;
    let least = NEAR;
    for (const point of points) {
      const distance = Math.hypot(axes.x(point.intensity) - x, axes.y(point.rate) - y) - this.#radius(point);
      // Small points are on top of large ones.
      if (distance <= Math.max(0, least)) [best, least] = [point, distance];
    }
    return best;
  }

  #draw(context: Paint): void {
    const palette = colours();
    const { width, height } = this.#surface;
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, width, height);
    const roofline = this.#roofline;
    if (roofline === null || roofline.points.length === 0) return;
    const axes = this.#axes(roofline);
    context.font = `11px ${palette.sans}`;
    context.textBaseline = "middle";
    this.#drawAxes(context, axes, palette);
    const taken = this.#ceilings(context, axes, roofline, palette);
    for (const point of roofline.points) {
      circle(context, axes, point, this.#radius(point), point === this.#pointed, palette);
    }
    this.#names(context, axes, roofline.points, taken, palette);
  }

  /** The area is the time. */
  #radius({ timeNs }: Point): number {
    return Math.max(LEAST_RADIUS, MOST_RADIUS * Math.sqrt(timeNs / this.#mostNs));
  }

  #drawAxes(context: Paint, axes: Axes, palette: Palette): void {
    const { width, height } = this.#surface;
    const bottom = height - BOTTOM;
    let free = -Infinity;
    for (const value of axes.intensity.ticks()) {
      const x = Math.round(axes.x(value));
      context.fillStyle = palette.grid;
      context.fillRect(x, TOP, 1, bottom - TOP);
      const label = value < 1 ? String(Number(value.toPrecision(1))) : significant(value).replace(/\.0$/, "");
      const long = context.measureText(label).width;
      if (x - long / 2 < free || x + long / 2 > width) continue;
      free = x + long / 2 + 8;
      context.fillStyle = palette.quiet;
      context.fillText(label, x - long / 2, bottom + 11);
    }
    let above = Infinity;
    for (const value of axes.rate.ticks()) {
      const y = Math.round(axes.y(value));
      context.fillStyle = palette.grid;
      context.fillRect(LEFT, y, width - LEFT - RIGHT, 1);
      if (above - y < 15) continue;
      above = y;
      context.fillStyle = palette.quiet;
      const label = rate(value, "FLOP/s").replace(".0 ", " ");
      context.fillText(label, LEFT - 8 - context.measureText(label).width, y);
    }
    context.fillStyle = palette.quiet;
    const title = "FLOPs per byte →";
    context.fillText(title, width - RIGHT - context.measureText(title).width, height - 10);
    context.fillText("↑ FLOP/s", 4, 8);
  }

  // Returns the boxes of its labels.
  #ceilings(context: Paint, axes: Axes, { points, bandwidth, peaks }: Roofline, palette: Palette): Box[] {
    const labels: Box[] = [];
    const write = (label: string, left: number, y: number) => {
      context.fillStyle = palette.text;
      context.fillText(label, left, y);
      labels.push({ left, right: left + context.measureText(label).width, top: y - 7, bottom: y + 7 });
    };
    const { width, height } = this.#surface;
    const shown = peaks.filter(({ name }) => points.some(({ peak }) => peak === name));
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT - RIGHT, height - BOTTOM);
    context.clip();
    context.strokeStyle = palette.text;
    context.lineWidth = 1.5;
    for (const { name, flopsPerSecond } of shown) {
      const ridge = bandwidth === null ? null : flopsPerSecond / bandwidth;
      const y = axes.y(flopsPerSecond);
      context.beginPath();
      if (ridge !== null && bandwidth !== null) {
        // The axes are logarithmic, so the slope is a straight line that may begin far outside.
        const least = axes.intensity.low;
        context.moveTo(axes.x(least), height - BOTTOM - axes.rate.unclamped(bandwidth * least));
        context.lineTo(axes.x(ridge), y);
      } else {
        context.moveTo(LEFT, y);
      }
      context.lineTo(width - RIGHT, y);
      context.stroke();
      const label = `${name} ${rate(flopsPerSecond, "FLOP/s")}`;
      const start = (text: string) => width - RIGHT - context.measureText(text).width - 4;
      // On a narrow chart, the whole label would be on the slope.
      const fits = ridge === null || start(label) > axes.x(ridge);
      write(fits ? label : name, start(fits ? label : name), y - 8);
    }
    const highest = Math.max(0, ...shown.map(({ flopsPerSecond }) => flopsPerSecond));
    if (bandwidth !== null && highest > 0) {
      const label = `bandwidth ${rate(bandwidth, "B/s")}`;
      const long = context.measureText(label).width;
      // Left of the upper part of the slope.
      const at = highest / bandwidth / 1.6;
      write(label, Math.max(LEFT + 4, axes.x(at) - long - 8), height - BOTTOM - axes.rate.unclamped(bandwidth * at));
      labels.push(...this.#slope(axes, bandwidth, highest));
    }
    context.restore();
    return labels;
  }

  /** Boxes along the slope of the bandwidth. */
  #slope(axes: Axes, bandwidth: number, highest: number): Box[] {
    const [first, last] = [axes.intensity.unclamped(axes.intensity.low), axes.intensity.unclamped(highest / bandwidth)];
    return Array.from({ length: SLOPE_BOXES }, (_, at): Box => {
      const share = (at + 0.5) / SLOPE_BOXES;
      const x = first + share * (last - first);
      const value = axes.intensity.low * (highest / bandwidth / axes.intensity.low) ** share;
      const y = axes.y(bandwidth * value);
      return { left: LEFT + x - 3, right: LEFT + x + 3, top: y - 3, bottom: y + 3 };
    });
  }

  // The most expensive points, where there is room on the right or left.
  #names(context: Paint, axes: Axes, points: readonly Point[], labels: readonly Box[], palette: Palette): void {
    const { width } = this.#surface;
    context.font = `11px ${palette.sans}`;
    context.fillStyle = palette.text;
    const circles = points.map((point): Box => {
      const [x, y, size] = [axes.x(point.intensity), axes.y(point.rate), this.#radius(point)];
      return { left: x - size, right: x + size, top: y - size, bottom: y + size };
    });
    const taken = [...labels, ...circles];
    for (const [at, point] of points.slice(0, NAMED).entries()) {
      const label = this.placeName(point);
      const long = context.measureText(label).width;
      const [y, own] = [axes.y(point.rate), circles[at]!];
      const room = [own.right + 4, own.left - 4 - long]
        .map((left): Box => ({ left, right: left + long, top: y - 7, bottom: y + 7 }))
        .find((box) => box.left >= LEFT && box.right <= width - 4 && !taken.some((other) => overlap(box, other)));
      if (label === "" || room === undefined) continue;
      taken.push(room);
      context.fillText(label, room.left, y);
    }
  }
}

function overlap(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

function circle(context: Paint, axes: Axes, point: Point, size: number, isPointed: boolean, palette: Palette): void {
  const phase = PHASES.findIndex((name) => name === point.phase);
  const colour = palette.phase[phase] ?? palette.idle;
  const [x, y] = [axes.x(point.intensity), axes.y(point.rate)];
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.globalAlpha = palette.highContrast ? 1 : 0.7;
  context.fillStyle = palette.highContrast ? palette.surface : colour;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = isPointed ? palette.text : palette.highContrast ? colour : palette.surface;
  context.lineWidth = isPointed || palette.highContrast ? 2 : 1;
  context.stroke();
  // "other" has the same initial as "optimizer".
  if (!palette.highContrast || size < INITIAL || point.phase === "other") return;
  context.fillStyle = palette.text;
  const initial = point.phase.charAt(0).toUpperCase();
  context.fillText(initial, x - context.measureText(initial).width / 2, y);
}
