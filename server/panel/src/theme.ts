// Light or dark, and the colours that canvases take from panel.css.

import { PHASES } from "./document";

export interface Palette {
  surface: string;
  sunken: string;
  text: string;
  quiet: string;
  edge: string;
  accent: string;
  memory: string;
  memorySoft: string;
  /** A box whose time is of several phases. */
  mixed: string;
  idle: string;
  /** In the order of `PHASES`: for spans and swatches, for text on them, for large boxes with text. */
  phase: string[];
  phaseInk: string[];
  phaseSoft: string[];
  sans: string;
  mono: string;
}

let palette: Palette | null = null;

/** The colours of the theme that shows now. */
export function colours(): Palette {
  palette ??= read();
  return palette;
}

/** Takes `?theme=` where the host gave one, else follows the system; `changed` is called at each change. */
export function followTheme(search: string, changed: () => void): void {
  const root = document.documentElement;
  const asked = new URLSearchParams(search).get("theme");
  if (asked === "dark" || asked === "light") {
    root.dataset.theme = asked;
    return;
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    root.dataset.theme = dark.matches ? "dark" : "light";
    palette = null;
  };
  apply();
  dark.addEventListener("change", () => {
    apply();
    changed();
  });
}

export function reducedMotion(): boolean {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function read(): Palette {
  const style = getComputedStyle(document.documentElement);
  const value = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const ofPhases = (suffix: string) => PHASES.map((phase) => value(`phase-${phase}${suffix}`));
  return {
    surface: value("surface"),
    sunken: value("sunken"),
    text: value("text"),
    quiet: value("quiet"),
    edge: value("edge"),
    accent: value("accent"),
    memory: value("memory"),
    memorySoft: value("memory-soft"),
    mixed: value("mixed"),
    idle: value("idle"),
    phase: ofPhases(""),
    phaseInk: ofPhases("-ink"),
    phaseSoft: ofPhases("-soft"),
    sans: value("sans"),
    mono: value("mono"),
  };
}
