// The points of the chart of throughput against price: GPUs, and several GPUs in one machine.

import type { Estimate } from "../values";
import type { Device, Devices, Machine } from "./document";

export interface Point {
  /** A GPU, such as `L40S`, or a machine, such as `4 × L40S`. */
  label: string;
  model: string;
  gpus: number;
  /** Samples of each GPU; null if unknown. */
  batchSize: number | null;
  /** The iteration ran on this GPU, perhaps with another batch size. */
  here: boolean;
  measured: boolean;
  /** Whether the iteration may fit into the memory. */
  fits: boolean;
  timeNs: Estimate | null;
  samplesPerSecond: Estimate;
  usdPerMillionSamples: Estimate;
}

/** Returns whether the GPUs have the batch sizes that keep them busy, instead of that of the run. */
export function hasOwnBatches({ rows }: Devices): boolean {
  return rows.some(({ batch }) => batch?.samplesPerSecond != null && batch.usdPerMillionSamples !== null);
}

/**
 * Returns what has a price and a throughput. All GPUs have the batch sizes that keep them busy, or all have that of the
 * run: with a small one, an iteration takes equally long on all of them.
 */
export function points(devices: Devices): Point[] {
  const isBusy = hasOwnBatches(devices);
  const gpus = devices.rows.map((device) => (isBusy ? withOwnBatch(device, devices.batchSize) : withBatchOfRun(device, devices.batchSize)));
  const several = devices.machines.filter((machine) => machine.gpus > 1).map(ofMachine);
  return [...gpus, ...several].filter((point) => point !== null);
}

function withOwnBatch(device: Device, ofRun: number | null): Point | null {
  const { batch } = device;
  if (batch === null) return null;
  const isOfRun = batch.size === ofRun;
  return point({
    ...named(device),
    batchSize: batch.size,
    measured: device.here && isOfRun,
    fits: true,
    timeNs: isOfRun ? device.timeNs : null,
    samplesPerSecond: batch.samplesPerSecond,
    usdPerMillionSamples: batch.usdPerMillionSamples,
  });
}

function withBatchOfRun(device: Device, batchSize: number | null): Point | null {
  const { timeNs, samplesPerSecond, usdPerMillionSamples } = device;
  return point({
    ...named(device),
    batchSize,
    measured: device.here,
    fits: device.fits !== false,
    timeNs,
    samplesPerSecond,
    usdPerMillionSamples,
  });
}

function named({ name, here }: Device) {
  return { label: name, model: name, gpus: 1, here };
}

function ofMachine({ name, gpus, batchSize, measured, timeNs, samplesPerSecond, usdPerMillionSamples }: Machine): Point | null {
  const label = `${gpus} × ${name}`;
  return point({ label, model: name, gpus, batchSize, here: false, measured, fits: true, timeNs, samplesPerSecond, usdPerMillionSamples });
}

type Maybe = Omit<Point, "samplesPerSecond" | "usdPerMillionSamples"> & Record<"samplesPerSecond" | "usdPerMillionSamples", Estimate | null>;

/** Returns null for what has no place on logarithmic axes. */
function point(maybe: Maybe): Point | null {
  const { samplesPerSecond, usdPerMillionSamples } = maybe;
  if (samplesPerSecond === null || usdPerMillionSamples === null) return null;
  if (samplesPerSecond.low <= 0 || usdPerMillionSamples.low <= 0) return null;
  return { ...maybe, samplesPerSecond, usdPerMillionSamples };
}

/** Returns the Pareto front of throughput and price, without GPUs that are too small for the iteration. Fastest first. */
export function frontier(all: readonly Point[]): Point[] {
  const fitting = all.filter(({ fits }) => fits);
  const ordered = fitting.sort((a, b) => b.samplesPerSecond.value - a.samplesPerSecond.value || usd(a) - usd(b));
  let cheapest = Infinity;
  return ordered.filter((point) => {
    const isCheaper = usd(point) < cheapest;
    cheapest = Math.min(cheapest, usd(point));
    return isCheaper;
  });
}

/** Returns each model's GPU and machines, fewest GPUs first, where there are several. */
export function families(all: readonly Point[]): Point[][] {
  const models = [...new Set(all.filter(({ gpus }) => gpus > 1).map(({ model }) => model))];
  return models.map((model) => all.filter((point) => point.model === model).sort((a, b) => a.gpus - b.gpus));
}

function usd({ usdPerMillionSamples }: Point): number {
  return usdPerMillionSamples.value;
}
