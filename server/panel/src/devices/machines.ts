// One GPU or several of a model in one machine, for the cheapest and the fastest GPU.

import { element, fill } from "../dom";
import { count, duration, significant } from "../format";
import type { Devices, Machine } from "./document";
import { SortedTable, type SortedColumn } from "./sorted_table";
import { dollars } from "./words";

const SHOWN = 12;
const NOTE =
  "Each GPU has the batch size of the row, so the total batch grows with their number. They exchange their gradients in every iteration, over the usual link of their model. Assumes that data loading keeps up with all of them.";

export class MachineTable {
  readonly root = element("div", {});
  readonly #table = new SortedTable<Machine>("One GPU or several in a machine", SHOWN, () => false);
  readonly #heading = element("h4", {}, "One GPU or several in a machine");
  readonly #note = element("p", { class: "quiet" }, NOTE);

  show({ machines }: Devices): void {
    if (!machines.some(({ gpus }) => gpus > 1)) {
      fill(this.root);
      return;
    }
    fill(this.root, this.#heading, this.#table.root, this.#note);
    this.#table.show(columns(machines), machines);
  }
}

function columns(machines: readonly Machine[]): SortedColumn<Machine>[] {
  const all: (SortedColumn<Machine> & { there: boolean })[] = [
    { there: true, head: "GPUs", class: "name", cell: ({ gpus, name }) => `${gpus} × ${name}`, key: ({ gpus, name }) => `${name} ${gpus}` },
    { there: true, head: "Batch size", class: "number", cell: ({ batchSize }) => count(batchSize), key: ({ batchSize }) => batchSize },
    { there: true, head: "Iteration", class: "number", cell: (machine) => marked(machine, duration(machine.timeNs.value)), key: ({ timeNs }) => timeNs.value },
    {
      there: true,
      head: "Samples/s",
      class: "number",
      cell: (machine) => marked(machine, significant(machine.samplesPerSecond.value)),
      key: ({ samplesPerSecond }) => samplesPerSecond.value,
    },
    {
      there: true,
      head: "Speedup",
      class: "number",
      cell: (machine) => speedupText(speedup(machine, machines)),
      key: (machine) => speedup(machine, machines),
    },
    {
      there: machines.some(({ usdPerHour }) => usdPerHour !== null),
      head: "Price per hour",
      class: "number",
      cell: ({ usdPerHour }) => (usdPerHour === null ? "unknown" : dollars(usdPerHour)),
      key: ({ usdPerHour }) => usdPerHour,
    },
    {
      there: machines.some(({ usdPerMillionSamples }) => usdPerMillionSamples !== null),
      head: "Price of a million samples",
      class: "number",
      cell: ({ usdPerMillionSamples: usd }) => (usd === null ? "unknown" : `~${dollars(usd.value)}`),
      key: ({ usdPerMillionSamples: usd }) => usd?.value ?? null,
    },
  ];
  return all.filter(({ there }) => there);
}

/** Throughput relative to one GPU of the model; null for that one. */
function speedup(machine: Machine, machines: readonly Machine[]): number | null {
  const alone = machines.find(({ gpus, name }) => gpus === 1 && name === machine.name);
  if (alone === undefined || machine.gpus === 1) return null;
  return machine.samplesPerSecond.value / alone.samplesPerSecond.value;
}

function marked({ measured }: Machine, value: string): string {
  return measured ? value : `~${value}`;
}

function speedupText(value: number | null): string {
  return value === null ? "" : `~${value.toFixed(2)}×`;
}
