// The bottleneck of the iteration: the verdict, and the upper bound of each cause's savings, as bars and numbers.

import type { Actions } from "./actions";
import type { Recording, Saving } from "./document";
import { button, element, fill, write } from "./dom";
import { duration, percent } from "./format";
import { scroller } from "./table";

export class BottleneckSection {
  readonly #verdict = element("p", { class: "bottleneck-verdict" });
  readonly #rows = element("tbody");
  readonly #parts = element("dl", { class: "utilization" });

  constructor(
    root: HTMLElement,
    private readonly actions: Actions,
  ) {
    const head = (text: string, name: string | null = null) => element("th", { scope: "col", class: name }, text);
    // The bars repeat the numbers next to them, so they are hidden from screen readers.
    const bars = element("td", { "aria-hidden": "true" });
    const caption = "Upper bounds on savings, one cause at a time";
    const table = element(
      "table",
      {},
      element("caption", { class: "unseen" }, caption),
      element(
        "thead",
        {},
        element("tr", {}, head("Cause removed"), head("Max. saving", "number"), bars, head("Time", "number"), head("Mostly in")),
      ),
      this.#rows,
    );
    const about = element("p", { class: "quiet" }, "One cause at a time; savings overlap.");
    fill(root, this.#verdict, scroller(caption, table), about, this.#parts);
  }

  show({ bottleneck, utilization }: Recording): void {
    write(this.#verdict, bottleneck?.text ?? "");
    fill(this.#rows, ...(bottleneck?.savings ?? []).map((saving) => this.#row(saving)));
    fill(
      this.#parts,
      ...utilization.map(({ name, facts }) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, ...facts.flatMap(fact))),
      ),
    );
  }

  #row(saving: Saving): HTMLElement {
    const { place, evidence } = saving;
    const text = evidence === "" ? "" : element("span", {}, evidence);
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, saving.label),
      element("td", { class: "number" }, percent(saving.atMostShare)),
      element("td", { class: "bottleneck-bar", "aria-hidden": "true" }, bar(saving)),
      element("td", { class: "number" }, duration(saving.atMostNs)),
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

function bar({ atMostShare }: Saving): HTMLElement {
  const made = element("i");
  made.style.setProperty("--share", atMostShare.toFixed(5));
  return made;
}

/** A fact that stays on one line if it fits. */
function fact(text: string, at: number, all: readonly string[]): (HTMLElement | string)[] {
  return [element("span", {}, at + 1 < all.length ? `${text} ·` : text), " "];
}
