import { expect, test } from "vitest";

import type { Memory, Tensor } from "../src/document";
import { bands, life } from "../src/memory_stack";

function tensor(bytes: number, kind: string, name: string | null, allocatedNs: number | null, freedNs: number | null): Tensor {
  return { bytes, kind, name, allocatedNs, freedNs, place: null };
}

const memory: Memory = {
  peakBytes: 150,
  capacityBytes: null,
  durationNs: 100,
  peakAtNs: 30,
  curve: [[0, 100], [20, 130], [30, 150], [50, 100]],
  atPeak: [],
  holders: [],
  tensors: [
    tensor(90, "weights", "net.py:3", null, null),
    tensor(30, "activations", "net.py:9", 20, 50),
    tensor(15, "activations", "net.py:12", 30, 50),
    tensor(5, "temporaries", "net.py:12", 30, 50),
  ],
  explanation: "",
};

function shown(by: "line" | "kind" | "tensor"): string[] {
  return bands(memory, by).map(({ label, sizes }) => `${label}: ${[...sizes].join(" ")}`);
}

test("bands are stacked in the order in which they begin, and add up to the curve", () => {
  expect(shown("line")).toEqual([
    "net.py:3: 90 90 90 90",
    "net.py:9: 0 30 30 0",
    "net.py:12: 0 0 20 0",
    "smaller tensors and the allocator: 10 10 10 10",
  ]);
  expect(shown("kind").slice(0, 3)).toEqual(["weights: 90 90 90 90", "activations: 0 30 45 0", "temporaries: 0 0 5 0"]);
  expect(shown("tensor")).toHaveLength(5);
  for (const by of ["line", "kind", "tensor"] as const) {
    memory.curve.forEach(([, size], at) => {
      expect(bands(memory, by).reduce((sum, { sizes }) => sum + sizes[at]!, 0)).toBe(size);
    });
  }
});

test("lines beyond the named ones share a band", () => {
  const many = Array.from({ length: 9 }, (_, at) => tensor(10 - at, "weights", `net.py:${at}`, null, null));
  const found = bands({ ...memory, tensors: many }, "line");
  expect(found.map(({ label }) => label).slice(-2)).toEqual(["other lines", "smaller tensors and the allocator"]);
  expect(found.at(-2)?.sizes[0]).toBe(4 + 3 + 2);
  expect(new Set(found.slice(0, 6).map(({ colour }) => colour)).size).toBe(6);
});

test("a tensor's lifetime in words", () => {
  expect(life(memory.tensors[0]!)).toBe("90 B weights, all the time");
  expect(life(tensor(4_000_000, "activations", null, 3e6, 20e6))).toBe("4.0 MB activations, from 3.0 ms to 20 ms");
  expect(life(tensor(8, "gradients", null, null, 5))).toBe("8 B gradients, to 5.0 ns");
  expect(life(tensor(8, "gradients", null, 5, null))).toBe("8 B gradients, from 5.0 ns to the end");
});
