// The batch size that keeps each GPU busy: with a small one, an iteration takes equally long on all of them.

import { element, fill } from "../dom";
import { count, significant } from "../format";
import type { Estimate } from "../values";
import type { Device, DeviceBatch, Devices } from "./document";
import { SortedTable, type SortedColumn } from "./sorted_table";
import { dollars } from "./words";

const SHOWN = 12;

interface Row {
  device: Device;
  batch: DeviceBatch;
}

export class BatchTable {
  readonly root = element("div", {});
  readonly #table = new SortedTable<Row>("Batch size that keeps each GPU busy", SHOWN, ({ device }) => device.here);
  readonly #notes = element("ul", { class: "plain" });
  readonly #heading = element("h4", {}, "Batch size that keeps each GPU busy");

  show(devices: Devices): void {
    const rows = devices.rows.flatMap((device) => (device.batch === null ? [] : [{ device, batch: device.batch }]));
    if (rows.length === 0) {
      fill(this.root);
      return;
    }
    fill(this.root, this.#heading, this.#table.root, this.#notes);
    // The cheapest first, as the comparison of GPUs has the fastest first.
    const usd = ({ batch }: Row) => batch.usdPerMillionSamples?.value ?? Infinity;
    rows.sort((a, b) => (usd(a) === usd(b) ? 0 : usd(a) - usd(b)));
    this.#table.show(COLUMNS, rows);
    fill(this.#notes, ...notes(rows).map((note) => element("li", {}, note)));
  }
}

const COLUMNS: SortedColumn<Row>[] = [
  { head: "GPU", class: "name", cell: ({ device }) => device.name, key: ({ device }) => device.name },
  { head: "Batch size", class: "number", cell: ({ batch }) => size(batch), key: ({ batch }) => batch.size },
  {
    head: "Samples/s",
    class: "number",
    cell: ({ batch }) => predicted(batch.samplesPerSecond, significant),
    key: ({ batch }) => batch.samplesPerSecond?.value ?? null,
  },
  {
    head: "Price of a million samples",
    class: "number",
    cell: ({ batch }) => predicted(batch.usdPerMillionSamples, dollars),
    key: ({ batch }) => batch.usdPerMillionSamples?.value ?? null,
  },
  {
    head: "Largest that fits",
    class: "number",
    cell: ({ batch }) => predicted(batch.largest, count),
    key: ({ batch }) => batch.largest?.value ?? null,
  },
];

function predicted(estimate: Estimate | null, format: (value: number) => string): string {
  return estimate === null ? "unknown" : `~${format(estimate.value)}`;
}

const LIMITS = { memory: "memory", epoch: "epoch", search: "not busy", data: "data" };

/** `512`, or `512 (memory)` if the GPU is not busy with it. */
function size(batch: DeviceBatch): string {
  return batch.limit === null ? count(batch.size) : `${count(batch.size)} (${LIMITS[batch.limit]})`;
}

function notes(rows: readonly Row[]): string[] {
  const limited = (limit: DeviceBatch["limit"]) => rows.some(({ batch }) => batch.limit === limit);
  return [
    "Batch size: the smallest power of two with which the GPU takes longer than launching its kernels. Another batch size usually needs another learning rate.",
    limited("memory") && "(memory): a larger batch may not fit, and this one does not keep the GPU busy.",
    limited("epoch") && "(epoch): a larger batch has more samples than an epoch, and this one does not keep the GPU busy.",
    limited("search") && "(not busy): no larger batch was considered.",
    limited("data") && "(data): waiting for data takes longer than the GPU, if the wait grows with the batch.",
  ].filter((note) => note !== false);
}
