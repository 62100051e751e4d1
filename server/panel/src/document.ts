// Reads the panel's document (docs/panel.md). Its names and numbers come from an untrusted workspace: missing,
// invalid or excessive values are corrected here, so views need no checks.

import { readDevices, type Devices } from "./devices/document";
import { readFindings, type Findings } from "./findings/document";
import {
  amount,
  array,
  fields,
  isFields,
  list,
  maybeAmount,
  maybeShare,
  readPlace,
  text,
  type Fields,
  type Place,
} from "./values";
import { readRoofline, type Roofline } from "./roofline/document";
import { readRanks, type Ranks } from "./ranks/document";
import { readBatchSize, type BatchSize } from "./batch/document";
import { readWhatIfs, type WhatIfs } from "./whatif/document";

/** The phases of an iteration, in the order of `phases` in the document. */
export const PHASES = ["data", "forward", "backward", "optimizer", "other"] as const;

export type { Place } from "./values";

export interface Status {
  state: string;
  message: string | null;
  run: { reason: string; stage: string | null; share: number | null } | null;
}

export interface Change {
  text: string;
  /** `same_code`: the change exceeds the noise, but the code is the same. */
  verdict: "better" | "worse" | "same" | "same_code";
}

export interface Headline {
  key: string;
  label: string;
  text: string;
  sinceLast: Change | null;
  sinceHead: Change | null;
}

export interface CostNode {
  name: string;
  detail: string;
  /** Index of the parent, which precedes this node, or -1. */
  parent: number;
  timeNs: number;
  memoryBytes: number;
  /** Nanoseconds per phase, in the order of `PHASES`. */
  phases: number[];
  calls: number | null;
  /** Part of the cost is a measured total split by an estimate. */
  estimated: boolean;
  place: Place | null;
  /** Description of its tensors that are alive at the peak. */
  holds: string;
  /** Descriptions of how well it uses the device. */
  facts: string[];
  /** How the total time of a line divides. */
  parts: Part[];
}

/** A part of a line's total time. Parts of different kinds overlap. */
export interface Part {
  kind: string;
  name: string;
  timeNs: number;
  place: Place | null;
}

/** The upper bound of the savings if one cause cost nothing. */
export interface Saving {
  cause: string;
  label: string;
  atMostShare: number;
  atMostNs: number;
  /** Description of the evidence. */
  evidence: string;
  place: Place | null;
}

/** The bottleneck of the iteration. Savings overlap: they do not add up to 1. */
export interface Bottleneck {
  text: string;
  savings: Saving[];
}

export interface Breakdown {
  key: string;
  label: string;
  /** The number of nodes over the limit. Their cost counts as their parents' self cost. */
  leftOut: number;
  nodes: CostNode[];
}

export interface Holder {
  name: string;
  detail: string;
  bytes: number;
  kind: string;
  place: Place | null;
}

/** A tensor's memory over the iteration. */
export interface Tensor {
  bytes: number;
  kind: string;
  /** Nanoseconds since the iteration began; null if it was allocated before. */
  allocatedNs: number | null;
  /** Null if it outlives the iteration. */
  freedNs: number | null;
  /** The line that allocated it, or that created the module which owns it. */
  name: string | null;
  place: Place | null;
}

export interface Memory {
  peakBytes: number;
  capacityBytes: number | null;
  /** Duration of the profiled iteration, which is longer than the recording's timed iteration. */
  durationNs: number;
  peakAtNs: number | null;
  /** Ascending in time. */
  curve: [atNs: number, bytes: number][];
  atPeak: { kind: string; bytes: number }[];
  holders: Holder[];
  /** In the order of their allocation, only the largest. */
  tensors: Tensor[];
  explanation: string;
}

export interface Kernel {
  name: string;
  calls: number | null;
  timeNs: number;
  occupancy: number | null;
}

export interface Recording {
  whenMs: number | null;
  device: string;
  deviceKind: string;
  torch: string;
  batchSize: number | null;
  timedIterations: number | null;
  durationNs: number;
  headline: Headline[];
  changesAgainst: { last: string | null; head: string | null; headMs: number | null };
  /** The ranks of a launched run; null for a single rank. */
  ranks: Ranks | null;
  /** The bottleneck of the iteration; null if it could not be simulated. */
  bottleneck: Bottleneck | null;
  /** How well the iteration and its phases use the device. */
  utilization: { name: string; facts: string[] }[];
  breakdowns: Breakdown[];
  memory: Memory | null;
  kernels: Kernel[];
  roofline: Roofline;
  untracked: { name: string; timeNs: number }[];
  files: string[];
  notes: string[];
}

export interface HistoryEntry {
  whenMs: number | null;
  timeNs: number | null;
  samplesPerSecond: number | null;
  peakBytes: number | null;
  batchSize: number | null;
  device: string;
  commit: string | null;
  clean: boolean;
  generation: number | null;
}

export interface PanelDocument {
  batchSize: BatchSize | null;
  generation: number;
  project: string;
  canJump: boolean;
  canHighlight: boolean;
  status: Status;
  recording: Recording | null;
  history: HistoryEntry[];
  /** The iteration on other GPUs; null if no prediction is possible. */
  devices: Devices | null;
  /** Estimated savings of optimizations; null if nothing was measured. */
  whatIfs: WhatIfs | null;
  /** Findings; null if nothing was measured. */
  findings: Findings | null;
}

/** The version of the document that this page reads. */
export const SCHEMA = 1;

const NODES = 50_000;
const CURVE = 200_000;
const ENTRIES = 1_000;
const FILES = 100_000;

export class UnknownSchema extends Error {
  constructor(schema: unknown) {
    super(`This page supports version ${SCHEMA} of the panel document, not ${String(schema)}.`);
  }
}

export function readDocument(value: unknown): PanelDocument {
  const it = fields(value);
  if (it.schema !== SCHEMA) throw new UnknownSchema(it.schema);
  return {
    generation: amount(it.generation),
    project: text(it.project) || "project",
    canJump: it.can_jump === true,
    canHighlight: it.can_highlight === true,
    status: readStatus(it.status),
    recording: isFields(it.recording) ? readRecording(it.recording) : null,
    history: list(it.history, ENTRIES).map(readEntry),
    devices: readDevices(fields(it.predictions).devices),
    batchSize: readBatchSize(it),
    whatIfs: readWhatIfs(it.what_ifs),
    findings: readFindings(it.findings),
  };
}

export function readStatus(value: unknown): Status {
  const it = fields(value);
  const run = it.run;
  return {
    state: text(it.state) || "idle",
    message: text(it.message) || null,
    run: isFields(run)
      ? { reason: text(run.reason), stage: text(run.stage) || null, share: maybeShare(run.share) }
      : null,
  };
}

function readRecording(it: Fields): Recording {
  const device = fields(it.device);
  const against = fields(it.changes_against);
  return {
    whenMs: maybeAmount(it.when_unix_ms),
    device: text(device.name),
    deviceKind: text(device.kind),
    torch: text(it.torch),
    batchSize: maybeAmount(it.batch_size),
    timedIterations: maybeAmount(it.timed_iterations),
    durationNs: amount(it.duration_ns),
    headline: list(it.headline, 20).map(readHeadline),
    changesAgainst: { last: text(against.last) || null, head: text(against.head) || null, headMs: maybeAmount(against.head_unix_ms) },
    ranks: readRanks(it.ranks),
    bottleneck: isFields(it.bottleneck) ? readBottleneck(it.bottleneck) : null,
    utilization: list(it.utilization, 10).map((part) => ({ name: text(part.name), facts: array(part.facts, 20).map(text) })),
    breakdowns: list(it.breakdowns, 10).map(readBreakdown),
    memory: isFields(it.memory) ? readMemory(it.memory) : null,
    kernels: list(it.kernels, ENTRIES).map((kernel) => ({
      name: text(kernel.name),
      calls: maybeAmount(kernel.calls),
      timeNs: amount(kernel.time_ns),
      occupancy: maybeShare(kernel.occupancy),
    })),
    roofline: readRoofline(it.roofline),
    untracked: list(it.untracked, ENTRIES).map((one) => ({
      name: text(one.name),
      timeNs: amount(one.time_ns),
    })),
    files: list(it.files, FILES).map((file) => text(file.path)),
    notes: array(it.notes, ENTRIES).map(text),
  };
}

function readHeadline(it: Fields): Headline {
  return {
    key: text(it.key),
    label: text(it.label),
    text: text(it.text),
    sinceLast: readChange(it.since_last),
    sinceHead: readChange(it.since_head),
  };
}

function readChange(value: unknown): Change | null {
  if (!isFields(value)) return null;
  const verdict = value.verdict;
  return {
    text: text(value.text),
    verdict: verdict === "better" || verdict === "worse" || verdict === "same_code" ? verdict : "same",
  };
}

function readBottleneck(it: Fields): Bottleneck {
  return {
    text: text(it.text),
    savings: list(it.savings, 20).map((saving) => ({
      cause: text(saving.cause),
      label: text(saving.label),
      atMostShare: maybeShare(saving.at_most_share) ?? 0,
      atMostNs: amount(saving.at_most_ns),
      evidence: text(saving.evidence),
      place: readPlace(saving.place),
    })),
  };
}

function readBreakdown(it: Fields): Breakdown {
  const key = text(it.key);
  return {
    key,
    label: text(it.label) || key,
    leftOut: amount(it.left_out) + Math.max(0, array(it.nodes, Infinity).length - NODES),
    nodes: list(it.nodes, NODES).map(readNode),
  };
}

function readNode(it: Fields, index: number): CostNode {
  const parent = it.parent;
  const phases = Array.isArray(it.phases) ? (it.phases as unknown[]) : [];
  return {
    name: text(it.name) || "(no name)",
    detail: text(it.detail),
    parent: typeof parent === "number" && Number.isInteger(parent) && parent >= 0 && parent < index ? parent : -1,
    timeNs: amount(it.time_ns),
    memoryBytes: amount(it.memory_bytes),
    phases: PHASES.map((_, phase) => amount(phases[phase])),
    calls: maybeAmount(it.calls),
    estimated: it.estimated === true,
    place: readPlace(it.place),
    holds: text(it.holds),
    facts: array(it.facts, 20).map(text),
    parts: list(it.parts, 64).map((part) => ({
      kind: text(part.kind),
      name: text(part.name),
      timeNs: amount(part.time_ns),
      place: readPlace(part.place),
    })),
  };
}

function readMemory(it: Fields): Memory {
  const curve: [number, number][] = [];
  let last = 0;
  for (const point of array(it.curve, CURVE)) {
    if (!Array.isArray(point)) continue;
    last = Math.max(last, amount(point[0]));
    curve.push([last, amount(point[1])]);
  }
  return {
    peakBytes: amount(it.peak_bytes),
    capacityBytes: maybeAmount(it.capacity_bytes),
    durationNs: Math.max(amount(it.duration_ns), last, 1),
    peakAtNs: maybeAmount(it.peak_at_ns),
    curve,
    atPeak: list(it.at_peak, 50).map((part) => ({ kind: text(part.kind), bytes: amount(part.bytes) })),
    holders: list(it.holders, ENTRIES).map((holder) => ({
      name: text(holder.name),
      detail: text(holder.detail),
      bytes: amount(holder.bytes),
      kind: text(holder.kind),
      place: readPlace(holder.place),
    })),
    tensors: list(it.tensors, ENTRIES).map((tensor) => ({
      bytes: amount(tensor.bytes),
      kind: text(tensor.kind),
      allocatedNs: maybeAmount(tensor.allocated_ns),
      freedNs: maybeAmount(tensor.freed_ns),
      name: tensor.name === null ? null : text(tensor.name),
      place: readPlace(tensor.place),
    })),
    explanation: text(it.explanation),
  };
}

function readEntry(it: Fields): HistoryEntry {
  return {
    whenMs: maybeAmount(it.when_unix_ms),
    timeNs: maybeAmount(it.time_ns),
    samplesPerSecond: maybeAmount(it.samples_per_second),
    peakBytes: maybeAmount(it.peak_bytes),
    batchSize: maybeAmount(it.batch_size),
    device: text(it.device),
    commit: text(it.commit) || null,
    clean: it.clean === true,
    generation: maybeAmount(it.generation),
  };
}
