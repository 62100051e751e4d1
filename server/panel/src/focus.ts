// Keeps the keyboard's focus where it is while a part of the page is made anew under it.

const FOCUSABLE = "a[href], button, input, summary, canvas, [tabindex]";

/** Call before; what it returns gives the focus to the element that took the focused one's place. */
export function rememberFocus(): () => void {
  const focused = document.activeElement;
  const section = focused?.closest("section");
  if (!(focused instanceof HTMLElement) || section == null) return () => undefined;
  const text = focused.textContent;
  const index = candidates(section).indexOf(focused);
  return () => {
    if (focused.isConnected) return;
    const now = candidates(section);
    // The same words are the same thing, as a line in another row; else what is at the same place.
    const successor = now.find((candidate) => text !== "" && candidate.textContent === text) ?? now[index] ?? now.at(-1);
    successor?.focus({ preventScroll: true });
  };
}

function candidates(section: Element): HTMLElement[] {
  return [...section.querySelectorAll<HTMLElement>(FOCUSABLE)];
}
