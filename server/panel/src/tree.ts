// A breakdown as a tree of typed arrays. Node 0 is the total, and the document's node i is i + 1.

import type { CostNode, Place } from "./document";

export type Metric = "time" | "memory";

export const WHOLE = 0;

export class Tree {
  readonly size: number;
  readonly parent: Int32Array;
  readonly depth: Uint16Array;
  readonly value: Float64Array;
  /** A node's self cost: what its children do not account for. */
  readonly own: Float64Array;
  /** Children in program order, which is stable across measurements. */
  readonly children: readonly (readonly number[])[];
  readonly deepest: number;

  readonly #nodes: readonly CostNode[];
  #texts: string[] | null = null;

  /** `whole` is the cost of the iteration. The sum of the top nodes may differ from it. */
  constructor(
    nodes: readonly CostNode[],
    readonly metric: Metric,
    whole: number,
    readonly wholeName: string,
  ) {
    this.#nodes = nodes;
    this.size = nodes.length + 1;
    this.parent = new Int32Array(this.size).fill(-1);
    this.depth = new Uint16Array(this.size);
    this.value = new Float64Array(this.size);
    this.own = new Float64Array(this.size);
    const children: number[][] = Array.from({ length: this.size }, () => []);
    let top = 0;
    let deepest = 0;
    nodes.forEach((node, at) => {
      const index = at + 1;
      const parent = node.parent + 1;
      this.parent[index] = parent;
      this.depth[index] = Math.min(this.depth[parent]! + 1, 65_535);
      this.value[index] = metric === "time" ? node.timeNs : node.memoryBytes;
      if (parent === WHOLE) top += this.value[index];
      children[parent]!.push(index);
      deepest = Math.max(deepest, this.depth[index]);
    });
    this.value[WHOLE] = Math.max(whole, top);
    for (let index = 0; index < this.size; index += 1) {
      let below = 0;
      for (const child of children[index]!) below += this.value[child]!;
      this.own[index] = Math.max(0, this.value[index]! - below);
    }
    this.children = children;
    this.deepest = deepest;
  }

  node(index: number): CostNode | null {
    return this.#nodes[index - 1] ?? null;
  }

  name(index: number): string {
    return this.node(index)?.name ?? this.wholeName;
  }

  detail(index: number): string {
    return this.node(index)?.detail ?? "";
  }

  place(index: number): Place | null {
    return this.node(index)?.place ?? null;
  }

  share(index: number): number {
    const whole = this.value[WHOLE]!;
    return whole > 0 ? this.value[index]! / whole : 0;
  }

  /** Returns the children, largest first. */
  bySize(index: number): number[] {
    return [...this.children[index]!].sort((a, b) => this.value[b]! - this.value[a]! || a - b);
  }

  isLeaf(index: number): boolean {
    return this.children[index]!.length === 0;
  }

  /** Returns the phase with nearly all of the node's time, or -1 if several share it. */
  onlyPhase(index: number): number {
    const phases = this.node(index)?.phases ?? [];
    let sum = 0;
    for (const time of phases) sum += time;
    return sum > 0 ? phases.findIndex((time) => time >= 0.9 * sum) : -1;
  }

  /** Returns the nodes from the total's child down to this node. */
  ancestry(index: number): number[] {
    const path: number[] = [];
    for (let at = index; at > WHOLE; at = this.parent[at]!) path.unshift(at);
    return path;
  }

  /** Returns the names from the top to the node, which are stable across measurements. */
  path(index: number): string[] {
    return this.ancestry(index).map((at) => this.name(at));
  }

  /** Returns the node of a path, or its nearest existing ancestor. */
  find(path: readonly string[]): number {
    let at = WHOLE;
    for (const name of path) {
      const next = this.children[at]!.find((child) => this.name(child) === name);
      if (next === undefined) break;
      at = next;
    }
    return at;
  }

  /** Returns the searchable text, in lower case. */
  text(index: number): string {
    this.#texts ??= this.#nodes.map((node) => `${node.name}\n${node.detail}`.toLowerCase());
    return this.#texts[index - 1] ?? "";
  }
}
