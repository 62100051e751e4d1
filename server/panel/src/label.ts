// Shortens text to fit into boxes on a canvas.

import type { Paint } from "./surface";

/** Shortens texts to a width in one font. Each text is measured once. */
export class Labels {
  readonly #widths = new Map<string, number>();

  constructor(private readonly font: string) {}

  /** Returns the text, or its two ends: names often differ only at the end (`blocks.10`). */
  fit(context: Paint, text: string, room: number): string {
    const width = this.width(context, text);
    if (width <= room) return text;
    // An approximation, because letters differ in width. Measuring every shortened text would cost more than the space.
    const characters = Math.floor((text.length * room * 0.93) / width) - 1;
    if (characters < 2) return "";
    // With few letters left, favour the end, where `blocks.1` and `blocks.11` differ.
    const tail = Math.floor(characters / (characters < 8 ? 2 : 3));
    return `${text.slice(0, characters - tail)}…${text.slice(text.length - tail)}`;
  }

  width(context: Paint, text: string): number {
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
