// Earlier runs: a line chart of their times, and a table.

import type { HistoryEntry, PanelDocument } from "./document";
import { element, fill } from "./dom";
import { ago, bytes, count, duration, moment, significant } from "./format";
import { ListTable } from "./table";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 44;
const INSET = 5;
/** The maximum number of points on the line: more could not be distinguished. */
const POINTS = 100;

export class HistorySection {
  readonly #spark = element("div", { class: "spark" });
  readonly #table: ListTable<HistoryEntry>;
  #headMs: number | null = null;
  #generation = 0;

  constructor(
    root: HTMLElement,
    private readonly live: boolean,
  ) {
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
    fill(root, this.#spark, this.#table.root);
  }

  show(panel: PanelDocument): void {
    this.#headMs = panel.recording?.changesAgainst.headMs ?? null;
    this.#generation = panel.generation;
    this.#table.show(panel.history);
    this.#sparkline(panel.history.slice(0, POINTS).reverse());
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

  #sparkline(entries: readonly HistoryEntry[]): void {
    const times = entries.flatMap(({ timeNs }) => (timeNs === null ? [] : [timeNs]));
    this.#spark.hidden = times.length < 2;
    if (times.length < 2) return;
    const least = Math.min(...times);
    const most = Math.max(...times);
    const points = times.map((time, at): [number, number] => [
      INSET + (at / (times.length - 1)) * (WIDTH - 2 * INSET),
      // Slower is higher, as in a plot of time.
      HEIGHT - INSET - (most > least ? (time - least) / (most - least) : 0.5) * (HEIGHT - 2 * INSET),
    ]);
    const picture = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": `Iteration time over ${times.length} runs: from ${duration(times[0]!)} to ${duration(times.at(-1)!)}, range ${duration(least)} to ${duration(most)}.`,
    });
    picture.append(svg("polyline", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") }));
    const [x, y] = points.at(-1)!;
    picture.append(svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: "3.5" }));
    fill(
      this.#spark,
      picture,
      element("span", { class: "quiet" }, `iteration time from oldest to newest run, range ${duration(least)} to ${duration(most)}`),
    );
  }
}

function svg(name: string, attributes: Record<string, string>): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
