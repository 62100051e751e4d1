// Searches the nodes of a tree.

import { WHOLE, type Tree } from "./tree";

/** A node's search result. `Above`: one of its descendants matches. */
export const Mark = { None: 0, Above: 1, Match: 2 } as const;

export interface Found {
  marks: Uint8Array;
  matches: number;
  /** The share of the total in matching nodes, without double counting. */
  share: number;
}

/** Finds nodes whose name or detail contains every word. Returns null if the query is empty. */
export function search(tree: Tree, query: string): Found | null {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return null;
  const marks = new Uint8Array(tree.size);
  const inMatch = new Uint8Array(tree.size);
  let matches = 0;
  let share = 0;
  // Parents come before children, so one forward pass has seen every ancestor.
  for (let index = WHOLE + 1; index < tree.size; index += 1) {
    const above = inMatch[tree.parent[index]!]!;
    inMatch[index] = above;
    const text = tree.text(index);
    if (!words.every((word) => text.includes(word))) continue;
    marks[index] = Mark.Match;
    matches += 1;
    if (above === 0) share += tree.share(index);
    inMatch[index] = 1;
    for (let at = tree.parent[index]!; at >= WHOLE && marks[at] === Mark.None; at = tree.parent[at]!) {
      marks[at] = Mark.Above;
    }
  }
  return { marks, matches, share: Math.min(1, share) };
}
