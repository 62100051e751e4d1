// The time that the user points at, shared by all views with the same time axis.

interface Instant {
  atNs: number;
  /** Length of the time axis that the cursor belongs to. */
  wholeNs: number;
}

export class Cursor {
  #instant: Instant | null = null;
  readonly #listeners: (() => void)[] = [];

  listen(moved: () => void): void {
    this.#listeners.push(moved);
  }

  move(instant: Instant | null): void {
    this.#instant = instant;
    for (const moved of this.#listeners) moved();
  }

  /** Returns the time on an axis of this length, or null if the cursor belongs to a different axis. */
  on(wholeNs: number): number | null {
    const instant = this.#instant;
    return instant !== null && Math.abs(instant.wholeNs - wholeNs) <= 0.01 * wholeNs ? instant.atNs : null;
  }
}
