// The instant at which the person points, shared by everything that has an axis of time.

export class Cursor {
  /** A share of the iteration, or null. */
  share: number | null = null;
  readonly #listeners: (() => void)[] = [];

  listen(moved: () => void): void {
    this.#listeners.push(moved);
  }

  move(share: number | null): void {
    if (share === this.share) return;
    this.share = share;
    for (const moved of this.#listeners) moved();
  }
}
