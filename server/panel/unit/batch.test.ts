import { describe, expect, test } from "vitest";

import { readBatchSize } from "../src/batch/document";
import { along, batchAt, isMeasured, reach, share, stepped } from "../src/batch/scale";

const range = (value: number) => ({ low: value * 0.9, value, high: value * 1.1 });
const point = (batch: number, measured = false) => ({ batch, samples_per_second: range(10 * batch), peak_bytes: range(1000 + batch), measured, fits: batch <= 64 });
const batchSize = {
  state: "ready",
  message: null,
  current: 32,
  site: { text: "batch_size=32", place: { file: 0, line: 12 } },
  refusal: null,
  points: [point(64), point(32, true), point(8)],
  capacity_bytes: 1064,
  largest: range(64),
  saturation: null,
};
const read = (value: unknown) => readBatchSize({ predictions: { batch_size: value } });

describe("the document", () => {
  test("is read and sorted", () => {
    const sizes = read(batchSize);
    expect(sizes?.points.map(({ batch }) => batch)).toEqual([8, 32, 64]);
    expect(sizes?.site).toEqual({ text: "batch_size=32", place: { file: 0, line: 12 }, note: null });
    expect(sizes?.saturation).toBeNull();
  });

  test("may be missing or invalid", () => {
    expect(readBatchSize({ predictions: null })).toBeNull();
    expect(readBatchSize({})).toBeNull();
    for (const strange of [null, 3, [], "x", {}, { current: 0 }, { current: "8" }, { current: NaN }]) expect(read(strange)).toBeNull();
    const sizes = read({ current: 4, state: "?", points: [3, { batch: -1 }, { batch: 1.5 }, { batch: 2, peak_bytes: { value: -3 } }], site: { text: 3 } });
    expect(sizes).toMatchObject({ state: "unavailable", site: null, largest: null });
    expect(sizes?.points).toEqual([{ batch: 2, samplesPerSecond: null, peakBytes: null, measured: false, fits: null }]);
  });

  test("corrects ranges and truncates lists", () => {
    const sizes = read({ ...batchSize, largest: { low: 90, value: 64, high: 3 }, points: Array.from({ length: 500 }, (_, at) => point(at + 1)) });
    expect(sizes?.largest).toEqual({ low: 64, value: 64, high: 64 });
    expect(sizes?.points.length).toBe(64);
  });
});

describe("the scale", () => {
  const within = { first: 8, last: 128 };

  test("is logarithmic and invertible", () => {
    expect(share(32, within)).toBeCloseTo(0.5);
    for (const batch of [8, 16, 24, 32, 120, 128]) expect(batchAt(share(batch, within), within)).toBe(batch);
    expect([batchAt(-1, within), batchAt(2, within)]).toEqual([8, 128]);
    // Sizes in between suit tensor cores.
    for (const [batch, near] of [[9, 8], [15, 16], [31, 32], [127, 128]]) expect(batchAt(share(batch!, within), within)).toBe(near);
    const small = { first: 1, last: 16 };
    expect([1, 3, 5, 6, 7].map((batch) => batchAt(share(batch, small), small))).toEqual([1, 4, 4, 8, 8]);
  });

  test("supports the keys of a slider", () => {
    const keys = ["ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown", "PageUp", "PageDown", "Home", "End", "x"];
    expect(keys.map((key) => stepped(key, 33, within))).toEqual([34, 34, 32, 32, 66, 17, 8, 128, null]);
    expect([stepped("PageUp", 100, within), stepped("ArrowLeft", 8, within)]).toEqual([128, 8]);
  });

  test("interpolates between points and does not extrapolate", () => {
    const points = read(batchSize)?.points ?? [];
    const of = (one: (typeof points)[number]) => one.peakBytes;
    expect(along(points, 32, of)?.value).toBe(1032);
    expect(along(points, 48, of)?.value).toBe(1048);
    expect(along(points, 65, of)).toBeNull();
    expect(along([], 8, of)).toBeNull();
    expect([isMeasured(points, 32), isMeasured(points, 48)]).toEqual([true, false]);
  });

  test("has a width even with only one batch size", () => {
    const sizes = read({ ...batchSize, current: 32, points: [] });
    if (sizes === null) throw new Error("was not read");
    expect(reach(sizes)).toEqual({ first: 32, last: 33 });
    expect(share(32, reach(sizes))).toBe(0);
  });
});
