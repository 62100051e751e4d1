// The iteration on other GPUs: a chart of throughput against price, a sortable table, and the basis of the predictions.

import { element, fill, write } from "../dom";
import { count, counted, duration, significant } from "../format";
import type { Tooltip } from "../tooltip";
import type { Estimate } from "../values";
import { BatchTable } from "./batches";
import { MachineTable } from "./machines";
import { DeviceChart } from "./chart";
import type { Device, Devices } from "./document";
import { frontier, hasOwnBatches, points, type Point } from "./scatter";
import { SortedTable, type SortedColumn } from "./sorted_table";
import { dollars, energy, estimated, hourly, memory } from "./words";

const SHOWN = 12;

export class DevicesSection {
  readonly #about = element("p", { class: "about-predictions" });
  readonly #canvas = element("canvas", { class: "devices", role: "img" });
  readonly #caption = element("p", { class: "quiet" });
  readonly #chart: DeviceChart;
  readonly #table: SortedTable<Device>;
  readonly #notes = element("ul", { class: "plain" });
  readonly #batches = new BatchTable();
  readonly #machines = new MachineTable();

  constructor(root: HTMLElement, tooltip: Tooltip) {
    this.#chart = new DeviceChart(this.#canvas, tooltip);
    this.#table = new SortedTable<Device>("Predictions for other GPUs", SHOWN, (device) => device.here);
    const heading = element("h3", {}, "On other GPUs");
    const tables = [this.#table.root, this.#notes, this.#batches.root, this.#machines.root];
    fill(root, heading, this.#about, this.#canvas, this.#caption, ...tables);
  }

  show(devices: Devices): void {
    const unit = devices.samplesPerEpoch === null ? "a million samples" : "an epoch";
    write(this.#about, about(devices));
    const charted = points(devices);
    this.#chart.show(charted);
    this.#canvas.hidden = charted.length === 0;
    this.#canvas.setAttribute("aria-label", described(charted));
    write(this.#caption, caption(devices, charted));
    this.#table.show(columns(devices, unit), devices.rows);
    fill(this.#notes, ...devices.notes.map((note) => element("li", {}, note)));
    this.#notes.hidden = devices.notes.length === 0;
    this.#batches.show(devices);
    this.#machines.show(devices);
  }

  svg(): string | null {
    return this.#chart.svg();
  }

  restyle(): void {
    this.#chart.restyle();
  }
}

function about(devices: Devices): string {
  const rests =
    devices.from === null
      ? "from operator costs only, because no known GPU was measured"
      : `scaled from the kernels measured on ${devices.from} (${devices.basis})`;
  const batch = devices.batchSize === null ? "" : `, batch size ${count(devices.batchSize)}`;
  const epoch = devices.samplesPerEpoch === null ? "" : ` One epoch is ${count(devices.samplesPerEpoch)} samples.`;
  const energies = devices.rows.some((row) => row.joules !== null && !row.measuredEnergy)
    ? " Energy is predicted from board power and utilization, except where measured."
    : "";
  return `~ = predicted, ${rests}${batch}. Ranges are 80% intervals.${epoch}${energies}`;
}

function described(charted: readonly Point[]): string {
  const best = frontier(charted).slice(0, 6);
  const listed = best.map(({ label, samplesPerSecond: rate, usdPerMillionSamples: usd }) => `${label} ${significant(rate.value)} samples/s and ${dollars(usd.value)}`);
  return `Throughput against price of a million samples. Nothing else is both faster and cheaper than: ${listed.join("; ")}. The tables list all GPUs.`;
}

/** Explains the chart, and what it leaves out. */
function caption(devices: Devices, charted: readonly Point[]): string {
  if (charted.length === 0) return "No chart: the prices of these GPUs or the batch size are unknown.";
  const isBusy = hasOwnBatches(devices);
  const without = devices.rows.length - charted.filter(({ gpus }) => gpus === 1).length;
  const sentences = [
    isBusy ? "Each GPU has the batch size that keeps it busy." : devices.batchSize !== null && `Each GPU has batch size ${count(devices.batchSize)}.`,
    "The solid line connects those that are not beaten in both throughput and price.",
    charted.some(({ gpus }) => gpus > 1) && "A square is one machine with several GPUs.",
    charted.some(({ fits }) => !fits) && "The memory of the hollow ones is too small.",
    without > 0 && `Not shown: ${counted(without, "GPU")} without a known price${isBusy ? " or batch size" : ""}.`,
  ];
  return sentences.filter((sentence) => sentence !== false).join(" ");
}

function columns(devices: Devices, unit: string): SortedColumn<Device>[] {
  const all: (SortedColumn<Device> & { there: boolean })[] = [
    { there: true, head: "GPU", class: "name", cell: name, key: (device) => device.name },
    {
      there: true,
      head: "Iteration",
      class: "number",
      cell: (device) => estimated(device, duration(device.timeNs.value)),
      key: (device) => device.timeNs.value,
    },
    {
      there: true,
      head: "Range",
      class: "number quiet",
      cell: ({ timeNs }) => `${duration(timeNs.low)} to ${duration(timeNs.high)}`,
      key: ({ timeNs }) => timeNs.high,
    },
    {
      there: devices.rows.some((row) => row.samplesPerSecond !== null),
      head: "Samples/s",
      class: "number",
      cell: (device) => told(device.samplesPerSecond, (value) => estimated(device, significant(value))),
      key: (device) => device.samplesPerSecond?.value ?? null,
    },
    {
      there: devices.rows.some((row) => row.peakShare !== null),
      head: "Peak memory",
      class: "number",
      cell: memory,
      key: (device) => device.peakShare,
    },
    { there: true, head: "Price per hour", class: "number", cell: hourly, key: (device) => device.usdPerHour },
    {
      there: devices.rows.some((row) => price(row) !== null),
      head: `Price of ${unit}`,
      class: "number",
      cell: (device) => told(price(device), (value) => `~${dollars(value)}`),
      key: (device) => price(device)?.value ?? null,
    },
    {
      there: devices.rows.some((row) => row.joules !== null),
      head: "Energy",
      class: "number",
      cell: (device) => told(device.joules, (value) => `${device.measuredEnergy ? "" : "~"}${energy(value)}`),
      key: (device) => device.joules?.value ?? null,
    },
  ];
  return all.filter(({ there }) => there);
}

/** Returns the price of an epoch if its length is known, else of a million samples. */
function price(device: Device): Estimate | null {
  return device.usdPerEpoch ?? device.usdPerMillionSamples;
}

function name(device: Device): Node {
  return element(
    "span",
    {},
    device.name,
    device.here && element("b", {}, " here"),
    device.note !== null && element("span", { class: "about" }, ` ${device.note}`),
  );
}

function told(estimate: Estimate | null, tell: (value: number) => string): string {
  return estimate === null ? "unknown" : tell(estimate.value);
}
