// Reads the ranks of a launched run (docs/panel.md).

import { amount, fields, isFields, list, maybeAmount, readPlace, text, type Fields, type Place } from "../values";

/** The cost of one rank's iteration. */
export interface Rank {
  rank: number;
  timeNs: number;
  computingNs: number;
  /** Communication time; null if there was none. */
  exchangeNs: number | null;
  /** Exposed communication time: not overlapped with compute. */
  waitingNs: number | null;
  batchSize: number | null;
  peakBytes: number;
}

/** A line whose time differs between ranks. */
export interface LineSpread {
  name: string;
  place: Place | null;
  meanNs: number;
  least: { rank: number; timeNs: number };
  most: { rank: number; timeNs: number };
}

export interface Ranks {
  worldSize: number;
  /** The measured ranks. */
  ranks: Rank[];
  /** Sorted by difference, largest first. */
  lines: LineSpread[];
}

const RANKS = 64;
const LINES = 1_000;

export function readRanks(value: unknown): Ranks | null {
  if (!isFields(value)) return null;
  return {
    worldSize: amount(value.world_size),
    ranks: list(value.ranks, RANKS).map(readRank),
    lines: list(value.lines, LINES).map((line) => ({
      name: text(line.name),
      place: readPlace(line.place),
      meanNs: amount(line.mean_ns),
      least: readEnd(line.least),
      most: readEnd(line.most),
    })),
  };
}

function readRank(it: Fields): Rank {
  return {
    rank: amount(it.rank),
    timeNs: amount(it.time_ns),
    computingNs: amount(it.computing_ns),
    exchangeNs: maybeAmount(it.exchange_ns),
    waitingNs: maybeAmount(it.waiting_ns),
    batchSize: maybeAmount(it.batch_size),
    peakBytes: amount(it.peak_bytes),
  };
}

function readEnd(value: unknown): { rank: number; timeNs: number } {
  const it = fields(value);
  return { rank: amount(it.rank), timeNs: amount(it.time_ns) };
}
