import { describe, expect, it } from "vitest";

import type { CostNode } from "../src/document";
import { layOut, nodeAt } from "../src/icicle/layout";
import { search } from "../src/search";
import { Tree, WHOLE } from "../src/tree";

/** Parses nodes from lines of `name parent time`. A parent is a line number or -1. */
function tree(text: string, whole = 0): Tree {
  const nodes = text
    .trim()
    .split("\n")
    .map((line): CostNode => {
      const [name, parent, time] = line.trim().split(" ");
      return {
        name: name ?? "",
        detail: "",
        parent: Number(parent),
        timeNs: Number(time),
        memoryBytes: 0,
        phases: [0, 0, 0, 0, 0],
        calls: null,
        estimated: false,
        place: null,
        holds: "",
        facts: [],
        parts: [],
      };
    });
  return new Tree(nodes, "time", whole, "iteration");
}

const NET = `
  net -1 80
  layer1 0 50
  conv 1 30
  relu 1 5
  layer2 0 20
  conv 4 20
  loader -1 10`;

describe("a tree", () => {
  it("computes self cost", () => {
    const net = tree(NET, 100);
    const own = (name: string) => net.own[net.find([name])]!;
    expect(net.own[WHOLE]).toBe(10);
    expect(own("net")).toBe(10);
    expect(net.own[net.find(["net", "layer1"])]).toBe(15);
    expect(net.share(net.find(["net", "layer1"]))).toBe(0.5);
  });

  it("finds the same node in another measurement by its path of names", () => {
    const before = tree(NET);
    const path = before.path(before.find(["net", "layer2", "conv"]));
    expect(path).toEqual(["net", "layer2", "conv"]);
    const after = tree("loader -1 1\nnet -1 9\nlayer2 1 8\nconv 2 7");
    expect(after.name(after.find(path))).toBe("conv");
    const without = tree("net -1 9\nlayer2 0 8");
    expect(without.name(without.find(path))).toBe("layer2");
    expect(tree("other -1 1").find(path)).toBe(WHOLE);
  });

  it("returns children largest first", () => {
    const net = tree("a -1 1\nb -1 5\nc -1 3");
    expect(net.bySize(WHOLE).map((node) => net.name(node))).toEqual(["b", "c", "a"]);
    expect(net.children[WHOLE]!.map((node) => net.name(node))).toEqual(["a", "b", "c"]);
  });
});

describe("the layout", () => {
  it("gives each node an interval by its share, within its parent and without overlapping siblings", () => {
    const net = tree(NET, 100);
    const { start, end, rows } = layOut(net);
    for (let node = 1; node < net.size; node += 1) {
      const parent = net.parent[node]!;
      expect(end[node]! - start[node]!).toBeCloseTo(net.share(node), 12);
      expect(start[node]).toBeGreaterThanOrEqual(start[parent]!);
      expect(end[node]).toBeLessThanOrEqual(end[parent]!);
    }
    for (const row of rows) {
      for (let at = 1; at < row.length; at += 1) expect(start[row[at]!]).toBeGreaterThanOrEqual(end[row[at - 1]!]!);
    }
  });

  it("scales down children that exceed their parent", () => {
    const bad = tree("net -1 10\na 0 30\nb 0 10");
    const { start, end } = layOut(bad);
    expect([start[2], end[2], start[3], end[3]]).toEqual([0, 0.75, 0.75, 1]);
  });

  it("finds the node at a point", () => {
    const net = tree(NET, 100);
    const layout = layOut(net);
    expect(net.name(nodeAt(layout, 1, 0.79))).toBe("net");
    expect(net.name(nodeAt(layout, 1, 0.81))).toBe("loader");
    expect(nodeAt(layout, 1, 0.95)).toBe(-1);
    expect(nodeAt(layout, 9, 0.5)).toBe(-1);
  });

  it("handles ten thousand nodes and one deep chain", () => {
    const wide = tree(Array.from({ length: 10_000 }, (_, at) => `n${at} -1 1`).join("\n"));
    expect(layOut(wide).end[10_000]).toBeCloseTo(1, 6);
    const deep = tree(Array.from({ length: 10_000 }, (_, at) => `n${at} ${at - 1} 1`).join("\n"));
    expect(layOut(deep).rows.length).toBe(10_001);
  });
});

describe("search", () => {
  it("marks matches and their ancestors", () => {
    const net = tree(NET, 100);
    const found = search(net, "CONV");
    expect(found?.matches).toBe(2);
    expect(found?.share).toBeCloseTo(0.5, 12);
    const named = [...(found?.marks ?? [])].map((mark, node) => `${net.name(node)} ${mark}`);
    expect(named).toEqual(["iteration 1", "net 1", "layer1 1", "conv 2", "relu 0", "layer2 1", "conv 2", "loader 0"]);
  });

  it("does not double count a match within a match", () => {
    const net = tree("net -1 100\nnet.a 0 60\nother -1 100");
    expect(search(net, "net")).toMatchObject({ matches: 2, share: 0.5 });
  });

  it("requires every word, and returns null without words", () => {
    const net = tree(NET);
    expect(search(net, "con v")?.matches).toBe(2);
    expect(search(net, "conv xyz")?.matches).toBe(0);
    expect(search(net, "  ")).toBeNull();
  });
});
