// Positions of GPUs in the chart of time against price, on logarithmic axes.

import type { Estimate } from "../values";
import type { Device } from "./document";

export interface Point {
  device: Device;
  timeNs: Estimate;
  usd: Estimate;
}

/** Returns the price of an epoch if its length is known, else of a million samples. */
export function price(device: Device): Estimate | null {
  return device.usdPerEpoch ?? device.usdPerMillionSamples;
}

/** Returns the GPUs that have a price above zero. */
export function points(devices: readonly Device[]): Point[] {
  return devices.flatMap((device) => {
    const usd = price(device);
    return usd !== null && usd.low > 0 && device.timeNs.low > 0 ? [{ device, timeNs: device.timeNs, usd }] : [];
  });
}

/** Returns the Pareto front of time and price, without GPUs that are too small for the iteration. Fastest first. */
export function frontier(all: readonly Point[]): Point[] {
  const fitting = all.filter(({ device }) => device.fits !== false);
  const ordered = [...fitting].sort((a, b) => a.timeNs.value - b.timeNs.value || a.usd.value - b.usd.value);
  let cheapest = Infinity;
  return ordered.filter(({ usd }) => {
    const isCheaper = usd.value < cheapest;
    cheapest = Math.min(cheapest, usd.value);
    return isCheaper;
  });
}

/** Returns a logarithmic axis of `pixels` that covers all values, with ticks at 1, 2 and 5. */
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

  at(value: number): number {
    const share = (Math.log10(Math.max(value, 1e-300)) - this.#low) / this.#span;
    return Math.min(1, Math.max(0, share)) * this.pixels;
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
