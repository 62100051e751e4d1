// Highlights the hovered line in the editor. Debounced, so that lines passed on the way are skipped.

import type { Place } from "./document";

const DEBOUNCE_MS = 60;
/** A busy server refuses requests for a moment, or on a loaded machine for seconds: each wait is twice as long as before. */
const RETRY_MS = 250;
const MAX_RETRY_MS = 4_000;
/** A server that keeps refusing, for about a minute, is not asked until the next measurement. */
const MAX_FAILURES = 18;

export class Highlighter {
  #shown: Place | null = null;
  #wanted: Place | null = null;
  #timer = 0;
  #sending = false;
  #failures = 0;
  /** Ends the wait after a refusal. */
  #wake = (): void => undefined;

  /** `send` resolves to whether the editor shows the highlight. */
  constructor(private readonly send: (place: Place | null) => Promise<boolean>) {}

  mark(place: Place | null): void {
    this.#wanted = place;
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => {
      this.retry();
    }, DEBOUNCE_MS);
  }

  /** Tries again what was refused. The server refuses lines of a measurement that is no longer the newest one. */
  retry(): void {
    this.#failures = 0;
    this.#wake();
    void this.#update();
  }

  // One request at a time, because concurrent ones can arrive in another order.
  async #update(): Promise<void> {
    if (this.#sending) return;
    this.#sending = true;
    while (this.#failures < MAX_FAILURES && !isSame(this.#shown, this.#wanted)) {
      const place = this.#wanted;
      if (await this.send(place)) {
        this.#shown = place;
        this.#failures = 0;
      } else {
        await this.#wait(Math.min(RETRY_MS * 2 ** this.#failures, MAX_RETRY_MS));
      }
    }
    this.#sending = false;
  }

  /** Waits after a refusal, unless something else is wanted meanwhile. */
  async #wait(milliseconds: number): Promise<void> {
    this.#failures += 1;
    await new Promise<void>((resolve) => {
      const timer = window.setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

function isSame(a: Place | null, b: Place | null): boolean {
  return a?.file === b?.file && a?.line === b?.line;
}
