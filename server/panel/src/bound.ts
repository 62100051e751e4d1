// What bounds the iteration: the verdict, a bar whose parts add up to it, and the same as a table.

import type { Actions } from "./actions";
import type { BoundShare, Recording } from "./document";
import { button, element, fill, write } from "./dom";
import { duration, percent } from "./format";
import { scroller } from "./table";

/** Less is in the bar, but has no row. */
const LEAST = 0.005;

export class BoundSection {
  readonly #verdict = element("p", { class: "bound-verdict" });
  readonly #bar = element("div", { class: "bound-bar", "aria-hidden": "true" });
  readonly #rows = element("tbody");
  readonly #parts = element("dl", { class: "utilization" });

  constructor(
    root: HTMLElement,
    private readonly actions: Actions,
  ) {
    const head = (text: string, name: string | null = null) => element("th", { scope: "col", class: name }, text);
    const caption = "What the iteration waits for";
    const table = element(
      "table",
      {},
      element("caption", { class: "unseen" }, caption),
      element("thead", {}, element("tr", {}, head("Waits for"), head("Share", "number"), head("Time", "number"), head("Mostly in"))),
      this.#rows,
    );
    fill(root, this.#verdict, this.#bar, scroller(caption, table), this.#parts);
  }

  show({ bound, utilization }: Recording): void {
    write(this.#verdict, bound?.text ?? "");
    const shares = bound?.shares ?? [];
    fill(this.#bar, ...shares.filter(({ share }) => share > 0).map(part));
    fill(this.#rows, ...shares.filter(({ share }) => share >= LEAST).map((share) => this.#row(share)));
    fill(
      this.#parts,
      ...utilization.map(({ name, facts }) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, ...facts.flatMap(fact))),
      ),
    );
  }

  #row(share: BoundShare): HTMLElement {
    const { place, evidence } = share;
    const text = evidence === "" ? "" : element("span", {}, evidence);
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, element("i", { class: `swatch bound-${known(share.key)}`, "aria-hidden": "true" }), share.label),
      element("td", { class: "number" }, percent(share.share)),
      element("td", { class: "number" }, duration(share.timeNs)),
      element(
        "td",
        {},
        this.actions.canJump(place)
          ? button(evidence, { class: "link" }, () => {
              this.actions.jump(place);
            })
          : text,
      ),
    );
  }
}

function part({ key, share }: BoundShare): HTMLElement {
  const made = element("i", { class: `bound-${known(key)}` });
  made.style.setProperty("--share", share.toFixed(5));
  return made;
}

/** A fact that stays on one line, where it fits on one. */
function fact(text: string, at: number, all: readonly string[]): (HTMLElement | string)[] {
  return [element("span", {}, at + 1 < all.length ? `${text} ·` : text), " "];
}

const KEYS = [
  "compute",
  "memory_bandwidth",
  "operators",
  "kernel_launches",
  "synchronization",
  "data_loading",
  "host_copies",
  "communication",
  "host_code",
];

function known(key: string): string {
  return KEYS.includes(key) ? key : "unknown";
}
