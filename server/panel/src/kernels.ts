// The most expensive kernels of the iteration.

import type { Kernel, Recording } from "./document";
import { element } from "./dom";
import { count, duration, percent } from "./format";
import { ListTable, shareBar } from "./table";

export class KernelsSection {
  readonly #table: ListTable<Kernel>;
  #durationNs = 1;

  constructor(root: HTMLElement) {
    this.#table = new ListTable<Kernel>(
      "Kernels",
      [
        { head: "Kernel", class: "name", cell: (kernel) => element("span", { class: "mono long", title: kernel.name }, kernel.name) },
        { head: "Calls", class: "number", cell: (kernel) => (kernel.calls === null ? "" : count(kernel.calls)) },
        { head: "Time", class: "number", cell: (kernel) => duration(kernel.timeNs) },
        { head: "Occupancy", class: "number", cell: (kernel) => (kernel.occupancy === null ? "" : percent(kernel.occupancy)) },
        { head: "Share of iteration", class: "wide", cell: (kernel) => this.#share(kernel) },
      ],
      10,
    );
    root.replaceChildren(this.#table.root);
  }

  show(recording: Recording): void {
    this.#durationNs = recording.durationNs;
    this.#table.show(recording.kernels);
  }

  #share({ timeNs }: Kernel): HTMLElement {
    const share = this.#durationNs > 0 ? timeNs / this.#durationNs : 0;
    return shareBar(share, percent(share));
  }
}
