// A segmented control: radio buttons for a few options.

import { element } from "./dom";

export interface Option {
  key: string;
  label: string;
}

export class Segmented {
  readonly root: HTMLFieldSetElement;
  readonly #group: string;
  #options: readonly Option[] = [];

  constructor(
    legend: string,
    private readonly changed: (key: string) => void,
  ) {
    this.#group = `choice-${legend.toLowerCase().replace(/\W+/g, "-")}`;
    this.root = element("fieldset", { class: "segmented" }, element("legend", { class: "unseen" }, legend));
  }

  show(options: readonly Option[], chosen: string): void {
    if (!sameOptions(options, this.#options)) {
      this.#options = options;
      this.root.querySelectorAll("label").forEach((label) => {
        label.remove();
      });
      for (const { key, label } of options) {
        const input = element("input", { type: "radio", name: this.#group, value: key });
        input.addEventListener("change", () => {
          this.changed(key);
        });
        this.root.append(element("label", {}, input, element("span", {}, label)));
      }
    }
    this.root.querySelectorAll("input").forEach((input) => {
      input.checked = input.value === chosen;
    });
  }
}

function sameOptions(a: readonly Option[], b: readonly Option[]): boolean {
  return a.length === b.length && a.every((one, at) => one.key === b[at]?.key && one.label === b[at].label);
}
