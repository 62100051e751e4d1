// Highlights the hovered line in the editor. Debounced, so that lines passed on the way are skipped.

import type { Place } from "./document";

const DEBOUNCE_MS = 60;

export class Highlighter {
  #sent: Place | null = null;
  #wanted: Place | null = null;
  #timer = 0;

  constructor(private readonly send: (place: Place | null) => void) {}

  mark(place: Place | null): void {
    this.#wanted = place;
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => {
      const { file, line } = this.#wanted ?? { file: -1, line: 0 };
      const same = this.#sent === null ? this.#wanted === null : this.#sent.file === file && this.#sent.line === line;
      if (same) return;
      this.#sent = this.#wanted;
      this.send(this.#wanted);
    }, DEBOUNCE_MS);
  }
}
