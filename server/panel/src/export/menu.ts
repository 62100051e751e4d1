// The export menu of a section: its charts as SVG, its data as CSV.

import { button, byId, element } from "../dom";

export interface Export {
  /** `Chart (SVG)`. */
  label: string;
  /** The end of the file's name, which says what is in it: `kernels.csv`. */
  file: string;
  /** Returns null if there is nothing to export at the moment. */
  content: () => string | null;
  /** Whether there is something to export. Otherwise, the menu does not show it. */
  available?: () => boolean;
}

/** Saves a file. `file` is the end of its name. */
export type Save = (file: string, content: string | null) => void;

/** Adds a menu to the section with this id. */
export function addExportMenu(id: string, exports: readonly Export[], save: Save): void {
  const section = byId(id);
  const title = byId(section.getAttribute("aria-labelledby") ?? "").textContent;
  const list = element("div", { class: "export-list", id: `${id}-export`, role: "group", "aria-label": `Export ${title}`, hidden: true });
  const toggle = button("Export", { class: "export-toggle", "aria-expanded": "false", "aria-controls": list.id }, () => {
    open(list.hidden);
  });
  toggle.append(element("span", { class: "unseen" }, ` ${title}`));
  const root = element("div", { class: "export" }, toggle, list);
  const items: { item: HTMLElement; available: () => boolean }[] = [];
  const open = (isOpen: boolean) => {
    for (const { item, available } of items) item.hidden = !available();
    list.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
  };
  for (const { label, file, content, available = () => true } of exports) {
    const item = button(label, { class: "export-item" }, () => {
      open(false);
      toggle.focus();
      save(file, content());
    });
    items.push({ item, available });
    list.append(item);
  }
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || list.hidden) return;
    event.stopPropagation();
    open(false);
    toggle.focus();
  });
  root.addEventListener("focusout", ({ relatedTarget }) => {
    if (!(relatedTarget instanceof Node && root.contains(relatedTarget))) open(false);
  });
  section.querySelector("h2")?.after(root);
}

/** Returns the name of a file: `gpt-2026-11-27-kernels.csv`. */
export function fileName(project: string, whenMs: number | null, file: string): string {
  const safe = project.replaceAll(/[^\p{L}\p{N}_-]+/gu, "-").replaceAll(/^-+|-+$/g, "").slice(0, 60) || "project";
  const day = whenMs === null ? "" : dateOf(whenMs);
  return [safe, day, file].filter(Boolean).join("-");
}

function dateOf(whenMs: number): string {
  const when = new Date(whenMs);
  return Number.isNaN(when.getTime()) ? "" : when.toISOString().slice(0, 10);
}
