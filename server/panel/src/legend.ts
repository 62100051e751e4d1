// The legend of the phase colours.

import { PHASES } from "./document";
import { element } from "./dom";

export function phaseLegend(): HTMLElement {
  return element(
    "ul",
    { class: "legend", "aria-label": "Phases" },
    ...PHASES.map((phase) => element("li", {}, element("i", { class: `swatch ${phase}` }), phase)),
  );
}
