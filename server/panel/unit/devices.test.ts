import { describe, expect, test } from "vitest";

import { readDevices } from "../src/devices/document";
import { frontier, points } from "../src/devices/scatter";
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
  test("shows those with a price", () => {
    expect(points(devices(row("A", 5, 1), row("B", 5, null), row("C", 5, 0)).rows)).toHaveLength(1);
  });

  test("labels the Pareto front", () => {
    const { rows } = devices(
      row("slow and dear", 9, 9),
      row("slow and cheap", 9, 1),
      row("fast and dear", 1, 9),
      row("between", 5, 5),
      row("out of memory", 1, 1, { fits: false }),
    );
    expect(frontier(points(rows)).map(({ device }) => device.name)).toEqual(["fast and dear", "between", "slow and cheap"]);
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
