import { describe, expect, test } from "vitest";

import { readDevices } from "../src/devices/document";
import { families, frontier, points } from "../src/devices/scatter";
import { LogAxis } from "../src/log_axis";
import { dollars, energy } from "../src/devices/words";

const range = (value: number) => ({ low: value / 1.2, value, high: value * 1.2 });

const row = (name: string, time: number, usd: number | null, more: object = {}) => ({
  name,
  time_ns: range(time),
  usd_per_million_samples: usd === null ? null : range(usd),
  fits: true,
  ...more,
});

function devices(...rows: object[]) {
  return readDevices({ basis: "wave scaling", rows })!;
}

describe("the devices of a document", () => {
  test("are those with a name and a time", () => {
    const read = devices(row("A", 5, 1), row("", 5, 1), row("B", -1, 1), { name: "C" }, {});
    expect(read.rows.map(({ name }) => name)).toEqual(["A"]);
  });

  test("are empty if nothing can be read", () => {
    for (const value of [null, undefined, 3, [], {}, { rows: "x" }, { rows: [1] }]) {
      expect(readDevices(value)).toBeNull();
    }
  });

  test("come with machines that can be read", () => {
    const machine = { name: "A", gpus: 2, batch_size: 8, time_ns: range(5), samples_per_second: range(3), usd_per_hour: null };
    const broken = [{ ...machine, gpus: 0 }, { ...machine, name: "" }, { ...machine, time_ns: null }, { ...machine, batch_size: "8" }, 3];
    const read = readDevices({ rows: [row("A", 5, 1)], machines: [machine, ...broken] })!;
    expect(read.machines.map(({ name, gpus, usdPerHour, usdPerMillionSamples }) => [name, gpus, usdPerHour, usdPerMillionSamples])).toEqual([["A", 2, null, null]]);
    expect(devices(row("A", 5, 1)).machines).toEqual([]);
  });

  test("have ranges that always contain their value", () => {
    const { rows } = devices({ name: "A", time_ns: { low: 9, value: 5, high: Infinity } });
    expect(rows[0]!.timeNs).toEqual({ low: 5, value: 5, high: 5 });
  });
});

describe("the chart", () => {
  const priced = (name: string, rate: number, usd: number | null, more: object = {}) => row(name, 1, usd, { samples_per_second: range(rate), ...more });
  const machine = (name: string, gpus: number, rate: number, usd: number) => ({
    name, gpus, batch_size: 8, time_ns: range(5), samples_per_second: range(rate), usd_per_million_samples: range(usd),
  });
  const labels = (all: readonly { label: string }[]) => all.map(({ label }) => label);

  test("shows those with a price and a throughput", () => {
    const all = devices(priced("A", 5, 1), priced("B", 5, null), priced("C", 5, 0), row("D", 5, 1));
    expect(labels(points(all))).toEqual(["A"]);
  });

  test("labels the Pareto front", () => {
    const all = devices(
      priced("slow and dear", 1, 9),
      priced("slow and cheap", 1, 1),
      priced("fast and dear", 9, 9),
      priced("between", 5, 5),
      priced("out of memory", 9, 1, { fits: false }),
    );
    expect(labels(frontier(points(all)))).toEqual(["fast and dear", "between", "slow and cheap"]);
  });

  test("compares GPUs at the batch sizes that keep them busy", () => {
    const batch = { size: 64, samples_per_second: range(50), usd_per_million_samples: range(0.1) };
    const all = readDevices({
      batch_size: 8,
      rows: [priced("busy", 5, 1, { batch, fits: false }), priced("unknown", 9, 9), priced("here", 5, 1, { batch: { ...batch, size: 8 }, here: true })],
    })!;
    expect(points(all).map((point) => [point.label, point.batchSize, point.samplesPerSecond.value, point.fits, point.measured])).toEqual([
      ["busy", 64, 50, true, false],
      ["here", 8, 50, true, true],
    ]);
  });

  test("has machines, each connected to the GPU that it has several of", () => {
    const all = readDevices({ rows: [priced("A", 5, 1), priced("B", 5, 1)], machines: [machine("A", 4, 18, 1.2), machine("A", 1, 5, 1), machine("A", 2, 9, 1.1)] })!;
    expect(labels(points(all))).toEqual(["A", "B", "4 × A", "2 × A"]);
    expect(families(points(all)).map(labels)).toEqual([["A", "2 × A", "4 × A"]]);
    expect(labels(frontier(points(all)))).toEqual(["4 × A", "2 × A", "A"]);
  });

  test("has logarithmic axes with round ticks within them", () => {
    const axis = new LogAxis([1, 100], 1000);
    expect(axis.at(10)).toBeCloseTo(500);
    expect(axis.at(0)).toBe(0);
    expect(axis.ticks()).toEqual([1, 2, 5, 10, 20, 50, 100]);
    expect(new LogAxis([], 100).ticks().length).toBeLessThan(30);
    expect(new LogAxis([7], 100).at(7)).toBeCloseTo(50);
  });
});

test("money and energy are formatted as in the terminal", () => {
  expect([0, 0.0042, 0.31, 1.5, 312.4].map(dollars)).toEqual(["$0", "$0.0042", "$0.31", "$1.50", "$312"]);
  expect([0.42, 36, 1234].map(energy)).toEqual(["420 mJ", "36 J", "1.2 kJ"]);
});
