// Earlier runs: a chart of their times, and a table.

import type { HistoryEntry, PanelDocument } from "./document";
import { element, fill } from "./dom";
import { ago, bytes, count, duration, moment, significant } from "./format";
import { HistoryChart } from "./history_chart";
import { ListTable } from "./table";
import type { Tooltip } from "./tooltip";

export class HistorySection {
  readonly #chart: HistoryChart;
  readonly #table: ListTable<HistoryEntry>;
  #headMs: number | null = null;
  #generation = 0;

  constructor(
    root: HTMLElement,
    private readonly live: boolean,
    tooltip: Tooltip,
  ) {
    this.#chart = new HistoryChart(tooltip);
    this.#table = new ListTable<HistoryEntry>(
      "Run history",
      [
        { head: "When", class: "when", cell: (entry) => this.#when(entry) },
        { head: "Iteration", class: "number", cell: ({ timeNs }) => (timeNs === null ? "" : duration(timeNs)) },
        { head: "Samples/s", class: "number", cell: ({ samplesPerSecond: rate }) => (rate === null ? "" : significant(rate)) },
        { head: "Peak memory", class: "number", cell: ({ peakBytes }) => (peakBytes === null ? "" : bytes(peakBytes)) },
        { head: "Batch size", class: "number", cell: ({ batchSize }) => (batchSize === null ? "" : count(batchSize)) },
        { head: "Device", cell: ({ device }) => device },
        { head: "Commit", cell: (entry) => this.#commit(entry) },
      ],
      8,
    );
    fill(root, this.#chart.root, this.#table.root);
  }

  show(panel: PanelDocument): void {
    this.#headMs = panel.recording?.changesAgainst.headMs ?? null;
    this.#generation = panel.generation;
    this.#table.show(panel.history);
    this.#chart.show(panel.history, this.#headMs);
  }

  restyle(): void {
    this.#chart.restyle();
  }

  svg(): string | null {
    return this.#chart.svg();
  }

  #when(entry: HistoryEntry): HTMLElement {
    const text = entry.whenMs === null ? "unknown" : this.live ? ago(entry.whenMs, Date.now()) : moment(entry.whenMs);
    return element(
      "span",
      { title: entry.whenMs === null ? null : moment(entry.whenMs) },
      text,
      entry.generation === this.#generation && element("span", { class: "badge" }, "shown"),
    );
  }

  #commit(entry: HistoryEntry): HTMLElement | string {
    if (entry.commit === null) return "";
    return element(
      "span",
      {},
      element("span", { class: "mono" }, entry.commit),
      !entry.clean && element("span", { class: "about" }, " + changes"),
      entry.whenMs === this.#headMs && element("span", { class: "badge" }, "HEAD"),
    );
  }
}
