// Throughput and memory against the batch size, as in Skyline: two handles for one number. Releasing a handle sets the
// number in the code.

import type { Actions } from "../actions";
import { button, element, fill, write } from "../dom";
import { bytes, count, significant } from "../format";
import { ListTable } from "../table";
import type { Estimate } from "../values";
import { Chart, type Wanted } from "./chart";
import type { BatchSize, Point } from "./document";
import { Handle } from "./handle";
import { along, isMeasured, reach } from "./scale";

const rate = (value: number) => `${significant(value)} samples/s`;

const THROUGHPUT: Wanted = {
  label: "Throughput",
  of: (point) => point.samplesPerSecond,
  text: rate,
  tick: significant,
  limit: () => null,
};
const MEMORY: Wanted = {
  label: "Peak memory",
  of: (point) => point.peakBytes,
  text: bytes,
  tick: bytes,
  limit: (sizes) => sizes.capacityBytes,
};

export class BatchSection {
  readonly #now = element("p", { class: "batch-now" });
  readonly #message = element("p", { class: "quiet" });
  readonly #offers = element("p", { class: "batch-offers" });
  readonly #bars = [THROUGHPUT, MEMORY].map((wanted) => new Bar(wanted, this.#holder()));
  readonly #table: ListTable<Point>;
  #sizes: BatchSize | null = null;
  #next: BatchSize | null = null;
  #editable = false;

  constructor(
    private readonly root: HTMLElement,
    private readonly actions: Actions,
    private readonly commit: (batch: number) => void,
  ) {
    const measured = (point: Point, text: string) => (point.measured ? text : `~${text}`);
    const cell = (wanted: Wanted) => (point: Point) => {
      const range = wanted.of(point);
      return range === null ? "unknown" : measured(point, wanted.text(range.value));
    };
    this.#table = new ListTable<Point>(
      "Batch sizes",
      [
        { head: "Batch", class: "number", cell: (point) => count(point.batch) },
        { head: "Throughput", class: "number", cell: cell(THROUGHPUT) },
        { head: "Peak memory", class: "number", cell: cell(MEMORY) },
        { head: "Fits", cell: ({ fits }) => (fits === null ? "unknown" : fits ? "yes" : "no") },
      ],
      16,
    );
    fill(
      root,
      this.#now,
      element("div", { class: "batch-bars" }, ...this.#bars.map((bar) => bar.root)),
      this.#offers,
      this.#message,
      element("details", {}, element("summary", {}, "Batch sizes in a table"), this.#table.root),
    );
  }

  /** `editable`: an editor is connected that can change the number. */
  show(sizes: BatchSize | null, editable: boolean): void {
    // Updates wait until the user stops dragging.
    this.#editable = editable && sizes?.site !== null;
    if (this.#bars.some((bar) => bar.handle.isHeld)) {
      this.#next = sizes;
      return;
    }
    this.#sizes = sizes;
    if (sizes === null) return;
    for (const bar of this.#bars) bar.show(sizes, this.#editable);
    this.#table.show(sizes.points);
    this.#describe(sizes);
    this.#stand(null);
  }

  restyle(): void {
    for (const bar of this.#bars) bar.restyle();
  }

  /** Returns the charts: throughput, then memory. */
  svgs(): (string | null)[] {
    return this.#bars.map((bar) => bar.svg());
  }

  #holder(): Holder {
    return {
      preview: (batch) => {
        this.#stand(batch);
        if (batch !== null || this.#next === null) return;
        const next = this.#next;
        this.#next = null;
        // The handle still counts as held during this call.
        queueMicrotask(() => { this.show(next, this.#editable); });
      },
      commit: (batch) => { this.commit(batch); },
      isInside: (x, y) => {
        const { left, right, top, bottom } = this.root.getBoundingClientRect();
        return x >= left && x <= right && y >= top && y <= bottom;
      },
    };
  }

  /** Shows a batch size: the previewed one, or the one in the code. */
  #stand(previewed: number | null): void {
    const sizes = this.#sizes;
    if (sizes === null) return;
    const batch = previewed ?? sizes.current;
    const said = this.#bars.map((bar) => bar.stand(sizes, batch));
    const place = sizes.site?.place ?? null;
    const where = sizes.site === null ? "" : this.actions.canJump(place) ? ` at ${this.actions.placeName(place)}` : ` (${sizes.site.text})`;
    const fits = along(sizes.points, batch, MEMORY.of);
    const tooLarge = sizes.capacityBytes !== null && fits !== null && fits.value > sizes.capacityBytes;
    fill(
      this.#now,
      element("b", {}, `Batch size ${count(batch)}`),
      ` · ${said.join(" · ")}`,
      tooLarge && element("b", { class: "worse" }, " · does not fit"),
      previewed === null ? element("span", { class: "quiet" }, where) : element("span", { class: "quiet" }, ` · current: ${count(sizes.current)}`),
    );
  }

  #describe(sizes: BatchSize): void {
    const offer = (label: string, range: Estimate | null) => {
      if (range === null) return null;
      const words = `${label}: ${count(range.value)}`;
      const about = range.low === range.high ? "" : ` (${count(range.low)} to ${count(range.high)})`;
      const canSet = this.#editable && range.value >= 1 && range.value !== sizes.current;
      const part = canSet
        ? button(words, { title: "Set batch size in the code" }, () => { this.commit(range.value); })
        : element("span", {}, words);
      return element("span", { class: "batch-offer" }, part, element("span", { class: "quiet" }, about));
    };
    const run =
      this.#editable &&
      sizes.state !== "measuring" &&
      button("Measure other batch sizes", { title: "Run the program at other batch sizes" }, () => {
        this.actions.command("measure");
      });
    fill(this.#offers, offer("Largest that fits", sizes.largest), offer("Throughput saturates", sizes.saturation), run);
    const hint = this.#editable
      ? "Drag a handle, or move it with the arrow keys and press Enter, to change the batch size in the code. The edit can be undone. Press Escape or release outside the chart to cancel."
      : "";
    const state = sizes.state === "measuring" ? "Batch-size sweep is running." : "";
    const why = sizes.refusal === null ? "" : `The batch size cannot be changed here: ${sizes.refusal}.`.replace("..", ".");
    const note = sizes.site?.note == null ? "" : `${sizes.site.note}.`;
    write(this.#message, [state, sizes.message, why, note, hint].filter(Boolean).join(" "));
  }
}

type Holder = ConstructorParameters<typeof Handle>[2];

class Bar {
  readonly root: HTMLElement;
  readonly handle: Handle;
  readonly #chart: Chart;
  readonly #value = element("span", { class: "batch-value" });

  constructor(
    private readonly wanted: Wanted,
    holder: Holder,
  ) {
    this.#chart = new Chart(wanted);
    this.handle = new Handle(`Batch size, by ${wanted.label.toLowerCase()}`, this.#chart.root, holder);
    this.#chart.root.append(this.handle.root);
    this.root = element("div", { class: "batch-bar" }, element("h3", {}, wanted.label, " ", this.#value), this.#chart.root);
  }

  show(sizes: BatchSize, editable: boolean): void {
    this.#chart.show(sizes);
    this.handle.root.hidden = !editable;
    this.handle.show(sizes.current, reach(sizes));
  }

  restyle(): void {
    this.#chart.restyle();
  }

  svg(): string | null {
    return this.#chart.svg();
  }

  /** Returns what it shows as text. */
  stand(sizes: BatchSize, batch: number): string {
    const range = along(sizes.points, batch, this.wanted.of);
    const about = isMeasured(sizes.points, batch) ? "" : "~";
    const text = range === null ? "unknown" : `${about}${this.wanted.text(range.value)}`;
    write(this.#value, text);
    const words = range === null ? "unknown" : `${about === "" ? "" : "about "}${this.wanted.text(range.value)}`;
    this.handle.stand(batch, `batch size ${count(batch)}, ${this.wanted.label.toLowerCase()} ${words}`);
    return text === "unknown" ? `${this.wanted.label.toLowerCase()} unknown` : text;
  }
}
