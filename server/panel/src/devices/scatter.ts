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
