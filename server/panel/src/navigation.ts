// The links to the sections, which stay at the top while the page scrolls.

import { byId, element, set } from "./dom";

/** With fewer sections, the page is short. */
const MIN_SECTIONS = 3;

export class Navigation {
  readonly #bar = byId("navigation");
  readonly #links = new Map<HTMLElement, HTMLAnchorElement>();

  constructor() {
    // The section that crosses a band in the upper part of the window is the current one.
    const observer = new IntersectionObserver(
      (entries) => {
        const current = entries.filter((entry) => entry.isIntersecting).at(-1)?.target;
        if (current instanceof HTMLElement) this.#mark(current);
      },
      { rootMargin: "-15% 0px -80% 0px" },
    );
    for (const section of document.querySelectorAll<HTMLElement>("main section[aria-labelledby]")) {
      const title = byId(section.getAttribute("aria-labelledby") ?? "");
      const link = element("a", { href: `#${section.id}` }, title.textContent);
      link.addEventListener("click", (event) => {
        // Not by the address: a report's address names a source line, and an editor's webview has none.
        event.preventDefault();
        section.scrollIntoView({ block: "start" });
        set(title, { tabindex: -1 });
        title.focus({ preventScroll: true });
        this.#mark(section);
      });
      this.#links.set(section, link);
      this.#bar.append(link);
      observer.observe(section);
    }
  }

  /** Shows the links of the visible sections. Call it after sections were shown or hidden. */
  update(): void {
    let shown = 0;
    for (const [section, link] of this.#links) {
      link.hidden = section.closest("[hidden]") !== null;
      if (!link.hidden) shown += 1;
    }
    this.#bar.hidden = shown < MIN_SECTIONS;
  }

  #mark(current: HTMLElement): void {
    for (const [section, link] of this.#links) set(link, { "aria-current": section === current ? "true" : null });
    // Only sideways: the page itself must not move.
    const link = this.#links.get(current);
    if (link !== undefined) this.#bar.scrollLeft = link.offsetLeft - (this.#bar.clientWidth - link.offsetWidth) / 2;
  }
}
