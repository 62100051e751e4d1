// The ranks of a launched run: one row each, and the lines that differ most between them.

import type { Actions } from "../actions";
import { button, element, fill } from "../dom";
import { bytes, count, counted, duration, percent } from "../format";
import { ListTable, shareBar } from "../table";
import type { LineSpread, Rank, Ranks } from "./document";

export class RanksSection {
  readonly #about = element("p", { class: "about" });
  readonly #ranks: ListTable<Rank>;
  readonly #lines: ListTable<LineSpread>;
  readonly #differ = element("h3", {}, "Lines that differ");

  constructor(
    root: HTMLElement,
    private readonly actions: Actions,
  ) {
    const time = (timeNs: number | null) => (timeNs === null ? "" : duration(timeNs));
    this.#ranks = new ListTable<Rank>(
      "Ranks",
      [
        { head: "Rank", cell: ({ rank }) => String(rank) },
        { head: "Compute", class: "wide", cell: (rank) => computing(rank) },
        { head: "Waiting", class: "number", cell: ({ waitingNs }) => time(waitingNs) },
        { head: "Communication", class: "number", cell: ({ exchangeNs }) => time(exchangeNs) },
        { head: "Iteration", class: "number", cell: ({ timeNs }) => duration(timeNs) },
        { head: "Batch size", class: "number", cell: ({ batchSize }) => (batchSize === null ? "" : count(batchSize)) },
        { head: "Peak memory", class: "number", cell: ({ peakBytes }) => bytes(peakBytes) },
      ],
      16,
    );
    this.#lines = new ListTable<LineSpread>(
      "Lines that differ between ranks",
      [
        { head: "Line", class: "name", cell: (line) => this.#name(line) },
        { head: "Mean", class: "number", cell: ({ meanNs }) => duration(meanNs) },
        { head: "Min", class: "number", cell: ({ least }) => end(least) },
        { head: "Max", class: "number", cell: ({ most }) => end(most) },
      ],
      10,
    );
    fill(root, this.#about, this.#ranks.root, this.#differ, this.#lines.root);
  }

  show({ worldSize, ranks, lines }: Ranks): void {
    const measured = ranks.length === worldSize ? "" : `, ${ranks.length} of them measured`;
    this.#about.textContent = `${counted(worldSize, "rank")}${measured}. Everything else on this page is for rank 0.`;
    this.#ranks.show(ranks);
    this.#differ.hidden = lines.length === 0;
    this.#lines.root.hidden = lines.length === 0;
    this.#lines.show(lines);
  }

  #name({ name, place }: LineSpread): HTMLElement {
    if (!this.actions.canJump(place)) return element("span", { class: "mono" }, name);
    return button(name, { class: "link" }, () => {
      this.actions.jump(place);
    });
  }
}

function computing({ computingNs, timeNs }: Rank): HTMLElement {
  const share = timeNs > 0 ? computingNs / timeNs : 0;
  return shareBar(share, `${duration(computingNs)} · ${percent(share)}`);
}

function end({ rank, timeNs }: { rank: number; timeNs: number }): string {
  return `${timeNs === 0 ? "nothing" : duration(timeNs)} on rank ${rank}`;
}
