// The theme (light, dark, or one of two with high contrast), and the colours that canvases read from panel.css.

import { PHASES } from "./document";

export interface Palette {
  surface: string;
  sunken: string;
  text: string;
  quiet: string;
  edge: string;
  /** Lines at the ticks of an axis. */
  grid: string;
  accent: string;
  accentSoft: string;
  focus: string;
  better: string;
  worse: string;
  memory: string;
  memorySoft: string;
  /** Bands of memory. */
  kinds: string[];
  /** A box whose time belongs to several phases. */
  mixed: string;
  idle: string;
  /** Colours in the order of `PHASES`: for spans and swatches, for text on them, and for large boxes with text. */
  phase: string[];
  phaseInk: string[];
  phaseSoft: string[];
  /** Areas need borders, and colours need a second sign. */
  highContrast: boolean;
  sans: string;
  mono: string;
}

let palette: Palette | null = null;

/** Returns the colours of the current theme. */
export function colours(): Palette {
  palette ??= read();
  return palette;
}

const THEMES = ["dark", "light", "high-contrast", "high-contrast-light"] as const;
type Theme = (typeof THEMES)[number];

function isTheme(value: unknown): value is Theme {
  return THEMES.some((theme) => theme === value);
}

/**
 * Uses the theme from the URL or the editor, else follows the system. Calls `changed` on each change. An editor or a
 * page that frames this one may send `{theme}` when its own theme changes.
 */
export function followTheme(asked: string | null, isInEditor: boolean, changed: () => void): void {
  let named = isTheme(asked) ? asked : null;
  const [dark, more, forced] = ["(prefers-color-scheme: dark)", "(prefers-contrast: more)", "(forced-colors: active)"].map(
    (query) => window.matchMedia(query),
  ) as [MediaQueryList, MediaQueryList, MediaQueryList];
  const apply = () => {
    // With forced colours, the page has the user's background, whatever the editor says.
    const isDark = named === null || forced.matches ? dark.matches : named === "dark" || named === "high-contrast";
    const isHighContrast = forced.matches || more.matches || named?.startsWith("high-contrast") === true;
    const theme: Theme = isHighContrast ? (isDark ? "high-contrast" : "high-contrast-light") : isDark ? "dark" : "light";
    document.documentElement.dataset.theme = theme;
    palette = null;
  };
  apply();
  for (const query of [dark, more, forced]) {
    query.addEventListener("change", () => {
      apply();
      changed();
    });
  }
  window.addEventListener("message", ({ source, data }: MessageEvent<{ theme?: unknown } | null>) => {
    const theme = data?.theme;
    // In an editor's webview only the editor can send one, and VS Code hides the parent.
    const isFromHost = isInEditor || source === window.parent;
    if (!isFromHost || !isTheme(theme)) return;
    named = theme;
    apply();
    changed();
  });
}

export function reducedMotion(): boolean {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function read(): Palette {
  const root = document.documentElement;
  const style = getComputedStyle(root);
  const value = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const ofPhases = (suffix: string) => PHASES.map((phase) => value(`phase-${phase}${suffix}`));
  return {
    surface: value("surface"),
    sunken: value("sunken"),
    text: value("text"),
    quiet: value("quiet"),
    edge: value("edge"),
    grid: value("grid"),
    accent: value("accent"),
    accentSoft: value("accent-soft"),
    focus: value("focus"),
    better: value("better"),
    worse: value("worse"),
    memory: value("memory"),
    memorySoft: value("memory-soft"),
    kinds: [1, 2, 3, 4, 5, 6, 7].map((kind) => value(`kind-${kind}`)),
    mixed: value("mixed"),
    idle: value("idle"),
    phase: ofPhases(""),
    phaseInk: ofPhases("-ink"),
    phaseSoft: ofPhases("-soft"),
    highContrast: root.dataset.theme?.startsWith("high-contrast") === true,
    sans: value("sans"),
    mono: value("mono"),
  };
}
