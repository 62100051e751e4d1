// Preserves the keyboard focus while a part of the page is rebuilt.

const FOCUSABLE = "a[href], button, input, summary, canvas, [tabindex]";

/** Call before rebuilding. The returned function focuses the element that replaced the focused one. */
export function rememberFocus(): () => void {
  const focused = document.activeElement;
  const section = focused?.closest("section");
  if (!(focused instanceof HTMLElement) || section == null) return () => undefined;
  const text = focused.textContent;
  const index = candidates(section).indexOf(focused);
  return () => {
    if (focused.isConnected) return;
    const now = candidates(section);
    // Match by text, because a line may have moved to another row. If several have it, or none, match by position.
    const matches = now.filter((candidate) => text !== "" && candidate.textContent === text);
    const inPlace = now[index];
    const successor = inPlace !== undefined && matches.includes(inPlace) ? inPlace : (matches[0] ?? inPlace ?? now.at(-1));
    successor?.focus({ preventScroll: true });
  };
}

function candidates(section: Element): HTMLElement[] {
  return [...section.querySelectorAll<HTMLElement>(FOCUSABLE)];
}
