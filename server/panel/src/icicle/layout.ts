// Lays out a tree: each node gets an interval of the total and a row.

import { WHOLE, type Tree } from "../tree";

export interface Layout {
  /** Start and end of each node's interval, 0 to 1. */
  start: Float64Array;
  end: Float64Array;
  /** For each depth, its nodes from left to right. */
  rows: Int32Array[];
}

export function layOut(tree: Tree): Layout {
  const start = new Float64Array(tree.size);
  const end = new Float64Array(tree.size);
  end[WHOLE] = 1;
  const rows: Int32Array[] = [];
  let row: number[] = [WHOLE];
  while (row.length > 0) {
    rows.push(Int32Array.from(row));
    const next: number[] = [];
    for (const parent of row) {
      const children = tree.children[parent]!;
      let sum = 0;
      for (const child of children) sum += tree.value[child]!;
      // If the children add up to more than their parent, scale them down so that nothing overlaps.
      const scale = (end[parent]! - start[parent]!) / Math.max(sum, tree.value[parent]!);
      let at = start[parent]!;
      for (const child of children) {
        start[child] = at;
        at = Math.min(end[parent]!, at + (Number.isFinite(scale) ? tree.value[child]! * scale : 0));
        end[child] = at;
        next.push(child);
      }
    }
    row = next;
  }
  return { start, end, rows };
}

/** Returns the index of the row's first node that ends after `at`. */
export function firstAfter(layout: Layout, row: Int32Array, at: number): number {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (layout.end[row[middle]!]! > at) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Returns the row's node at `at`, or -1. */
export function nodeAt(layout: Layout, depth: number, at: number): number {
  const row = layout.rows[depth];
  if (row === undefined) return -1;
  const node = row[firstAfter(layout, row, at)];
  return node !== undefined && layout.start[node]! <= at ? node : -1;
}
