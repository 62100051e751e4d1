// A logarithmic axis.

/** An axis of `pixels` that covers all values, with ticks at 1, 2 and 5. */
export class LogAxis {
  readonly #low: number;
  readonly #span: number;

  constructor(
    values: readonly number[],
    private readonly pixels: number,
  ) {
    const positive = values.filter((value) => value > 0 && Number.isFinite(value));
    const least = Math.log10(Math.min(...positive, 1e300));
    const most = Math.log10(Math.max(...positive, 1e-300));
    const isOne = !(most - least > 0.01);
    this.#low = isOne ? (least + most) / 2 - 0.5 : least - 0.04 * (most - least);
    this.#span = isOne ? 1 : 1.08 * (most - least);
  }

  /** The value at the start of the axis. */
  get low(): number {
    return 10 ** this.#low;
  }

  at(value: number): number {
    return Math.min(this.pixels, Math.max(0, this.unclamped(value)));
  }

  /** The position of a value that may be outside of the axis. */
  unclamped(value: number): number {
    return ((Math.log10(Math.max(value, 1e-300)) - this.#low) / this.#span) * this.pixels;
  }

  ticks(): number[] {
    const found: number[] = [];
    const [first, last] = [this.#low, this.#low + this.#span];
    for (let power = Math.floor(first); power <= Math.ceil(last) && found.length < 30; power += 1) {
      for (const step of last - first > 3 ? [1] : [1, 2, 5]) {
        const value = step * 10 ** power;
        const place = Math.log10(value);
        if (place >= first && place <= last) found.push(value);
      }
    }
    return found;
  }
}
