// Tables that show their first rows, and the rest on demand.

import { button, element, fill, set } from "./dom";

export interface Column<Row> {
  head: string;
  class?: string;
  cell: (row: Row) => Node | string;
}

export class ListTable<Row> {
  readonly root: HTMLElement;
  readonly #body = element("tbody");
  readonly #all: HTMLButtonElement;
  #rows: readonly Row[] = [];
  /** Keeps the user's choice when new rows arrive. */
  #open = false;

  constructor(
    caption: string,
    private readonly columns: readonly Column<Row>[],
    private readonly limit: number,
  ) {
    const heads = columns.map((column) => element("th", { scope: "col", class: column.class ?? null }, column.head));
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
        element("thead", {}, element("tr", {}, ...heads)),
        this.#body,
      ),
      this.#all,
    );
  }

  show(rows: readonly Row[]): void {
    this.#rows = rows;
    this.#render();
  }

  #render(): void {
    const shown = this.#open ? this.#rows : this.#rows.slice(0, this.limit);
    fill(
      this.#body,
      ...shown.map((row) =>
        element(
          "tr",
          {},
          ...this.columns.map((column) => element("td", { class: column.class ?? null }, column.cell(row))),
        ),
      ),
    );
    this.#all.hidden = this.#rows.length <= this.limit;
    this.#all.textContent = this.#open ? `Show the first ${this.limit}` : `Show all ${this.#rows.length}`;
    this.#all.setAttribute("aria-expanded", String(this.#open));
  }
}

/** A horizontally scrollable box. It is focusable only if it overflows, so that keys can scroll it. */
export function scroller(label: string, ...children: HTMLElement[]): HTMLElement {
  const box = element("div", { class: "table-scroll" }, ...children);
  new ResizeObserver(() => {
    const scrolls = box.scrollWidth > box.clientWidth;
    set(box, { tabindex: scrolls ? 0 : null, role: scrolls ? "group" : null, "aria-label": scrolls ? label : null });
  }).observe(box);
  return box;
}

/** A bar for a share, next to its number. */
export function shareBar(share: number, text: string): HTMLElement {
  const bar = element("i", { class: "share-bar", "aria-hidden": "true" });
  bar.style.setProperty("--share", String(Math.min(1, Math.max(0, share))));
  return element("span", { class: "share" }, bar, element("span", {}, text));
}
