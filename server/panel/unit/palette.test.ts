// Checks the colours of panel.css: contrast by WCAG 2.1 (1.4.3 and 1.4.11), and phases that users with colour blindness
// can distinguish.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

import { PHASES } from "../src/document";

type Colour = [red: number, green: number, blue: number];

const css = readFileSync(join(import.meta.dirname, "../panel.css"), "utf8");

function colours(selector: string): Map<string, Colour> {
  const block = css.slice(css.indexOf(`${selector} {`));
  const found = new Map<string, Colour>();
  for (const [, name, hex] of block.slice(0, block.indexOf("}")).matchAll(/--([\w-]+): #([\da-f]{6});/g)) {
    const value = Number.parseInt(hex!, 16);
    found.set(name!, [(value >> 16) & 255, (value >> 8) & 255, value & 255]);
  }
  return found;
}

function linear(colour: Colour): Colour {
  return colour.map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as Colour;
}

function contrast(a: Colour, b: Colour): number {
  const [high, low] = [a, b]
    .map((colour) => {
      const [red, green, blue] = linear(colour);
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    })
    .sort((x, y) => y - x);
  return (high! + 0.05) / (low! + 0.05);
}

// Machado, Oliveira and Fernandes 2009, severity 1: simulates the colour vision of users who lack one kind of cone.
const SIGHTS: Record<string, number[][]> = {
  "all colours": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

/** Converts to OKLab, where equal distances look about equal. */
function seen(colour: Colour, sight: number[][]): Colour {
  const [red, green, blue] = linear(colour);
  const [r, g, b] = sight.map(([x, y, z]) => Math.min(1, Math.max(0, x! * red + y! * green + z! * blue))) as Colour;
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

const QUIET_GROUNDS = ["page", "surface", "sunken", "mixed", ...PHASES.map((phase) => `phase-${phase}-soft`)];
const READ = [
  ...QUIET_GROUNDS.flatMap((ground) => [["text", ground], ["quiet", ground]]),
  ["text", "memory-soft"],
  ["text", "warning"],
  ["accent", "surface"],
  ["accent", "sunken"],
  ["accent", "accent-soft"],
  ["on-accent", "accent"],
  ["better", "surface"],
  ["worse", "surface"],
];
// In high contrast, the names of spans are not on their colour but on the surface.
const ON_PHASES = PHASES.map((phase) => [`phase-${phase}-ink`, `phase-${phase}`]);
const ON_SURFACE = PHASES.map((phase) => [`phase-${phase}-ink`, "surface"]);
const AREAS = [...PHASES.map((phase) => `phase-${phase}`), "idle", "memory", "accent"];
const BORDERS = ["edge", "focus", "warning-edge", ...[1, 2, 3, 4, 5, 6, 7].map((kind) => `kind-${kind}`)];

describe.each([
  { name: "light", selector: ":root", text: 4.5, area: 3, read: [...READ, ...ON_PHASES], areas: AREAS },
  { name: "dark", selector: ':root[data-theme="dark"]', text: 4.5, area: 3, read: [...READ, ...ON_PHASES], areas: AREAS },
  ...["high-contrast", "high-contrast-light"].map((name) => ({
    name,
    selector: `:root[data-theme="${name}"]`,
    text: 7,
    area: 4.5,
    read: [...READ, ...ON_SURFACE],
    areas: [...AREAS, ...BORDERS],
  })),
])("in the $name theme", ({ selector, text, area, read, areas }) => {
  const theme = colours(selector);
  const of = (name: string) => {
    const colour = theme.get(name);
    if (colour === undefined) throw new Error(`${selector} in panel.css has no --${name}`);
    return colour;
  };

  it.each(read)("%s can be read on %s", (ink, ground) => {
    expect(contrast(of(ink), of(ground))).toBeGreaterThanOrEqual(text);
  });

  it.each(areas)("%s stands out from its ground", (name) => {
    expect(contrast(of(name), of("surface"))).toBeGreaterThanOrEqual(area);
  });

  it.each(Object.entries(SIGHTS))("phases differ for %s", (_name, sight) => {
    const points = PHASES.map((phase) => seen(of(`phase-${phase}`), sight));
    const near: string[] = [];
    points.forEach((a, at) => {
      points.slice(0, at).forEach((b, other) => {
        const distance = Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
        if (distance < 0.09) near.push(`${PHASES[at]!} and ${PHASES[other]!}: ${distance.toFixed(3)}`);
      });
    });
    expect(near).toEqual([]);
  });
});
