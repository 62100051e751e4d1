// A sortable table, accessible to screen readers.

import { button, element, fill } from "../dom";
import { scroller } from "../table";

export interface SortedColumn<Row> {
  head: string;
  class?: string;
  cell: (row: Row) => Node | string;
  /** The column's sort key. Null sorts to the end in both directions. */
  key: (row: Row) => number | string | null;
}

export class SortedTable<Row> {
  readonly root: HTMLElement;
  readonly #head = element("tr");
  readonly #body = element("tbody");
  readonly #all: HTMLButtonElement;
  #columns: readonly SortedColumn<Row>[] = [];
  #rows: readonly Row[] = [];
  /** Keep the user's choices when new rows arrive. */
  #by: string | null = null;
  #descending = false;
  #open = false;

  constructor(
    caption: string,
    private readonly limit: number,
    /** Rows that show even when the table is truncated. */
    private readonly pinned: (row: Row) => boolean,
  ) {
    this.#all = button("", { class: "quiet" }, () => {
      this.#open = !this.#open;
      this.#render();
    });
    this.root = scroller(
      caption,
      element(
        "table",
        {},
        element("caption", { class: "unseen" }, caption),
        element("thead", {}, this.#head),
        this.#body,
      ),
      this.#all,
    );
  }

  show(columns: readonly SortedColumn<Row>[], rows: readonly Row[]): void {
    const same = columns.map(({ head }) => head).join() === this.#columns.map(({ head }) => head).join();
    this.#columns = columns;
    this.#rows = rows;
    if (!same) this.#heads();
    this.#render();
  }

  #heads(): void {
    fill(
      this.#head,
      ...this.#columns.map((column) =>
        element(
          "th",
          { scope: "col", class: column.class ?? null },
          button(column.head, { class: "sort" }, () => {
            this.#descending = this.#by === column.head && !this.#descending;
            this.#by = column.head;
            this.#render();
          }),
        ),
      ),
    );
  }

  #render(): void {
    const rows = this.#sorted();
    const shown = this.#open ? rows : rows.filter((row, at) => at < this.limit || this.pinned(row));
    fill(
      this.#body,
      ...shown.map((row) =>
        element(
          "tr",
          {},
          ...this.#columns.map((column, at) =>
            at === 0
              ? element("th", { scope: "row", class: column.class ?? null }, column.cell(row))
              : element("td", { class: column.class ?? null }, column.cell(row)),
          ),
        ),
      ),
    );
    this.#columns.forEach((column, at) => {
      const isBy = column.head === this.#by;
      const order = this.#descending ? "descending" : "ascending";
      this.#head.children[at]?.setAttribute("aria-sort", isBy ? order : "none");
    });
    this.#all.hidden = rows.length <= this.limit;
    this.#all.textContent = this.#open ? `Show the first ${this.limit}` : `Show all ${rows.length}`;
    this.#all.setAttribute("aria-expanded", String(this.#open));
  }

  #sorted(): Row[] {
    const column = this.#columns.find(({ head }) => head === this.#by);
    if (column === undefined) return [...this.#rows];
    const sign = this.#descending ? -1 : 1;
    return [...this.#rows].sort((a, b) => {
      const [left, right] = [column.key(a), column.key(b)];
      if (left === null || right === null) return Number(left === null) - Number(right === null);
      if (typeof left === "string" || typeof right === "string") return sign * String(left).localeCompare(String(right));
      return sign * (left - right);
    });
  }
}
