// The iteration times of earlier runs, oldest first, with the commits that ran. The table has the same information.

import { AXIS, ticks } from "./axis";
import type { HistoryEntry } from "./document";
import { element, set } from "./dom";
import { bytes, duration, moment } from "./format";
import { Surface, type Paint } from "./surface";
import { colours, type Palette } from "./theme";
import type { Tooltip } from "./tooltip";

/** The maximum number of points on the line: more could not be distinguished. */
const POINTS = 100;
const LEFT = 60;
const RIGHT = 12;
const TOP = 12;
const BETWEEN_ROWS = 34;

type Run = HistoryEntry & { timeNs: number };

export class HistoryChart {
  readonly root = element("div");
  readonly #canvas = element("canvas", { class: "history-chart", role: "img" });
  readonly #surface: Surface;
  #runs: Run[] = [];
  #headMs: number | null = null;
  #pointed = -1;

  constructor(tooltip: Tooltip) {
    this.#surface = new Surface(this.#canvas, (context) => {
      this.#draw(context);
    });
    const about = "Iteration time of each run, oldest first. A hollow point had uncommitted changes.";
    this.root.append(this.#canvas, element("p", { class: "keys" }, about));
    this.#canvas.addEventListener("pointermove", (event) => {
      const share = (this.#surface.locate(event).x - LEFT) / Math.max(1, this.#surface.width - LEFT - RIGHT);
      this.#point(Math.round(Math.min(1, Math.max(0, share)) * (this.#runs.length - 1)));
      const run = this.#runs[this.#pointed];
      if (run !== undefined) tooltip.show(note(run), event);
    });
    this.#canvas.addEventListener("pointerleave", () => {
      tooltip.hide();
      this.#point(-1);
    });
  }

  /** Shows the runs, which are newest first. `headMs` is the run of the commit at HEAD. */
  show(history: readonly HistoryEntry[], headMs: number | null): void {
    this.#headMs = headMs;
    this.#runs = history.flatMap((entry) => (entry.timeNs === null ? [] : [{ ...entry, timeNs: entry.timeNs }])).slice(0, POINTS).reverse();
    this.root.hidden = this.#runs.length < 2;
    set(this.#canvas, { "aria-label": described(this.#runs) });
    this.#surface.invalidate();
  }

  restyle(): void {
    this.#surface.invalidate();
  }

  svg(): string | null {
    return this.#surface.svg("Iteration time by run");
  }

  #point(at: number): void {
    if (at === this.#pointed) return;
    this.#pointed = at;
    this.#surface.invalidate();
  }

  #draw(context: Paint): void {
    const palette = colours();
    const { width, height } = this.#surface;
    const runs = this.#runs;
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, width, height);
    if (runs.length < 2) return;
    const bottom = height - AXIS;
    const most = Math.max(...runs.map(({ timeNs }) => timeNs));
    // From zero, otherwise noise would look like a change.
    const y = (timeNs: number) => bottom - (most > 0 ? timeNs / most : 0) * (bottom - TOP);
    const x = (at: number) => LEFT + (at / (runs.length - 1)) * (width - LEFT - RIGHT);
    context.font = `11px ${palette.sans}`;
    context.textBaseline = "middle";
    for (const value of ticks({ start: 0, end: most }, bottom - TOP, BETWEEN_ROWS).at) {
      context.fillStyle = palette.grid;
      context.fillRect(LEFT, Math.round(y(value)), width - LEFT - RIGHT, 1);
      context.fillStyle = palette.quiet;
      const label = value === 0 ? "0" : duration(value);
      context.fillText(label, LEFT - 8 - context.measureText(label).width, y(value));
    }
    context.beginPath();
    runs.forEach(({ timeNs }, at) => {
      context.lineTo(x(at), y(timeNs));
    });
    context.strokeStyle = palette.accent;
    context.lineWidth = 1.5;
    context.stroke();
    runs.forEach((run, at) => {
      context.beginPath();
      context.arc(x(at), y(run.timeNs), at === this.#pointed || at === runs.length - 1 ? 5 : 3, 0, 2 * Math.PI);
      // Hollow: the text that ran was not the commit's.
      context.fillStyle = run.clean ? palette.accent : palette.surface;
      context.fill();
      context.stroke();
    });
    this.#commits(context, x, bottom, palette);
  }

  // Each commit at its first run, where there is room.
  #commits(context: Paint, x: (at: number) => number, bottom: number, palette: Palette): void {
    let free = -Infinity;
    this.#runs.forEach(({ commit, whenMs }, at) => {
      const isHead = whenMs !== null && whenMs === this.#headMs;
      if (commit === null || (commit === this.#runs[at - 1]?.commit && !isHead)) return;
      const label = isHead ? "HEAD" : commit.slice(0, 8);
      const long = context.measureText(label).width;
      const left = Math.min(x(at) - long / 2, this.#surface.width - long);
      if (left < free) return;
      free = left + long + 10;
      context.fillStyle = palette.edge;
      context.fillRect(Math.round(x(at)), bottom, 1, 4);
      context.fillStyle = palette.quiet;
      context.fillText(label, left, bottom + AXIS / 2 + 3);
    });
  }
}

function described(runs: readonly Run[]): string {
  const times = runs.map(({ timeNs }) => timeNs);
  if (times.length < 2) return "";
  return `Iteration time over ${times.length} runs: from ${duration(times[0]!)} to ${duration(times.at(-1)!)}, range ${duration(Math.min(...times))} to ${duration(Math.max(...times))}.`;
}

function note(run: Run) {
  const facts: [string, string][] = [["iteration", duration(run.timeNs)]];
  if (run.peakBytes !== null) facts.push(["peak memory", bytes(run.peakBytes)]);
  if (run.batchSize !== null) facts.push(["batch size", String(run.batchSize)]);
  if (run.commit !== null) facts.push(["commit", run.clean ? run.commit : `${run.commit} + changes`]);
  return { title: run.whenMs === null ? "unknown time" : moment(run.whenMs), about: run.device, facts };
}
