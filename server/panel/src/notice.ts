// The notice at the top of the page: what is wrong, and what the page does about it.

import { button, byId, element, fill, write } from "./dom";

const SHOWN_MS = 8_000;

export class Notice {
  readonly #lost = byId("lost");
  readonly #notice = byId("notice");
  // The countdown is visual only: a screen reader announces the lost connection once.
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

  /** Clears the notice of a failed fetch, now that the document arrived. */
  fetched(): void {
    if (this.#timer === 0) this.#notice.hidden = true;
  }

  /** Shows an error until the next document arrives. */
  failed(text: string): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#notice.hidden = false;
    write(this.#notice, text);
  }

  /** Shows a message that disappears by itself. */
  say(text: string): void {
    this.failed(text);
    this.#timer = window.setTimeout(() => {
      this.#timer = 0;
      this.#notice.hidden = true;
    }, SHOWN_MS);
  }
}
