// Reads the comparison of two runs (docs/schema/compare.schema.json). Its contents come from an untrusted workspace, so
// invalid values are corrected here.

import { fields, list, maybeAmount, text, type Fields } from "../values";

/** The maximum number of rows per table. The server sends fewer. */
const ROWS = 1_000;

const VERDICTS = ["faster", "slower", "smaller", "larger", "within-noise", "new", "gone", "unknown"] as const;
export type Verdict = (typeof VERDICTS)[number];

/** A number before and after, with the verdict. */
export interface Measure {
  before: number | null;
  after: number | null;
  ratio: number | null;
  verdict: Verdict;
}

export interface Row {
  name: string;
  detail: string;
  /** Self time in nanoseconds. */
  own: Measure;
  /** In bytes. */
  memory: Measure;
}

export interface Comparison {
  unlike: string | null;
  /** Description of the statistical test of the iteration time; null if there was none. */
  test: string | null;
  time: Measure;
  throughput: Measure;
  peak: Measure;
  phases: { name: string; time: Measure }[];
  lines: Row[];
  modules: Row[];
  notes: string[];
}

export function readComparison(value: unknown): Comparison {
  const it = fields(value);
  return {
    unlike: typeof it.unlike === "string" ? text(it.unlike) : null,
    test: readTest(it),
    time: readMeasure(it.time),
    throughput: readMeasure(it.throughput),
    peak: readMeasure(it.peak),
    phases: list(it.phases, 10).map((phase) => ({ name: text(phase.name), time: readMeasure(phase.time) })),
    lines: list(it.lines, ROWS).map(readLine),
    modules: list(it.modules, ROWS).map(readModule),
    notes: (Array.isArray(it.notes) ? it.notes.slice(0, 20) : []).map(text).filter((note) => note !== ""),
  };
}

function readMeasure(value: unknown): Measure {
  const it = fields(value);
  const verdict = VERDICTS.find((known) => known === it.verdict) ?? "unknown";
  return { before: maybeAmount(it.before), after: maybeAmount(it.after), ratio: maybeAmount(it.ratio), verdict };
}

function readLine(it: Fields): Row {
  const [before, after] = [maybeAmount(it.line_before), maybeAmount(it.line_after)];
  const was = before !== null && after !== null && before !== after ? ` (was ${before})` : "";
  const edited = it.is_changed === true ? ", edited" : "";
  return {
    name: `${text(it.file)}:${after ?? before ?? "?"}${was}${edited}`,
    detail: text(it.scope),
    own: readMeasure(it.own),
    memory: readMeasure(it.memory),
  };
}

function readModule(it: Fields): Row {
  const path = text(it.path);
  return {
    name: path === "" ? "(model)" : path,
    detail: text(it.type_name),
    own: readMeasure(it.own),
    memory: readMeasure(it.memory),
  };
}

function readTest(it: Fields): string | null {
  const test = fields(it.test);
  const name = text(test.name);
  const [slower, faster] = [maybeAmount(test.p_slower), maybeAmount(test.p_faster)];
  if (name === "" || slower === null || faster === null) return null;
  const counts = [fields(it.before).timed_iterations, fields(it.after).timed_iterations].map((count) => maybeAmount(count) ?? 0);
  const [p, way] = slower <= faster ? [slower, "slower"] : [faster, "faster"];
  return `${name} over ${counts[0]} and ${counts[1]} iterations: p = ${p.toFixed(3)} for ${way}`;
}

/** Returns the display name of a verdict. */
export function verdictName(verdict: Verdict): string {
  if (verdict === "within-noise") return "within noise";
  return verdict === "unknown" ? "unknown" : verdict;
}

export function tone(verdict: Verdict): "better" | "worse" | "same" {
  if (verdict === "faster" || verdict === "smaller") return "better";
  return verdict === "slower" || verdict === "larger" ? "worse" : "same";
}

/** Whether the change exceeds the noise. */
export function isChange({ verdict }: Measure): boolean {
  return verdict !== "within-noise" && verdict !== "unknown";
}

/** Returns the rows with a change, in order. */
export function changed(rows: readonly Row[]): Row[] {
  const differs = (measure: Measure) => isChange(measure) && (measure.before ?? 0) !== (measure.after ?? 0);
  return rows.filter(({ own, memory }) => differs(own) || differs(memory));
}

/** Formats the ratio of after to before: `+12%`, `−8%`, `×15`. */
export function change(ratio: number | null): string {
  if (ratio === null) return "";
  const by = ratio - 1;
  if (Math.abs(by) < 0.0005) return "±0%";
  if (ratio >= 10) return `×${ratio.toFixed(0)}`;
  const share = Math.abs(by) * 100;
  return `${by > 0 ? "+" : "−"}${share < 0.95 ? share.toFixed(1) : share.toFixed(0)}%`;
}
