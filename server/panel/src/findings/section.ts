// The findings, most expensive first, each with its line, its cause and the edit that fixes it.

import type { Actions } from "../actions";
import { type Child, button, coded, element, fill, write } from "../dom";
import { rememberFocus } from "../focus";
import { counted } from "../format";
import { placeLink } from "../place_link";
import type { Finding, Findings, Severity } from "./document";

const FIRST_ROWS = 6;

const SEVERITY_WORDS: Record<Severity, string> = { warning: "high impact", information: "medium impact", hint: "low impact" };

/** The section's access to the editor. */
export interface Requests {
  /** Null in a report, which has no editor. */
  mend: ((finding: Finding) => void) | null;
  explain: (why: string) => void;
}

export class FindingsSection {
  readonly #message = element("p", { class: "finding-message", role: "status" });
  readonly #list = element("ol", { class: "plain finding-list" });
  readonly #all: HTMLButtonElement;
  readonly #leftOut = element("p", { class: "quiet" });
  #findings: Findings | null = null;
  #hasEditor = false;
  /** Keeps the user's choice when a new document arrives. */
  #open = false;

  constructor(
    root: HTMLElement,
    private readonly actions: Actions,
    private readonly requests: Requests,
  ) {
    this.#all = button("", { class: "quiet" }, () => {
      this.#open = !this.#open;
      this.#render();
    });
    fill(root, this.#message, this.#list, this.#all, this.#leftOut);
  }

  show(findings: Findings, hasEditor: boolean): void {
    this.#findings = findings;
    this.#hasEditor = hasEditor;
    this.#render();
  }

  #render(): void {
    const findings = this.#findings;
    if (findings === null) return;
    const { rows, leftOut } = findings;
    write(this.#message, findings.message ?? (rows.length === 0 ? "No problems found." : ""));
    this.#message.hidden = this.#message.textContent === "";
    const restore = rememberFocus();
    fill(this.#list, ...rows.slice(0, this.#open ? undefined : FIRST_ROWS).map((row) => this.#row(row)));
    restore();
    this.#all.hidden = rows.length <= FIRST_ROWS;
    write(this.#all, this.#open ? `Show the first ${FIRST_ROWS}` : `Show all ${rows.length}`);
    this.#all.setAttribute("aria-expanded", String(this.#open));
    write(this.#leftOut, leftOut > 0 ? `${counted(leftOut, "finding")} with lower cost not shown.` : "");
    this.#leftOut.hidden = leftOut === 0;
  }

  #row(finding: Finding): HTMLElement {
    const { severity, cost, related } = finding;
    return element(
      "li",
      { class: `finding ${severity}` },
      element(
        "h3",
        {},
        element("span", { class: "badge" }, cost === null ? "cost unknown" : SEVERITY_WORDS[severity]),
        " ",
        ...coded(finding.text),
      ),
      element(
        "p",
        { class: "finding-facts" },
        placeLink(finding.place, finding.where, this.actions),
        cost === null ? "" : ` · ${cost}`,
        element("span", { class: "quiet" }, ` · ${finding.rule}`),
      ),
      finding.why !== "" && element("p", { class: "finding-why" }, ...coded(finding.why)),
      related.length > 0 && element("ul", { class: "plain finding-related" }, ...related.map((one) => this.#related(one))),
      this.#fix(finding),
    );
  }

  #related(one: Finding["related"][number]): HTMLElement {
    return element("li", {}, placeLink(one.place, one.where, this.actions), " ", ...coded(one.text));
  }

  #fix(finding: Finding): Child {
    const { fix } = finding;
    const { mend, explain } = this.requests;
    if (fix === null) return null;
    if (mend === null) return element("p", { class: "quiet" }, `In the editor: ${fix.title}`);
    const why = !this.#hasEditor ? "no editor connected" : fix.possible ? null : (fix.why ?? "not applicable to the current code");
    // Not `disabled`: a button that cannot be focused cannot explain why.
    const attributes = { "aria-disabled": why === null ? null : "true", title: why };
    return button(`Fix: ${fix.title}`, attributes, () => {
      if (why === null) mend(finding);
      else explain(`${fix.title}: ${why}`);
    });
  }
}
