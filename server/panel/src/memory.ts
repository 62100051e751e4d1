// Memory over the iteration: the curve, and what is allocated at its peak, by kind and by line.

import type { Actions } from "./actions";
import { Curve } from "./curve";
import type { Cursor } from "./cursor";
import type { Holder, Memory, Recording } from "./document";
import { element, fill, write } from "./dom";
import { bytes, duration, percent } from "./format";
import { placeLink } from "./place_link";
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
  #peakBytes = 0;

  constructor(root: HTMLElement, actions: Actions, tooltip: Tooltip, cursor: Cursor) {
    this.#canvas = element("canvas", { class: "curve", role: "img" });
    this.#curve = new Curve(this.#canvas, cursor, {
      pointed: (point, event) => {
        if (point === null || event === null) tooltip.hide();
        else tooltip.show({ title: bytes(point.bytes), about: `at ${duration(point.atNs)}`, facts: [] }, event);
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
    fill(
      this.#held,
      element("h3", {}, "Top lines at the peak"),
      this.#holders.root,
    );
    fill(
      root,
      this.#explanation,
      this.#canvas,
      element("h3", {}, "At the peak"),
      this.#bar,
      this.#kinds,
      this.#held,
      element("details", {}, element("summary", {}, "Memory over the iteration in a table"), this.#course.root),
    );
  }

  show(recording: Recording): void {
    const { memory } = recording;
    if (memory === null) return;
    this.#peakBytes = memory.peakBytes;
    write(this.#explanation, memory.explanation);
    this.#curve.show(memory);
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

function kind(at: number): string {
  return `kind-${Math.min(KINDS, at + 1)}`;
}
