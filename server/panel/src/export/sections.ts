// What each section exports: its charts as SVG, its data as CSV, the timeline also as a Perfetto trace.

import { barsSvg } from "../bars";
import type { Comparison, Row } from "../compare/document";
import { PHASES, type Breakdown, type CostNode, type Memory, type PanelDocument, type Recording } from "../document";
import { bytes, duration, percent } from "../format";
import { placeOf, rowOf, type Timeline } from "../timeline/model";
import type { Estimate, Place } from "../values";
import { at, scaleOf } from "../whatif/bar";
import { reach, times } from "../whatif/words";
import { csv, type Cell, type CsvColumn } from "./csv";
import type { Export } from "./menu";
import { perfettoTrace } from "./perfetto";

/** The page, as far as exports need it. Charts return null while they show nothing. */
export interface Source {
  panel: () => PanelDocument | null;
  placeName: (place: Place) => string;
  timeline: () => Timeline | null;
  /** The comparison of two runs that is shown. */
  comparison: () => Comparison | null;
  /** What the breakdown shows. */
  grouping: () => string;
  charts: Record<"breakdown" | "timeline" | "memory" | "roofline" | "devices" | "history" | "throughput" | "batchMemory", () => string | null>;
}

type Column<Row> = CsvColumn<Row>;

/** Returns the exports of each section, by its id. */
export function sectionExports(source: Source): Record<string, Export[]> {
  const { panel, charts } = source;
  const where = (place: Place | null): Cell => (place === null ? null : source.placeName(place));
  const recording = <T>(use: (recording: Recording) => T | null) => () => {
    const known = panel()?.recording ?? null;
    return known === null ? null : use(known);
  };
  const data = (file: string, content: () => string | null, label = "Data (CSV)"): Export => ({ label, file: `${file}.csv`, content });
  const chart = (file: string, content: () => string | null, label = "Chart (SVG)"): Export => ({ label, file: `${file}.svg`, content });
  const timeline = (use: (timeline: Timeline) => string) => () => {
    const known = source.timeline();
    return known === null ? null : use(known);
  };
  return {
    bottleneck: [
      chart("bottleneck", recording(bottleneckBars)),
      data("bottleneck", recording(({ bottleneck }) => csv([
        ["cause", ({ label }) => label],
        ["max_saving_share", ({ atMostShare }) => atMostShare],
        ["max_saving_ns", ({ atMostNs }) => atMostNs],
        ["mostly_in", ({ evidence }) => evidence],
      ], bottleneck?.savings ?? []))),
    ],
    ranks: [
      data("ranks", recording(({ ranks }) => csv([
        ["rank", ({ rank }) => rank],
        ["iteration_ns", ({ timeNs }) => timeNs],
        ["compute_ns", ({ computingNs }) => computingNs],
        ["communication_ns", ({ exchangeNs }) => exchangeNs],
        ["waiting_ns", ({ waitingNs }) => waitingNs],
        ["batch_size", ({ batchSize }) => batchSize],
        ["peak_bytes", ({ peakBytes }) => peakBytes],
      ], ranks?.ranks ?? [])), "Ranks (CSV)"),
      data("ranks-lines", recording(({ ranks }) => csv([
        ["line", ({ name }) => name],
        ["mean_ns", ({ meanNs }) => meanNs],
        ["min_ns", ({ least }) => least.timeNs],
        ["min_rank", ({ least }) => least.rank],
        ["max_ns", ({ most }) => most.timeNs],
        ["max_rank", ({ most }) => most.rank],
      ], ranks?.lines ?? [])), "Lines that differ (CSV)"),
    ],
    findings: [
      data("findings", () => csv([
        ["rule", ({ rule }) => rule],
        ["severity", ({ severity }) => severity],
        ["line", ({ where: line }) => line],
        ["finding", ({ text }) => text],
        ["reason", ({ why }) => why],
        ["cost", ({ cost }) => cost],
        ["time_ns", ({ timeNs }) => timeNs],
        ["bytes", ({ bytes: size }) => size],
        ["fix", ({ fix }) => fix?.title ?? null],
      ], panel()?.findings?.rows ?? [])),
    ],
    batch: [
      chart("throughput-by-batch-size", charts.throughput, "Throughput (SVG)"),
      chart("memory-by-batch-size", charts.batchMemory, "Peak memory (SVG)"),
      data("batch-sizes", () => csv([
        ["batch_size", ({ batch }) => batch],
        ...estimate<{ samplesPerSecond: Estimate | null }>("samples_per_second", ({ samplesPerSecond }) => samplesPerSecond),
        ...estimate<{ peakBytes: Estimate | null }>("peak_bytes", ({ peakBytes }) => peakBytes),
        ["measured", ({ measured }) => measured],
        ["fits", ({ fits }) => fits],
      ], panel()?.batchSize?.points ?? [])),
    ],
    breakdown: [
      chart("breakdown", charts.breakdown),
      data("breakdown", recording(({ breakdowns }) => {
        const shown = breakdowns.find(({ key }) => key === source.grouping()) ?? breakdowns[0];
        return shown === undefined ? null : breakdownCsv(shown, where);
      })),
    ],
    timeline: [
      { label: "Perfetto trace (JSON)", file: "trace.json", content: timeline((known) => {
        const { project = "project", recording: measured = null } = panel() ?? {};
        const name = [project, measured?.device ?? ""].filter(Boolean).join(" · ");
        return perfettoTrace({ timeline: known, memory: measured?.memory ?? null, name, placeName: source.placeName });
      }) },
      chart("timeline", charts.timeline),
      data("timeline", timeline((known) => timelineCsv(known, where))),
    ],
    memory: [
      chart("memory", charts.memory, "Memory over the iteration (SVG)"),
      chart("peak-memory", recording(({ memory }) => (memory === null ? null : kindBars(memory))), "At the peak (SVG)"),
      data("memory", recording(({ memory }) => csv([
        ["time_ns", ([atNs]) => atNs],
        ["allocated_bytes", ([, size]) => size],
      ], memory?.curve ?? [])), "Memory over the iteration (CSV)"),
      data("peak-memory", recording(({ memory }) => csv([
        ["line", ({ name }) => name],
        ["function", ({ detail }) => detail],
        ["kind", ({ kind }) => kind],
        ["bytes", ({ bytes: size }) => size],
      ], memory?.holders ?? [])), "Top lines at the peak (CSV)"),
      data("tensors", recording(({ memory }) => csv([
        ["line", ({ name }) => name],
        ["kind", ({ kind }) => kind],
        ["bytes", ({ bytes: size }) => size],
        ["allocated_ns", ({ allocatedNs }) => allocatedNs],
        ["freed_ns", ({ freedNs }) => freedNs],
      ], memory?.tensors ?? [])), "Largest tensors (CSV)"),
    ],
    kernels: [
      data("kernels", recording(({ kernels, durationNs }) => csv([
        ["kernel", ({ name }) => name],
        ["calls", ({ calls }) => calls],
        ["time_ns", ({ timeNs }) => timeNs],
        ["share_of_iteration", ({ timeNs }) => (durationNs > 0 ? timeNs / durationNs : null)],
        ["occupancy", ({ occupancy }) => occupancy],
      ], kernels))),
    ],
    roofline: [
      chart("roofline", charts.roofline),
      data("roofline", recording(({ roofline }) => csv([
        ["line", ({ place }) => where(place)],
        ["operator", ({ name }) => name],
        ["inputs", ({ inputs }) => inputs],
        ["kernel", ({ kernel }) => kernel],
        ["phase", ({ phase }) => phase],
        ["time_ns", ({ timeNs }) => timeNs],
        ["flops", ({ flops }) => flops],
        ["bytes", ({ bytes: size }) => size],
        ["flops_per_byte", ({ intensity }) => intensity],
        ["flops_per_second", ({ rate }) => rate],
        ["limited_by", ({ bound }) => bound],
        ["share_of_ceiling", ({ shareOfRoof }) => shareOfRoof],
      ], roofline.points))),
    ],
    predictions: [
      { ...chart("other-gpus", charts.devices), available: () => charts.devices() !== null },
      data("other-gpus", () => csv([
        ["gpu", ({ name }) => name],
        ["measured_here", ({ here }) => here],
        ...estimate<{ timeNs: Estimate }>("iteration_ns", ({ timeNs }) => timeNs),
        ["samples_per_second", ({ samplesPerSecond }) => samplesPerSecond?.value ?? null],
        ["peak_memory_share", ({ peakShare }) => peakShare],
        ["fits", ({ fits }) => fits],
        ["usd_per_hour", ({ usdPerHour }) => usdPerHour],
        ["usd_per_million_samples", ({ usdPerMillionSamples }) => usdPerMillionSamples?.value ?? null],
        ["usd_per_epoch", ({ usdPerEpoch }) => usdPerEpoch?.value ?? null],
        ["joules_per_iteration", ({ joules }) => joules?.value ?? null],
        ["busy_batch_size", ({ batch }) => batch?.size ?? null],
        ["largest_batch_size", ({ batch }) => batch?.largest?.value ?? null],
      ], panel()?.devices?.rows ?? [])),
    ],
    "what-ifs": [
      chart("optimizations", () => whatIfBars(panel())),
      data("optimizations", () => csv([
        ["optimization", ({ title }) => title],
        ...estimate<{ speedup: Estimate }>("speedup", ({ speedup }) => speedup),
        ...estimate<{ timeNs: Estimate | null }>("iteration_ns", ({ timeNs }) => timeNs),
        ...estimate<{ peakBytes: Estimate | null }>("peak_bytes", ({ peakBytes }) => peakBytes),
        ["measured_iteration_ns", ({ measured }) => measured?.timeNs ?? null],
        ["measured_peak_bytes", ({ measured }) => measured?.peakBytes ?? null],
        ["lines", ({ lines }) => lines.map(source.placeName).join(" ")],
        ["source", ({ source: paper }) => paper],
      ], panel()?.whatIfs?.rows ?? [])),
    ],
    history: [
      chart("history", charts.history),
      data("history", () => csv([
        ["time", ({ whenMs }) => isoTime(whenMs)],
        ["iteration_ns", ({ timeNs }) => timeNs],
        ["samples_per_second", ({ samplesPerSecond }) => samplesPerSecond],
        ["peak_bytes", ({ peakBytes }) => peakBytes],
        ["batch_size", ({ batchSize }) => batchSize],
        ["device", ({ device }) => device],
        ["commit", ({ commit }) => commit],
        ["clean", ({ clean }) => clean],
      ], panel()?.history ?? [])),
      {
        ...data("comparison", () => comparisonCsv(source.comparison()), "Comparison of two runs (CSV)"),
        available: () => source.comparison() !== null,
      },
    ],
  };
}

/** Three columns: the value and the ends of its range. */
function estimate<Row>(name: string, of: (row: Row) => Estimate | null): Column<Row>[] {
  return [
    [name, (row) => of(row)?.value ?? null],
    [`${name}_low`, (row) => of(row)?.low ?? null],
    [`${name}_high`, (row) => of(row)?.high ?? null],
  ];
}

function isoTime(whenMs: number | null): Cell {
  const when = new Date(whenMs ?? Number.NaN);
  return Number.isNaN(when.getTime()) ? null : when.toISOString();
}

function comparisonCsv(comparison: Comparison | null): string {
  const { lines = [], modules = [] } = comparison ?? {};
  const rows = [...lines.map((row): [string, Row] => ["line", row]), ...modules.map((row): [string, Row] => ["module", row])];
  return csv<[string, Row]>(
    [
      ["kind", ([kind]) => kind],
      ["name", ([, { name }]) => name],
      ["detail", ([, { detail }]) => detail],
      ["self_before_ns", ([, { own }]) => own.before],
      ["self_after_ns", ([, { own }]) => own.after],
      ["result", ([, { own }]) => own.verdict],
      ["memory_before_bytes", ([, { memory }]) => memory.before],
      ["memory_after_bytes", ([, { memory }]) => memory.after],
    ],
    rows,
  );
}

function breakdownCsv({ nodes }: Breakdown, where: (place: Place | null) => Cell): string {
  const parents = nodes.map(({ parent }) => nodes[parent]?.name ?? null);
  return csv<[CostNode, number]>(
    [
      ["id", ([, id]) => id],
      ["parent_id", ([{ parent }]) => (parent < 0 ? null : parent)],
      ["parent", ([, id]) => parents[id] ?? null],
      ["name", ([{ name }]) => name],
      ["detail", ([{ detail }]) => detail],
      ["line", ([{ place }]) => where(place)],
      ["calls", ([{ calls }]) => calls],
      ["time_ns", ([{ timeNs }]) => timeNs],
      ...PHASES.map((phase, index): Column<[CostNode, number]> => [`${phase}_ns`, ([{ phases }]) => phases[index] ?? null]),
      ["memory_bytes", ([{ memoryBytes }]) => memoryBytes],
    ],
    nodes.map((node, id) => [node, id]),
  );
}

function timelineCsv(timeline: Timeline, where: (place: Place | null) => Cell): string {
  const row = (span: number) => timeline.rows[rowOf(timeline, span)]!;
  return csv<number>(
    [
      ["track", (span) => timeline.tracks[row(span).track]!.name],
      ["depth", (span) => row(span).depth],
      ["name", (span) => timeline.names[timeline.name[span]!] ?? null],
      ["start_ns", (span) => timeline.start[span]!],
      ["time_ns", (span) => timeline.end[span]! - timeline.start[span]!],
      ["phase", (span) => PHASES[timeline.phase[span]!] ?? null],
      ["line", (span) => where(placeOf(timeline, span))],
    ],
    Array.from({ length: timeline.size }, (_, span) => span),
  );
}

function bottleneckBars({ bottleneck }: Recording): string | null {
  const savings = bottleneck?.savings ?? [];
  const bars = savings.map(({ label, atMostShare, atMostNs }) => {
    return { label, share: atMostShare, text: `at most ${percent(atMostShare)} · ${duration(atMostNs)}` };
  });
  return barsSvg("Upper bounds on savings, one cause at a time", bars);
}

function kindBars({ atPeak, peakBytes }: Memory): string | null {
  const bars = atPeak.map(({ kind, bytes: size }) => {
    const share = peakBytes > 0 ? size / peakBytes : 0;
    return { label: kind, share, text: `${bytes(size)} · ${percent(share)}` };
  });
  return barsSvg(`Peak memory: ${bytes(peakBytes)}`, bars);
}

function whatIfBars(panel: PanelDocument | null): string | null {
  const rows = panel?.whatIfs?.rows ?? [];
  const scale = scaleOf(rows);
  const bars = rows.map(({ title, speedup }) => ({
    label: title,
    share: at(speedup.value, scale),
    start: at(1, scale),
    text: `~${times(speedup.value)} (${reach(speedup, times)})`,
    range: [at(speedup.low, scale), at(speedup.high, scale)] as [number, number],
  }));
  return barsSvg("Estimated speedup in samples per second", bars);
}
