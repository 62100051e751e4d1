// A canvas at device resolution. It redraws at most once per frame, and only after a change.

export class Surface {
  width = 0;
  height = 0;
  readonly #context: CanvasRenderingContext2D;
  #frame = 0;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly draw: (context: CanvasRenderingContext2D) => void,
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
    this.#context.setTransform(scale, 0, 0, scale, 0, 0);
    if (this.width === 0 || this.height === 0) return;
    // Resizing clears the canvas. Redraw now to avoid a blank frame.
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.draw(this.#context);
  }
}
