// The tooltip next to the pointer. Keyboard and tables give the same information, so it is hidden from screen readers.

import { byId, element, fill } from "./dom";

const GAP = 14;

export interface Note {
  title: string;
  /** Shown below the title in a muted colour. */
  about: string;
  facts: [label: string, value: string][];
}

export class Tooltip {
  readonly #box = byId("tooltip");
  #shown: Note | null = null;

  show(note: Note, event: { clientX: number; clientY: number }): void {
    if (!same(note, this.#shown)) {
      this.#shown = note;
      const facts = element("dl");
      for (const [label, value] of note.facts) facts.append(element("dt", {}, label), element("dd", {}, value));
      fill(
        this.#box,
        element("strong", {}, note.title),
        note.about !== "" && element("span", { class: "about" }, note.about),
        facts,
      );
      this.#box.hidden = false;
    }
    const { offsetWidth: width, offsetHeight: height } = this.#box;
    const room = document.documentElement.clientWidth;
    const left = event.clientX + GAP + width > room ? event.clientX - GAP - width : event.clientX + GAP;
    const below = event.clientY + GAP + height <= window.innerHeight;
    const top = below ? event.clientY + GAP : event.clientY - GAP - height;
    const x = Math.round(Math.max(4, Math.min(left, room - width - 4)));
    this.#box.style.transform = `translate(${x}px, ${Math.round(Math.max(4, top))}px)`;
  }

  hide(): void {
    this.#shown = null;
    this.#box.hidden = true;
  }
}

function same(a: Note, b: Note | null): boolean {
  return (
    b !== null &&
    a.title === b.title &&
    a.about === b.about &&
    a.facts.length === b.facts.length &&
    a.facts.every(([label, value], at) => b.facts[at]?.[0] === label && b.facts[at][1] === value)
  );
}
