// The breakdown as an expandable table: the same data as the icicle, for users who prefer text.

import { button, element, fill, set } from "./dom";
import type { Actions } from "./actions";
import { bytes, count, duration, percent, shorten } from "./format";
import { Mark, type Found } from "./search";
import { scroller } from "./table";
import { WHOLE, type Tree } from "./tree";

interface Row {
  node: number;
  /** One-based position among its siblings, and their number. */
  position: number;
  siblings: number;
}

/** The number of rows created at first, and again by each click on the last row. */
const ROWS = 300;

export interface TreegridEvents {
  selected(node: number): void;
  opened(node: number): void;
}

export class Treegrid {
  readonly root: HTMLElement;
  readonly #body = element("tbody");
  readonly #table: HTMLTableElement;
  readonly #more: HTMLButtonElement;
  #tree: Tree | null = null;
  #top = WHOLE;
  #found: Found | null = null;
  #limit = ROWS;
  /** Expanded nodes as paths of names, so they stay expanded across measurements. */
  readonly #open = new Set<string>();
  #rows: Row[] = [];
  #current = -1;

  constructor(
    private readonly actions: Actions,
    private readonly events: TreegridEvents,
  ) {
    const heads: [string, string][] = [
      ["Name", "name"],
      ["Time", "number"],
      ["Share", "number"],
      ["Memory", "number"],
      ["Calls", "number"],
      ["Line", ""],
    ];
    this.#table = element(
      "table",
      { role: "treegrid", "aria-label": "Breakdown", class: "treegrid" },
      element(
        "thead",
        {},
        element("tr", {}, ...heads.map(([label, kind]) => element("th", { scope: "col", class: kind }, label))),
      ),
      this.#body,
    );
    this.#more = button("Show more rows", { class: "quiet" }, () => {
      this.#limit += ROWS;
      this.#render();
    });
    this.root = scroller("Breakdown", this.#table, this.#more);
    this.#listen();
  }

  show(tree: Tree, top: number, selected: number, found: Found | null): void {
    if (this.#tree !== tree || this.#top !== top) this.#limit = ROWS;
    this.#tree = tree;
    this.#top = top;
    this.#found = found;
    this.#current = selected;
    this.#render();
  }

  #render(): void {
    const tree = this.#tree;
    if (tree === null) return;
    this.#rows = [];
    const complete = this.#collect(tree);
    if (this.#index(this.#current) < 0) this.#current = this.#rows[0]?.node ?? -1;
    const focused = this.#body.contains(document.activeElement);
    fill(this.#body, ...this.#rows.map((row) => this.#row(tree, row)));
    if (focused) this.#body.querySelector<HTMLElement>(`[data-node="${this.#current}"]`)?.focus({ preventScroll: true });
    this.#more.hidden = complete;
  }

  /** Returns false if there are more rows than the limit. */
  #collect(tree: Tree): boolean {
    const stack: Row[] = [{ node: this.#top, position: 1, siblings: 1 }];
    for (let row = stack.pop(); row !== undefined; row = stack.pop()) {
      if (this.#rows.length >= this.#limit) return false;
      this.#rows.push(row);
      if (!this.#isOpen(tree, row.node)) continue;
      const shown = tree
        .bySize(row.node)
        .filter((child) => this.#found === null || this.#found.marks[child] !== Mark.None);
      for (let at = shown.length - 1; at >= 0; at -= 1) {
        stack.push({ node: shown[at]!, position: at + 1, siblings: shown.length });
      }
    }
    return true;
  }

  #index(node: number): number {
    return this.#rows.findIndex((row) => row.node === node);
  }

  #isOpen(tree: Tree, node: number): boolean {
    return node === this.#top || this.#found?.marks[node] === Mark.Above || this.#open.has(key(tree, node));
  }

  #row(tree: Tree, { node, position, siblings }: Row): HTMLTableRowElement {
    const record = tree.node(node);
    const leaf = tree.isLeaf(node);
    const open = this.#isOpen(tree, node);
    const level = tree.depth[node]! - tree.depth[this.#top]! + 1;
    const name = element(
      "span",
      { class: "tree-name" },
      element("span", { class: "twist", "aria-hidden": "true" }, leaf ? "" : open ? "▾" : "▸"),
      element("span", { class: "mono" }, shorten(tree.name(node), 120)),
      tree.detail(node) !== "" && element("span", { class: "about" }, ` ${shorten(tree.detail(node), 120)}`),
    );
    // Indenting deep trees further would push their names out of the table.
    name.style.paddingInlineStart = `${Math.min(level - 1, 12) * 14}px`;
    const place = tree.place(node);
    const time = record?.timeNs ?? (tree.metric === "time" ? tree.value[WHOLE]! : null);
    const memory = record?.memoryBytes ?? (tree.metric === "memory" ? tree.value[WHOLE]! : null);
    const number = (text: string) => element("td", { class: "number", role: "gridcell" }, text);
    return element(
      "tr",
      {
        role: "row",
        "aria-level": level,
        "aria-expanded": leaf ? null : String(open),
        "aria-setsize": siblings,
        "aria-posinset": position,
        "aria-selected": String(node === this.#current),
        tabindex: node === this.#current ? 0 : -1,
        "data-node": node,
        class: this.#found?.marks[node] === Mark.Match ? "match" : null,
      },
      element("td", { class: "name", role: "gridcell" }, name),
      number(time === null ? "" : `${record?.estimated === true ? "~" : ""}${duration(time)}`),
      number(percent(tree.share(node))),
      number(memory === null ? "" : bytes(memory)),
      number(record?.calls == null ? "" : count(record.calls)),
      element(
        "td",
        { role: "gridcell" },
        this.actions.canJump(place) &&
          button(this.actions.placeName(place), { class: "link mono", tabindex: -1 }, () => {
            this.actions.jump(place);
          }),
      ),
    );
  }

  #listen(): void {
    this.#body.addEventListener("click", (event) => {
      const row = rowOf(event);
      if (row === null || (event.target instanceof Element && event.target.closest("button") !== null)) return;
      const node = nodeOf(row);
      this.#stand(node);
      if (this.#tree?.isLeaf(node) === false && node !== this.#top) this.#toggle(node);
    });
    this.#body.addEventListener("dblclick", (event) => {
      const row = rowOf(event);
      if (row !== null && !(event.target instanceof HTMLButtonElement)) this.events.opened(nodeOf(row));
    });
    this.#body.addEventListener("focusout", () => {
      this.actions.highlight(null);
    });
    this.#body.addEventListener("pointerover", (event) => {
      const row = rowOf(event);
      if (row !== null) this.actions.highlight(this.#tree?.place(nodeOf(row)) ?? null);
    });
    this.#body.addEventListener("pointerleave", () => {
      this.actions.highlight(null);
    });
    this.#body.addEventListener("keydown", (event) => {
      const row = rowOf(event);
      if (row !== null && this.#key(event, nodeOf(row))) event.preventDefault();
    });
  }

  #key(event: KeyboardEvent, node: number): boolean {
    const tree = this.#tree;
    if (tree === null || event.altKey || event.target instanceof HTMLButtonElement) return false;
    const at = this.#index(node);
    const open = this.#isOpen(tree, node);
    switch (event.key) {
      case "ArrowDown":
        return this.#stand(this.#rows[at + 1]?.node);
      case "ArrowUp":
        return this.#stand(this.#rows[at - 1]?.node);
      case "Home":
        return this.#stand(this.#rows[0]?.node);
      case "End":
        return this.#stand(this.#rows.at(-1)?.node);
      case "ArrowRight":
        if (tree.isLeaf(node)) return true;
        return open ? this.#stand(this.#rows[at + 1]?.node) : this.#toggle(node);
      case "ArrowLeft":
        if (open && node !== this.#top && !tree.isLeaf(node)) return this.#toggle(node);
        return node === this.#top || this.#stand(tree.parent[node]);
      case "Enter":
        if (event.ctrlKey || event.metaKey || tree.isLeaf(node)) this.events.opened(node);
        else if (node !== this.#top) this.#toggle(node);
        return true;
      default:
        return false;
    }
  }

  #toggle(node: number): true {
    const tree = this.#tree!;
    const path = key(tree, node);
    if (!this.#open.delete(path)) this.#open.add(path);
    this.#render();
    return this.#stand(node);
  }

  #stand(node: number | undefined): true {
    if (node === undefined) return true;
    const before = this.#body.querySelector(`[data-node="${this.#current}"]`);
    if (before !== null) set(before, { tabindex: -1, "aria-selected": "false" });
    this.#current = node;
    const row = this.#body.querySelector<HTMLElement>(`[data-node="${node}"]`);
    if (row !== null) {
      set(row, { tabindex: 0, "aria-selected": "true" });
      row.focus();
    }
    this.events.selected(node);
    return true;
  }
}

function key(tree: Tree, node: number): string {
  return tree.path(node).join("\n");
}

function rowOf(event: Event): HTMLElement | null {
  return event.target instanceof Element ? event.target.closest<HTMLElement>("tr[data-node]") : null;
}

function nodeOf(row: HTMLElement): number {
  return Number(row.dataset.node);
}
