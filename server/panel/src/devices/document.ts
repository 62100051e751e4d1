// Reads `predictions.devices` of the document: the iteration on every known GPU.

import { array, isFields, list, maybeAmount, readEstimate, text, type Estimate, type Fields } from "../values";

export interface Device {
  name: string;
  /** The iteration ran on this GPU, so its time is measured. */
  here: boolean;
  timeNs: Estimate;
  samplesPerSecond: Estimate | null;
  /** Above 1, the iteration does not fit. */
  peakShare: number | null;
  fits: boolean | null;
  usdPerHour: number | null;
  priceDate: string | null;
  ownPrice: boolean;
  usdPerMillionSamples: Estimate | null;
  usdPerEpoch: Estimate | null;
  joules: Estimate | null;
  measuredEnergy: boolean;
  note: string | null;
  batch: DeviceBatch | null;
}

/** The batch size that keeps a GPU busy, and the largest one that fits. */
export interface DeviceBatch {
  size: number;
  /** Why the GPU is not busy with it. */
  limit: "memory" | "epoch" | "search" | "data" | null;
  samplesPerSecond: Estimate | null;
  usdPerMillionSamples: Estimate | null;
  largest: Estimate | null;
}

/** GPUs of one model in one machine, with data parallelism. */
export interface Machine {
  name: string;
  gpus: number;
  /** Samples of each GPU. */
  batchSize: number;
  timeNs: Estimate;
  measured: boolean;
  samplesPerSecond: Estimate;
  usdPerHour: number | null;
  usdPerMillionSamples: Estimate | null;
}

export interface Devices {
  from: string | null;
  basis: string;
  batchSize: number | null;
  samplesPerEpoch: number | null;
  rows: Device[];
  machines: Machine[];
  notes: string[];
}

const ROWS = 1_000;
const NOTES = 100;

export function readDevices(value: unknown): Devices | null {
  if (!isFields(value)) return null;
  const rows = list(value.rows, ROWS).flatMap((row) => readDevice(row) ?? []);
  if (rows.length === 0) return null;
  return {
    from: text(value.from) || null,
    basis: text(value.basis),
    batchSize: maybeAmount(value.batch_size),
    samplesPerEpoch: maybeAmount(value.samples_per_epoch),
    rows,
    machines: list(value.machines, ROWS).flatMap((machine) => readMachine(machine) ?? []),
    notes: array(value.notes, NOTES).map(text),
  };
}

function readDevice(it: Fields): Device | null {
  const timeNs = readEstimate(it.time_ns);
  const name = text(it.name);
  if (timeNs === null || timeNs.value <= 0 || name === "") return null;
  return {
    name,
    here: it.here === true,
    timeNs,
    samplesPerSecond: readEstimate(it.samples_per_second),
    peakShare: maybeAmount(it.peak_share),
    fits: typeof it.fits === "boolean" ? it.fits : null,
    usdPerHour: maybeAmount(it.usd_per_hour),
    priceDate: text(it.price_date) || null,
    ownPrice: it.price_from === "settings",
    usdPerMillionSamples: readEstimate(it.usd_per_million_samples),
    usdPerEpoch: readEstimate(it.usd_per_epoch),
    joules: readEstimate(it.joules_per_iteration),
    measuredEnergy: it.energy_from === "measured",
    note: text(it.note) || null,
    batch: isFields(it.batch) ? readBatch(it.batch) : null,
  };
}

const LIMITS = ["memory", "epoch", "search", "data"] as const;

function readBatch(it: Fields): DeviceBatch | null {
  const size = maybeAmount(it.size);
  if (size === null || size < 1) return null;
  return {
    size,
    limit: LIMITS.find((limit) => limit === it.limit) ?? null,
    samplesPerSecond: readEstimate(it.samples_per_second),
    usdPerMillionSamples: readEstimate(it.usd_per_million_samples),
    largest: readEstimate(it.largest),
  };
}

function readMachine(it: Fields): Machine | null {
  const timeNs = readEstimate(it.time_ns);
  const samplesPerSecond = readEstimate(it.samples_per_second);
  const [name, gpus, batchSize] = [text(it.name), maybeAmount(it.gpus), maybeAmount(it.batch_size)];
  if (timeNs === null || samplesPerSecond === null || name === "" || gpus === null || gpus < 1 || batchSize === null) return null;
  return {
    name,
    gpus,
    batchSize,
    timeNs,
    measured: it.measured === true,
    samplesPerSecond,
    usdPerHour: maybeAmount(it.usd_per_hour),
    usdPerMillionSamples: readEstimate(it.usd_per_million_samples),
  };
}
