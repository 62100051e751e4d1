// Memory over the iteration as a step curve with its peak marked, over bands of what is allocated.

import { AXIS, drawAxis } from "./axis";
import type { Cursor } from "./cursor";
import type { Memory } from "./document";
import { bytes, duration } from "./format";
import { most, type Band } from "./memory_stack";
import { Surface, type Paint } from "./surface";
import { colours } from "./theme";

const TOP = 26;
/** The minimum height of a band with an outline, in pixels. */
const MIN_OUTLINED = 3;

export interface Point {
  atNs: number;
  bytes: number;
  band: { band: Band; bytes: number } | null;
}

export interface CurveEvents {
  /** The hovered time, and the band at the pointer; null when the pointer has left. */
  pointed(point: Point | null, event: PointerEvent | null): void;
}

export class Curve {
  readonly #surface: Surface;
  #memory: Memory | null = null;
  #bands: readonly Band[] = [];

  constructor(
    canvas: HTMLCanvasElement,
    private readonly cursor: Cursor,
    events: CurveEvents,
  ) {
    this.#surface = new Surface(canvas, (context) => {
      this.#draw(context);
    });
    cursor.listen(() => {
      this.#surface.invalidate();
    });
    canvas.addEventListener("pointermove", (event) => {
      const { x, y } = this.#surface.locate(event);
      const share = x / Math.max(1, this.#surface.width);
      const atNs = Math.min(1, Math.max(0, share)) * this.#durationNs;
      cursor.move({ atNs, wholeNs: this.#durationNs });
      const point = this.at(atNs);
      events.pointed(point === null ? null : { ...point, band: this.#bandAt(atNs, y) }, event);
    });
    canvas.addEventListener("pointerleave", () => {
      cursor.move(null);
      events.pointed(null, null);
    });
  }

  show(memory: Memory, bands: readonly Band[]): void {
    this.#memory = memory;
    this.#bands = bands;
    this.#surface.invalidate();
  }

  svg(): string | null {
    return this.#surface.svg("Memory over the iteration");
  }

  get #durationNs(): number {
    return this.#memory?.durationNs ?? 1;
  }

  restyle(): void {
    this.#surface.invalidate();
  }

  /** Returns the allocated bytes at a time: the value of the last step before it. */
  at(atNs: number): { atNs: number; bytes: number } | null {
    const step = this.#memory?.curve[this.#indexAt(atNs)];
    return step === undefined ? null : { atNs, bytes: step[1] };
  }

  /** Returns the band at a time and a height of the canvas. */
  #bandAt(atNs: number, y: number): Point["band"] {
    const at = this.#indexAt(atNs);
    const bottom = this.#surface.height - AXIS;
    let left = ((bottom - y) / Math.max(1, bottom - TOP)) * this.#top;
    if (left < 0) return null;
    for (const band of this.#bands) {
      const size = band.sizes[at] ?? 0;
      if (left < size) return { band, bytes: size };
      left -= size;
    }
    return null;
  }

  // The axis starts at zero, otherwise small changes would look large.
  get #top(): number {
    const { peakBytes = 0, curve = [] } = this.#memory ?? {};
    return curve.reduce((top, [, size]) => Math.max(top, size), peakBytes);
  }

  /** Returns the index of the last step before a time. */
  #indexAt(atNs: number): number {
    const curve = this.#memory?.curve ?? [];
    let low = 0;
    let high = curve.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (curve[middle]![0] <= atNs) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  #draw(context: Paint): void {
    const memory = this.#memory;
    if (memory === null) return;
    const palette = colours();
    const { width, height } = this.#surface;
    const bottom = height - AXIS;
    context.fillStyle = palette.sunken;
    context.fillRect(0, 0, width, height);
    const top = this.#top;
    const y = (size: number) => bottom - (top > 0 ? size / top : 0) * (bottom - TOP);
    const x = (atNs: number) => (atNs / this.#durationNs) * width;

    drawAxis(context, { start: 0, end: this.#durationNs }, width, bottom, height, palette);
    this.#steps(context, memory, x, y, width);
    context.lineTo(width, bottom);
    context.lineTo(0, bottom);
    context.fillStyle = palette.memorySoft;
    context.fill();
    this.#stack(context, memory, x, y, width);
    this.#steps(context, memory, x, y, width);
    context.strokeStyle = palette.memory;
    context.lineWidth = 1.5;
    context.stroke();

    context.font = `11px ${palette.sans}`;
    context.textBaseline = "middle";
    if (memory.peakAtNs !== null) this.#peak(context, memory, x(memory.peakAtNs), y(memory.peakBytes), width);
    const pointed = this.cursor.on(this.#durationNs);
    if (pointed !== null) {
      const at = Math.round(x(pointed));
      context.fillStyle = palette.quiet;
      context.fillRect(at, 0, 1, height);
      const point = this.at(pointed);
      if (point !== null) {
        context.fillStyle = palette.text;
        context.beginPath();
        context.arc(at + 0.5, y(point.bytes), 3, 0, 2 * Math.PI);
        context.fill();
      }
    }
  }

  /** Draws the bands on top of each other. */
  #stack(
    context: Paint,
    { curve }: Memory,
    x: (atNs: number) => number,
    y: (size: number) => number,
    width: number,
  ): void {
    const palette = colours();
    const below = new Float64Array(curve.length);
    const right = (at: number) => (at + 1 < curve.length ? x(curve[at + 1]![0]) : width);
    for (const band of this.#bands) {
      // A band may be gone for a while: each part is an area of its own.
      for (let start = 0; start < curve.length; start += 1) {
        if (!(band.sizes[start]! > 0)) continue;
        let end = start;
        while (end + 1 < curve.length && band.sizes[end + 1]! > 0) end += 1;
        context.beginPath();
        // The curve begins with the iteration, also if its first step comes later.
        context.moveTo(start === 0 ? 0 : x(curve[start]![0]), y(below[start]!));
        for (let at = start; at <= end; at += 1) {
          const from = at === 0 ? 0 : x(curve[at]![0]);
          context.lineTo(from, y(below[at]! + band.sizes[at]!));
          context.lineTo(right(at), y(below[at]! + band.sizes[at]!));
        }
        for (let at = end; at >= start; at -= 1) {
          context.lineTo(right(at), y(below[at]!));
          context.lineTo(at === 0 ? 0 : x(curve[at]![0]), y(below[at]!));
        }
        context.fillStyle = palette.kinds[band.colour] ?? palette.memorySoft;
        context.fill();
        // Lines around many thin bands would hide them.
        if (y(0) - y(most(band)) >= MIN_OUTLINED) {
          context.strokeStyle = palette.surface;
          context.lineWidth = 0.75;
          context.stroke();
        }
        start = end;
      }
      band.sizes.forEach((size, at) => { below[at]! += size; });
    }
  }

  #peak(context: Paint, memory: Memory, x: number, y: number, width: number): void {
    const palette = colours();
    context.fillStyle = palette.memory;
    context.beginPath();
    context.arc(Math.min(width - 4, Math.max(4, x)), y, 4, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = palette.text;
    const label = `peak ${bytes(memory.peakBytes)} at ${duration(memory.peakAtNs ?? 0)}`;
    const long = context.measureText(label).width;
    context.fillText(label, Math.max(4, Math.min(width - long - 4, x - long / 2)), y - 13);
  }

  // Many steps may fall on one pixel. Draw their minimum and maximum so that no peak is lost.
  #steps(
    context: Paint,
    memory: Memory,
    x: (atNs: number) => number,
    y: (size: number) => number,
    width: number,
  ): void {
    const { curve } = memory;
    context.beginPath();
    let last = curve[0]?.[1] ?? 0;
    context.moveTo(0, y(last));
    for (let at = 0; at < curve.length; ) {
      const pixel = Math.floor(x(curve[at]![0]));
      let least = curve[at]![1];
      let most = least;
      context.lineTo(pixel, y(last));
      for (; at < curve.length && Math.floor(x(curve[at]![0])) === pixel; at += 1) {
        last = curve[at]![1];
        least = Math.min(least, last);
        most = Math.max(most, last);
      }
      context.lineTo(pixel, y(most));
      context.lineTo(pixel, y(least));
      context.lineTo(pixel, y(last));
    }
    context.lineTo(width, y(last));
  }
}
