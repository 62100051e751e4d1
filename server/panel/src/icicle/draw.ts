// Paints the visible part of an icicle.

import { bytes, duration } from "../format";
import type { Labels } from "../label";
import { phasePatterns } from "../pattern";
import type { Range } from "../range";
import { Mark, type Found } from "../search";
import type { Palette } from "../theme";
import type { Tree } from "../tree";
import { firstAfter, type Layout } from "./layout";
import type { Paint } from "../surface";

export const ROW = 26;

const PADDING = 6;
/** The gap between a name, its detail and its value, in pixels. */
const SPACE = 12;
const STRIP = 3;
/** High enough for a pattern. */
const HIGH_CONTRAST_STRIP = 6;
/** Boxes narrower than this, in pixels, are merged. */
const NARROW = 1.5;
const DIMMED = 0.28;

export interface Scene {
  tree: Tree;
  layout: Layout;
  range: Range;
  /** The depth of the first row. */
  top: number;
  hovered: number;
  selected: number;
  focused: boolean;
  found: Found | null;
}

export function draw(
  context: Paint,
  scene: Scene,
  width: number,
  height: number,
  palette: Palette,
  names: Labels,
): void {
  context.globalAlpha = 1;
  context.fillStyle = palette.sunken;
  context.fillRect(0, 0, width, height);
  context.textBaseline = "middle";
  const patterns = palette.highContrast ? phasePatterns(context, palette) : [];
  const rows = Math.min(scene.layout.rows.length - scene.top, Math.ceil(height / ROW));
  for (let row = 0; row < rows; row += 1) {
    drawRow(context, scene, scene.layout.rows[scene.top + row]!, row * ROW, width, palette, patterns, names);
  }
  context.globalAlpha = 1;
  outline(context, scene, scene.hovered, palette.quiet, palette.highContrast ? 2 : 1, width);
  outline(context, scene, scene.selected, scene.focused ? palette.focus : palette.text, palette.highContrast ? 3 : 2, width);
}

function drawRow(
  context: Paint,
  scene: Scene,
  nodes: Int32Array,
  y: number,
  width: number,
  palette: Palette,
  patterns: readonly (CanvasPattern | null)[],
  names: Labels,
): void {
  const { layout, range, tree, found } = scene;
  const scale = width / (range.end - range.start);
  let narrowFrom = -1;
  let narrowTo = -1;
  let narrowMark: number = Mark.None;
  const flush = () => {
    if (narrowFrom < 0) return;
    context.globalAlpha = found === null || narrowMark !== Mark.None ? 1 : DIMMED;
    context.fillStyle = palette.edge;
    context.fillRect(narrowFrom, y, Math.max(1, narrowTo - narrowFrom), ROW - 1);
    narrowFrom = -1;
    narrowMark = Mark.None;
  };
  for (let at = firstAfter(layout, nodes, range.start); at < nodes.length; at += 1) {
    const node = nodes[at]!;
    if (layout.start[node]! >= range.end) break;
    const left = (layout.start[node]! - range.start) * scale;
    const right = (layout.end[node]! - range.start) * scale;
    if (right - left < NARROW) {
      if (narrowFrom >= 0 && left - narrowTo > 1) flush();
      if (narrowFrom < 0) narrowFrom = left;
      narrowTo = right;
      narrowMark = Math.max(narrowMark, found?.marks[node] ?? Mark.None);
      continue;
    }
    flush();
    const from = Math.max(0, left);
    const to = Math.min(width, right) - (right - left > 3 ? 1 : 0);
    context.globalAlpha = found?.marks[node] === Mark.None ? DIMMED : 1;
    box(context, tree, node, from, to, y, palette, patterns);
    if (palette.highContrast) frame(context, from, to, y, palette);
    if (to - from > 2 * PADDING + 12) caption(context, tree, node, from, to, y, palette, names);
  }
  flush();
}

function box(
  context: Paint,
  tree: Tree,
  node: number,
  from: number,
  to: number,
  y: number,
  palette: Palette,
  patterns: readonly (CanvasPattern | null)[],
): void {
  const height = ROW - 1;
  if (tree.metric === "memory") {
    context.fillStyle = palette.memorySoft;
    context.fillRect(from, y, to - from, height);
    return;
  }
  const phase = tree.onlyPhase(node);
  context.fillStyle = phase < 0 ? palette.mixed : palette.phaseSoft[phase]!;
  context.fillRect(from, y, to - from, height);
  // The strip shows the split of the node's time into phases.
  const phases = tree.node(node)?.phases ?? [];
  let sum = 0;
  for (const time of phases) sum += time;
  if (sum <= 0) return;
  let left = from;
  phases.forEach((time, which) => {
    if (time <= 0) return;
    const part = ((to - from) * time) / sum;
    const strip = stripHeight(palette);
    for (const style of [palette.phase[which], patterns[which]]) {
      if (style === undefined || style === null) continue;
      context.fillStyle = style;
      context.fillRect(left, y + height - strip, part, strip);
    }
    left += part;
  });
}

function stripHeight(palette: Palette): number {
  return palette.highContrast ? HIGH_CONTRAST_STRIP : STRIP;
}

function frame(context: Paint, from: number, to: number, y: number, palette: Palette): void {
  context.strokeStyle = palette.edge;
  context.lineWidth = 1;
  context.strokeRect(from + 0.5, y + 0.5, Math.max(0, to - from - 1), ROW - 2);
}

function caption(
  context: Paint,
  tree: Tree,
  node: number,
  from: number,
  to: number,
  y: number,
  palette: Palette,
  names: Labels,
): void {
  const room = to - from - 2 * PADDING;
  const middle = y + (tree.metric === "time" ? ROW - stripHeight(palette) : ROW) / 2;
  const name = tree.name(node);
  const value = tree.metric === "time" ? duration(tree.value[node]!) : bytes(tree.value[node]!);
  const valueWidth = names.width(context, value);
  const nameWidth = names.width(context, name);
  context.fillStyle = palette.text;
  context.fillText(names.fit(context, name, room), from + PADDING, middle);
  if (nameWidth + valueWidth + SPACE > room) return;
  context.fillText(value, to - PADDING - valueWidth, middle);
  const left = room - nameWidth - valueWidth - 2 * SPACE;
  const detail = tree.detail(node);
  if (left < 40 || detail === "" || detail === name) return;
  context.fillStyle = palette.quiet;
  context.fillText(names.fit(context, detail, left), from + PADDING + nameWidth + SPACE, middle);
}

function outline(
  context: Paint,
  scene: Scene,
  node: number,
  colour: string,
  thickness: number,
  width: number,
): void {
  if (node < 0) return;
  const row = scene.tree.depth[node]! - scene.top;
  if (row < 0) return;
  const scale = width / (scene.range.end - scene.range.start);
  const left = Math.max(0, (scene.layout.start[node]! - scene.range.start) * scale);
  const right = Math.min(width, (scene.layout.end[node]! - scene.range.start) * scale);
  if (right <= left) return;
  context.strokeStyle = colour;
  context.lineWidth = thickness;
  const inset = thickness / 2;
  context.strokeRect(left + inset, row * ROW + inset, Math.max(1, right - left - thickness), ROW - 1 - thickness);
}
