// The line at the top that says what is wrong, and what the page does about it.

import { button, byId, element, fill, write } from "./dom";

const SHOWN_MS = 8_000;

export class Notice {
  readonly #lost = byId("lost");
  readonly #notice = byId("notice");
  // The seconds are for the eye: a screen reader hears once that the connection is lost.
  readonly #seconds = element("span", { "aria-hidden": "true" });
  #timer = 0;
  #countdown = 0;
  #again: () => void = () => undefined;

  connected(): void {
    clearInterval(this.#countdown);
    this.#lost.hidden = true;
    fill(this.#lost);
  }

  lost(delayMs: number, again: () => void): void {
    this.#again = again;
    if (this.#lost.hidden) {
      this.#lost.hidden = false;
      fill(
        this.#lost,
        element("span", {}, "Lost the connection to Ridgeline. Showing the last results. "),
        this.#seconds,
        button("Retry now", {}, () => {
          clearInterval(this.#countdown);
          write(this.#seconds, "Reconnecting…");
          this.#again();
        }),
      );
    }
    let left = Math.round(delayMs / 1000);
    const tell = () => {
      write(this.#seconds, left > 0 ? `Retrying in ${left} s.` : "Reconnecting…");
      left -= 1;
    };
    tell();
    clearInterval(this.#countdown);
    this.#countdown = window.setInterval(tell, 1000);
  }

  /** The document came, so what was said about a failed fetch is over. */
  fetched(): void {
    if (this.#timer === 0) this.#notice.hidden = true;
  }

  /** Stays until the next document comes. */
  failed(text: string): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#notice.hidden = false;
    write(this.#notice, text);
  }

  /** Goes away by itself. */
  say(text: string): void {
    this.failed(text);
    this.#timer = window.setTimeout(() => {
      this.#timer = 0;
      this.#notice.hidden = true;
    }, SHOWN_MS);
  }
}
