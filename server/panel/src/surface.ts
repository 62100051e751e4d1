// A canvas at device resolution. It redraws at most once per frame, and only after a change.

import { SvgContext } from "./export/svg_context";

/** What charts use of a canvas. `SvgContext` has it, too. */
export type Paint = Pick<
  CanvasRenderingContext2D,
  | "fillStyle"
  | "strokeStyle"
  | "lineWidth"
  | "font"
  | "textBaseline"
  | "globalAlpha"
  | "fillRect"
  | "strokeRect"
  | "fillText"
  | "measureText"
  | "beginPath"
  | "moveTo"
  | "lineTo"
  | "arc"
  | "rect"
  | "clip"
  | "fill"
  | "stroke"
  | "setLineDash"
  | "save"
  | "restore"
  | "createPattern"
>;

export class Surface {
  width = 0;
  height = 0;
  /** The latest size that was not empty. */
  #shown = { width: 0, height: 0 };
  readonly #context: CanvasRenderingContext2D;
  #frame = 0;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly draw: (context: Paint) => void,
  ) {
    const context = canvas.getContext("2d", { alpha: false });
    if (context === null) throw new Error("this browser does not support 2D canvas");
    this.#context = context;
    new ResizeObserver(() => {
      this.#fit();
    }).observe(canvas);
  }

  invalidate(): void {
    if (this.#frame !== 0 || this.width === 0 || this.height === 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw(this.#context);
    });
  }

  /** Returns what the chart shows, or showed before it was hidden, as SVG. */
  svg(title: string): string | null {
    const { width, height } = this;
    if (this.#shown.width === 0) return null;
    Object.assign(this, this.#shown);
    const context = new SvgContext(this.width, this.height);
    this.draw(context);
    Object.assign(this, { width, height });
    return context.finish(title);
  }

  /** Returns the pointer's position in canvas pixels. */
  locate(event: MouseEvent): { x: number; y: number } {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left - this.canvas.clientLeft, y: event.clientY - box.top - this.canvas.clientTop };
  }

  #fit(): void {
    // More than two device pixels per CSS pixel is not visible, and costs time.
    const scale = Math.min(2, Math.max(1, window.devicePixelRatio));
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    if (this.width === 0 || this.height === 0) return;
    // Not `scale`: with a fraction such as 1.25, the last column would stay black.
    this.#context.setTransform(this.canvas.width / this.width, 0, 0, this.canvas.height / this.height, 0, 0);
    this.#shown = { width: this.width, height: this.height };
    // Resizing clears the canvas. Redraw now to avoid a blank frame.
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.draw(this.#context);
  }
}
