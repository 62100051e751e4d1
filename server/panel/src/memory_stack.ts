// Memory over the iteration in bands: one for each line, kind or tensor, stacked in the order in which they begin.

import type { Memory, Tensor } from "./document";
import { bytes, duration } from "./format";
import type { Place } from "./values";

export const GROUPINGS = [
  { key: "line", label: "By line" },
  { key: "kind", label: "By kind" },
  { key: "tensor", label: "By tensor" },
] as const;

export type Grouping = (typeof GROUPINGS)[number]["key"];

/** The number of bands with a colour and a place in the legend. */
const NAMED = 6;

export interface Band {
  label: string;
  /** What a tooltip says below the size. */
  about: string;
  place: Place | null;
  /** The index of its colour. */
  colour: number;
  /** Bytes at each point of the curve. */
  sizes: Float64Array;
}

/** Returns the bands of a grouping, from the bottom to the top. At each point they add up to the curve. */
export function bands(memory: Memory, by: Grouping): Band[] {
  const times = memory.curve.map(([time]) => time);
  const add = (band: Band, tensor: Tensor) => {
    const end = tensor.freedNs === null ? times.length : firstNotBefore(times, tensor.freedNs);
    for (let at = firstNotBefore(times, tensor.allocatedNs ?? 0); at < end; at += 1) band.sizes[at]! += tensor.bytes;
  };
  const empty = (label: string, about: string, place: Place | null): Band => ({
    label,
    about,
    place,
    colour: NAMED,
    sizes: new Float64Array(times.length),
  });
  let found: Band[];
  if (by === "tensor") {
    found = memory.tensors.map((tensor) => {
      const colour = colourOf(memory, tensor.kind);
      const band = { ...empty(tensor.name ?? tensor.kind, life(tensor), tensor.place), colour };
      add(band, tensor);
      return band;
    });
  } else {
    const groups = new Map<string, Band>();
    for (const tensor of memory.tensors) {
      const label = by === "kind" ? tensor.kind : tensor.name ?? "without a line";
      const band = groups.get(label) ?? empty(label, "", by === "kind" ? null : tensor.place);
      groups.set(label, band);
      add(band, tensor);
    }
    const largest = [...groups.values()].sort((a, b) => most(b) - most(a));
    found = largest.slice(0, NAMED);
    const others = empty(by === "kind" ? "other kinds" : "other lines", "", null);
    for (const band of largest.slice(NAMED)) band.sizes.forEach((size, at) => { others.sizes[at]! += size; });
    found.sort((a, b) => begin(a) - begin(b) || most(b) - most(a));
    found.forEach((band, at) => { band.colour = by === "kind" ? colourOf(memory, band.label) : at; });
    if (most(others) > 0) found.push(others);
  }
  const rest = empty("smaller tensors and the allocator", "", null);
  memory.curve.forEach(([, size], at) => {
    let known = 0;
    for (const band of found) known += band.sizes[at]!;
    rest.sizes[at] = Math.max(0, size - known);
  });
  return most(rest) > 0 ? [...found, rest] : found;
}

/** Returns the index of the colour that a kind has in the bar of the peak. */
function colourOf({ atPeak }: Memory, kind: string): number {
  const at = atPeak.findIndex((part) => part.kind === kind);
  return at < 0 ? NAMED : Math.min(NAMED, at);
}

/** Describes a tensor: `4.2 MB activations, from 3 ms to 20 ms`. */
export function life({ bytes: size, kind, allocatedNs, freedNs }: Tensor): string {
  const what = `${bytes(size)} ${kind}`;
  if (allocatedNs === null && freedNs === null) return `${what}, all the time`;
  const from = allocatedNs === null ? "" : ` from ${duration(allocatedNs)}`;
  const to = freedNs === null ? " to the end" : ` to ${duration(freedNs)}`;
  return `${what},${from}${to}`;
}

/** Returns the index of the first time that is not before a given one. */
function firstNotBefore(times: readonly number[], time: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the largest size of a band. */
export function most({ sizes }: Band): number {
  return sizes.reduce((a, b) => Math.max(a, b), 0);
}

function begin({ sizes }: Band): number {
  return sizes.findIndex((size) => size > 0);
}
