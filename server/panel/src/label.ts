// Text that fits into boxes on a canvas.

/** Cuts texts to widths in one font, measuring each text once. */
export class Labels {
  readonly #widths = new Map<string, number>();

  constructor(private readonly font: string) {}

  /** The text, or its two ends: names often differ at the end alone (`blocks.10`). */
  fit(context: CanvasRenderingContext2D, text: string, room: number): string {
    const width = this.width(context, text);
    if (width <= room) return text;
    // Letters differ in width; measuring each cut text would cost more than a little room.
    const characters = Math.floor((text.length * room * 0.93) / width) - 1;
    if (characters < 2) return "";
    // Of few letters more are the end's, because that is where `blocks.1` and `blocks.11` differ.
    const tail = Math.floor(characters / (characters < 8 ? 2 : 3));
    return `${text.slice(0, characters - tail)}…${text.slice(text.length - tail)}`;
  }

  width(context: CanvasRenderingContext2D, text: string): number {
    let width = this.#widths.get(text);
    if (width === undefined) {
      if (this.#widths.size > 20_000) this.#widths.clear();
      context.font = this.font;
      width = context.measureText(text).width;
      this.#widths.set(text, width);
    }
    return width;
  }
}
