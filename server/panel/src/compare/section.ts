// Compares two runs of the history. The user picks them here, and the server compares them.

import { Gone } from "../api";
import type { HistoryEntry } from "../document";
import { element, fill, write } from "../dom";
import { bytes, capital, duration, moment, significant } from "../format";
import { ListTable } from "../table";
import { change, changed, readComparison, tone, verdictName, type Comparison, type Measure, type Row } from "./document";

/** Fetches the comparison of two runs, given by their timestamps. */
export type Ask = (before: number, after: number) => Promise<unknown>;

interface Headline {
  name: string;
  measure: Measure;
  unit: (value: number) => string;
}

export class CompareSection {
  readonly #details: HTMLDetailsElement;
  readonly #said = element("p", { role: "status", class: "quiet" });
  readonly #result = element("div", { hidden: true });
  readonly #about = element("p", { class: "quiet" });
  readonly #headline = new ListTable<Headline>(
    "Iteration metrics of both runs",
    [
      { head: "Metric", cell: ({ name }) => name },
      { head: "Before", class: "number", cell: ({ measure, unit }) => told(measure.before, unit) },
      { head: "After", class: "number", cell: ({ measure, unit }) => told(measure.after, unit) },
      { head: "Change", class: "number", cell: ({ measure }) => change(measure.ratio) },
      { head: "Result", cell: ({ measure }) => verdict(measure) },
    ],
    20,
  );
  readonly #lines = rowTable("Lines with significant changes");
  readonly #modules = rowTable("Modules with significant changes");
  readonly #before: HTMLSelectElement;
  readonly #after: HTMLSelectElement;
  #shown = "";
  #asked = 0;
  #found: Comparison | null = null;

  constructor(
    root: HTMLElement,
    private readonly ask: Ask,
  ) {
    const choose = () => {
      void this.#fetch();
    };
    this.#before = element("select", { id: "compare-before" });
    this.#after = element("select", { id: "compare-after" });
    for (const select of [this.#before, this.#after]) select.addEventListener("change", choose);
    this.#details = element(
      "details",
      { class: "compare" },
      element("summary", {}, "Compare two runs"),
      element(
        "p",
        { class: "compare-choice" },
        element("label", { for: "compare-before" }, "Before "),
        this.#before,
        element("label", { for: "compare-after" }, "After "),
        this.#after,
      ),
      this.#said,
      this.#result,
    );
    this.#details.addEventListener("toggle", choose);
    fill(
      this.#result,
      this.#headline.root,
      element("h3", {}, "Lines"),
      this.#lines.root,
      element("h3", {}, "Modules"),
      this.#modules.root,
      this.#about,
    );
    fill(root, this.#details);
  }

  /** Updates the list of runs. Keeps the user's selection; by default the newest two are selected. */
  show(history: readonly HistoryEntry[]): void {
    const runs = history.filter(({ whenMs }) => whenMs !== null);
    this.#details.hidden = runs.length < 2;
    // Without a choice by the user, the selection follows the newest runs.
    const follows = this.#after.value === this.#after.options[0]?.value && this.#before.value === this.#before.options[1]?.value;
    const [before, after] = follows ? ["", ""] : [this.#before.value, this.#after.value];
    options(this.#before, runs, before, 1);
    options(this.#after, runs, after, 0);
    void this.#fetch();
  }

  async #fetch(): Promise<void> {
    const [before, after] = [Number(this.#before.value), Number(this.#after.value)];
    const key = `${before} ${after}`;
    if (!this.#details.open || this.#details.hidden || key === this.#shown) return;
    this.#shown = key;
    this.#asked += 1;
    const mine = this.#asked;
    write(this.#said, "Comparing…");
    try {
      const found = readComparison(await this.ask(before, after));
      if (mine === this.#asked) this.#tell(found);
    } catch (error) {
      if (mine !== this.#asked) return;
      // Allow a retry after a network error.
      if (!(error instanceof Gone)) this.#shown = "";
      this.#result.hidden = true;
      const why = error instanceof Gone ? "Per-line costs of one of these runs are not stored." : "The runs could not be compared.";
      write(this.#said, why);
    }
  }

  /** Returns the comparison that is shown. */
  get comparison(): Comparison | null {
    return this.#details.open && !this.#result.hidden ? this.#found : null;
  }

  #tell(found: Comparison): void {
    this.#found = found;
    const rate = (value: number) => `${significant(value)}/s`;
    const rows: Headline[] = [
      { name: "Iteration time", measure: found.time, unit: duration },
      { name: "Throughput", measure: found.throughput, unit: rate },
      { name: "Peak memory", measure: found.peak, unit: bytes },
      ...found.phases.map(({ name, time }) => ({ name, measure: time, unit: duration })),
    ];
    this.#headline.show(rows.filter(({ measure }) => measure.before !== null || measure.after !== null));
    const [lines, modules] = [changed(found.lines), changed(found.modules)];
    this.#lines.show(lines);
    this.#modules.show(modules);
    this.#result.hidden = false;
    write(this.#said, summary(found, lines.length, modules.length));
    const about = [found.test, ...found.notes].filter((text): text is string => text !== null);
    write(this.#about, about.map((text) => `${capital(text)}.`).join(" "));
  }
}

function rowTable(caption: string): ListTable<Row> {
  return new ListTable<Row>(
    caption,
    [
      { head: "Location", cell: ({ name, detail }) => element("span", {}, name, detail !== "" && element("span", { class: "about" }, ` ${detail}`)) },
      { head: "Self time before", class: "number", cell: ({ own }) => told(own.before, duration) },
      { head: "Self time after", class: "number", cell: ({ own }) => told(own.after, duration) },
      { head: "Time change", cell: ({ own }) => verdict(own, change(own.ratio)) },
      { head: "Memory before", class: "number", cell: ({ memory }) => told(memory.before, bytes) },
      { head: "Memory after", class: "number", cell: ({ memory }) => told(memory.after, bytes) },
      { head: "Memory change", cell: ({ memory }) => verdict(memory, change(memory.ratio)) },
    ],
    12,
  );
}

function told(value: number | null, unit: (value: number) => string): string {
  return value === null ? "–" : unit(value);
}

/** The text has the meaning; the colour only repeats it. */
function verdict(measure: Measure, change = ""): HTMLElement {
  return element("span", { class: `verdict ${tone(measure.verdict)}` }, `${change} ${verdictName(measure.verdict)}`.trim());
}

function options(select: HTMLSelectElement, runs: readonly HistoryEntry[], chosen: string, at: number): void {
  const made = runs.map((run) => {
    const time = run.timeNs === null ? "" : `, ${duration(run.timeNs)}`;
    const commit = run.commit === null ? "" : `, ${run.commit.slice(0, 7)}${run.clean ? "" : " + changes"}`;
    return element("option", { value: String(run.whenMs) }, `${moment(run.whenMs ?? 0)}${time}${commit}`);
  });
  fill(select, ...made);
  const kept = made.find(({ value }) => value === chosen) ?? made[at];
  if (kept !== undefined) select.value = kept.value;
}

function summary(found: Comparison, lines: number, modules: number): string {
  if (found.unlike !== null) return `Times and memory cannot be compared: ${found.unlike}.`;
  const count = (value: number, name: string) => `${value} ${name}${value === 1 ? "" : "s"}`;
  return `Iteration time: ${sentence(found.time)}. Significant changes in ${count(lines, "line")} and ${count(modules, "module")}.`;
}

function sentence(time: Measure): string {
  if (time.verdict === "unknown") return "unknown (too few iterations)";
  return time.verdict === "within-noise" ? "no significant change" : `${verdictName(time.verdict)} (${change(time.ratio)})`;
}
