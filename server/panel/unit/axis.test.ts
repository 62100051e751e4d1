import { expect, it } from "vitest";

import { tickLabel, ticks } from "../src/axis";
import { pan, within, zoom } from "../src/range";

it("places ticks at round values", () => {
  expect(ticks({ start: 0, end: 100e6 }, 1100)).toEqual({ at: Array.from({ length: 11 }, (_, at) => at * 1e7), step: 1e7 });
  expect(ticks({ start: 12.31e6, end: 12.33e6 }, 500).step).toBe(5e3);
  expect(ticks({ start: 0, end: 0 }, 500).at).toEqual([]);
});

it("formats ticks with enough digits to distinguish them", () => {
  expect([0, 1e7, 12.305e6].map((at) => tickLabel(at, 5e3))).toEqual(["0", "10.000 ms", "12.305 ms"]);
  expect(tickLabel(20e6, 10e6)).toBe("20 ms");
  expect(tickLabel(1.5e9, 0.5e9)).toBe("1.5 s");
});

it("zooms around a point and stays within the full range", () => {
  const whole = { start: 0, end: 100 };
  expect(zoom({ start: 0, end: 100 }, whole, 25, 0.5, 1)).toEqual({ start: 12.5, end: 62.5 });
  expect(zoom({ start: 0, end: 100 }, whole, 25, 2, 1)).toEqual(whole);
  expect(zoom({ start: 40, end: 42 }, whole, 41, 0.1, 1)).toEqual({ start: 40.5, end: 41.5 });
  expect(pan({ start: 10, end: 20 }, whole, 500)).toEqual({ start: 90, end: 100 });
  expect(pan({ start: 10, end: 20 }, whole, -500)).toEqual({ start: 0, end: 10 });
  expect(within({ start: -10, end: 500 }, whole, 1)).toEqual(whole);
});
