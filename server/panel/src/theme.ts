// The theme (light or dark), and the colours that canvases read from panel.css.

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
  /** A box whose time belongs to several phases. */
  mixed: string;
  idle: string;
  /** Colours in the order of `PHASES`: for spans and swatches, for text on them, and for large boxes with text. */
  phase: string[];
  phaseInk: string[];
  phaseSoft: string[];
  sans: string;
  mono: string;
}

let palette: Palette | null = null;

/** Returns the colours of the current theme. */
export function colours(): Palette {
  palette ??= read();
  return palette;
}

/**
 * Uses the theme from the URL or the editor, else follows the system. Calls `changed` on each change. An editor or a
 * page that frames this one may send `{theme}` when its own theme changes.
 */
export function followTheme(asked: string | null, isInEditor: boolean, changed: () => void): void {
  const apply = (theme: string) => {
    document.documentElement.dataset.theme = theme;
    palette = null;
  };
  let named = asked === "dark" || asked === "light";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const ofSystem = () => (dark.matches ? "dark" : "light");
  apply(named && asked !== null ? asked : ofSystem());
  dark.addEventListener("change", () => {
    if (named) return;
    apply(ofSystem());
    changed();
  });
  window.addEventListener("message", ({ source, data }: MessageEvent<{ theme?: unknown } | null>) => {
    const theme = data?.theme;
    // In an editor's webview only the editor can send one, and VS Code hides the parent.
    const isFromHost = isInEditor || source === window.parent;
    if (!isFromHost || (theme !== "dark" && theme !== "light")) return;
    named = true;
    apply(theme);
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
