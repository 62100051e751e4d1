// Memory over the iteration as a step curve with its peak marked.

import { AXIS, drawAxis } from "./axis";
import type { Cursor } from "./cursor";
import type { Memory } from "./document";
import { bytes, duration } from "./format";
import { Surface, type Paint } from "./surface";
import { colours } from "./theme";

const TOP = 26;

export interface CurveEvents {
  /** The hovered time; null when the pointer has left. */
  pointed(point: { atNs: number; bytes: number } | null, event: PointerEvent | null): void;
}

export class Curve {
  readonly #surface: Surface;
  #memory: Memory | null = null;

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
      const share = this.#surface.locate(event).x / Math.max(1, this.#surface.width);
      const atNs = Math.min(1, Math.max(0, share)) * this.#durationNs;
      cursor.move({ atNs, wholeNs: this.#durationNs });
      events.pointed(this.at(atNs), event);
    });
    canvas.addEventListener("pointerleave", () => {
      cursor.move(null);
      events.pointed(null, null);
    });
  }

  show(memory: Memory): void {
    this.#memory = memory;
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
    const curve = this.#memory?.curve ?? [];
    let low = 0;
    let high = curve.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (curve[middle]![0] <= atNs) low = middle + 1;
      else high = middle;
    }
    const step = curve[Math.max(0, low - 1)];
    return step === undefined ? null : { atNs, bytes: step[1] };
  }

  #draw(context: Paint): void {
    const memory = this.#memory;
    if (memory === null) return;
    const palette = colours();
    const { width, height } = this.#surface;
    const bottom = height - AXIS;
    context.fillStyle = palette.sunken;
    context.fillRect(0, 0, width, height);
    // The axis starts at zero, otherwise small changes would look large.
    let top = memory.peakBytes;
    for (const [, size] of memory.curve) top = Math.max(top, size);
    const y = (size: number) => bottom - (top > 0 ? size / top : 0) * (bottom - TOP);
    const x = (atNs: number) => (atNs / this.#durationNs) * width;

    drawAxis(context, { start: 0, end: this.#durationNs }, width, bottom, height, palette);
    this.#steps(context, memory, x, y, width);
    context.lineTo(width, bottom);
    context.lineTo(0, bottom);
    context.fillStyle = palette.memorySoft;
    context.fill();
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
