// Memory over the iteration: the curve, and what is allocated at its peak, by kind and by line.

import type { Actions } from "./actions";
import { Curve, type Point } from "./curve";
import type { Cursor } from "./cursor";
import type { Holder, Memory, Recording, Tensor } from "./document";
import { element, fill, write } from "./dom";
import { bytes, duration, percent } from "./format";
import { bands, GROUPINGS, life, type Band, type Grouping } from "./memory_stack";
import { placeLink } from "./place_link";
import { Segmented } from "./segmented";
import { ListTable, shareBar } from "./table";
import type { Tooltip } from "./tooltip";

/** The number of colours for kinds in panel.css. Additional kinds share the last. */
const KINDS = 7;
/** The number of rows in the table version of the curve. */
const SAMPLES = 20;

export class MemorySection {
  readonly #curve: Curve;
  readonly #canvas: HTMLCanvasElement;
  readonly #explanation = element("p", { class: "explanation" });
  readonly #bar = element("div", { class: "stack", "aria-hidden": "true" });
  readonly #kinds = element("ul", { class: "kinds", "aria-label": "Peak memory" });
  readonly #held = element("div");
  readonly #holders: ListTable<Holder>;
  readonly #course: ListTable<{ atNs: number; bytes: number }>;
  readonly #tensors: ListTable<Tensor>;
  readonly #choice: Segmented;
  readonly #legend = element("ul", { class: "kinds", "aria-label": "Memory over the iteration" });
  readonly #actions: Actions;
  #grouping: Grouping = "line";
  #memory: Memory | null = null;
  #peakBytes = 0;

  constructor(root: HTMLElement, actions: Actions, tooltip: Tooltip, cursor: Cursor) {
    this.#actions = actions;
    this.#canvas = element("canvas", { class: "curve", role: "img" });
    this.#choice = new Segmented("Divide memory", (key) => {
      this.#grouping = GROUPINGS.find((one) => one.key === key)?.key ?? "line";
      this.#divide();
    });
    this.#curve = new Curve(this.#canvas, cursor, {
      pointed: (point, event) => {
        if (point === null || event === null) tooltip.hide();
        else tooltip.show(note(point), event);
      },
    });
    this.#holders = new ListTable<Holder>(
      "Lines that hold most of peak memory",
      [
        {
          head: "Line",
          class: "name",
          cell: (holder) =>
            element("span", {}, placeLink(holder.place, holder.name, actions), element("span", { class: "about" }, ` ${holder.detail}`)),
        },
        { head: "Kind", cell: (holder) => holder.kind },
        { head: "Size", class: "number", cell: (holder) => bytes(holder.bytes) },
        { head: "Share of peak", class: "wide", cell: (holder) => this.#share(holder.bytes) },
      ],
      8,
    );
    this.#course = new ListTable(
      "Memory over the iteration",
      [
        { head: "Time", class: "number", cell: ({ atNs }) => duration(atNs) },
        { head: "Allocated", class: "number", cell: ({ bytes: size }) => bytes(size) },
        { head: "Share of peak", class: "wide", cell: ({ bytes: size }) => this.#share(size) },
      ],
      SAMPLES + 2,
    );
    this.#tensors = new ListTable<Tensor>(
      "Largest tensors",
      [
        {
          head: "Line",
          class: "name",
          cell: (tensor) => placeLink(tensor.place, tensor.name ?? "without a line", actions),
        },
        { head: "Size and lifetime", cell: life },
      ],
      10,
    );
    fill(
      this.#held,
      element("h3", {}, "Top lines at the peak"),
      this.#holders.root,
    );
    fill(
      root,
      this.#explanation,
      this.#choice.root,
      this.#canvas,
      this.#legend,
      element("h3", {}, "At the peak"),
      this.#bar,
      this.#kinds,
      this.#held,
      element("details", {}, element("summary", {}, "Memory over the iteration in a table"), this.#course.root),
      element("details", {}, element("summary", {}, "Largest tensors in a table"), this.#tensors.root),
    );
  }

  show(recording: Recording): void {
    const { memory } = recording;
    if (memory === null) return;
    this.#peakBytes = memory.peakBytes;
    write(this.#explanation, memory.explanation);
    this.#memory = memory;
    this.#choice.show(GROUPINGS, this.#grouping);
    this.#choice.root.hidden = memory.tensors.length === 0;
    this.#divide();
    this.#tensors.show([...memory.tensors].sort((a, b) => b.bytes - a.bytes));
    this.#course.show(this.#samples(memory));
    this.#canvas.hidden = memory.curve.length === 0;
    const when = memory.peakAtNs === null ? "" : ` at ${duration(memory.peakAtNs)}`;
    const capacity = memory.capacityBytes === null ? "" : ` of ${bytes(memory.capacityBytes)} on the device`;
    this.#canvas.setAttribute("aria-label", `Memory over the iteration: peak ${bytes(memory.peakBytes)}${when}${capacity}.`);
    fill(
      this.#bar,
      ...memory.atPeak.map((part, at) => {
        const piece = element("i", { class: kind(at) });
        piece.style.flexGrow = String(part.bytes);
        return piece;
      }),
    );
    fill(
      this.#kinds,
      ...memory.atPeak.map((part, at) =>
        element(
          "li",
          {},
          element("i", { class: `swatch ${kind(at)}` }),
          `${part.kind} `,
          element("b", {}, bytes(part.bytes)),
          element("span", { class: "quiet" }, ` ${percent(this.#of(part.bytes))}`),
        ),
      ),
    );
    this.#holders.show(memory.holders);
    this.#held.hidden = memory.holders.length === 0;
  }

  /** Shows what the chosen grouping divides the curve into. */
  #divide(): void {
    const memory = this.#memory;
    if (memory === null) return;
    const found = memory.tensors.length === 0 ? [] : bands(memory, this.#grouping);
    this.#curve.show(memory, found);
    // Tensors have the colours of their kinds; the tooltip and the table name them.
    const shown = this.#grouping === "tensor" && found.length > 0 ? bands(memory, "kind") : found;
    const named = [...shown].reverse();
    const peak = memory.curve.findIndex(([, size]) => size === memory.peakBytes);
    fill(this.#legend, ...named.map((band) => this.#entry(band, Math.max(0, peak))));
    this.#legend.hidden = named.length === 0;
  }

  #entry(band: Band, peak: number): HTMLElement {
    const size = band.sizes[peak] ?? 0;
    return element(
      "li",
      {},
      element("i", { class: `swatch ${kind(band.colour)}` }),
      band.place === null ? `${band.label} ` : placeLink(band.place, band.label, this.#actions),
      " ",
      element("b", {}, bytes(size)),
      element("span", { class: "quiet" }, ` ${percent(this.#of(size))} of the peak`),
    );
  }

  svg(): string | null {
    return this.#curve.svg();
  }

  restyle(): void {
    this.#curve.restyle();
  }

  /** Samples the curve at equal intervals and at its peak. */
  #samples(memory: Memory): { atNs: number; bytes: number }[] {
    const times = Array.from({ length: SAMPLES + 1 }, (_, at) => (at / SAMPLES) * memory.durationNs);
    if (memory.peakAtNs !== null) times.push(memory.peakAtNs);
    return [...new Set(times)].sort((a, b) => a - b).flatMap((time) => this.#curve.at(time) ?? []);
  }

  #of(size: number): number {
    return this.#peakBytes > 0 ? size / this.#peakBytes : 0;
  }

  #share(size: number): HTMLElement {
    return shareBar(this.#of(size), percent(this.#of(size)));
  }
}

function note({ atNs, bytes: size, band }: Point): { title: string; about: string; facts: [string, string][] } {
  const title = bytes(size);
  const about = `at ${duration(atNs)}`;
  if (band === null) return { title, about, facts: [] };
  const what = band.band.about === "" ? bytes(band.bytes) : band.band.about;
  return { title, about, facts: [[band.band.label, what]] };
}

function kind(at: number): string {
  return `kind-${Math.min(KINDS, at + 1)}`;
}
