// The instant at which the person points, shared by everything that has the same axis of time.

interface Instant {
  atNs: number;
  /** How long the axis is that it was pointed at. */
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

  /** The instant on an axis of this length; null on another one, such as that of a longer recording. */
  on(wholeNs: number): number | null {
    const instant = this.#instant;
    return instant !== null && Math.abs(instant.wholeNs - wholeNs) <= 0.01 * wholeNs ? instant.atNs : null;
  }
}
