// Interaction with the icicle: drill-down, pan, zoom, pointer and keyboard.

import { Labels } from "../label";
import { length, pan, within, zoom, type Range } from "../range";
import type { Found } from "../search";
import { Surface, type Paint } from "../surface";
import { colours, reducedMotion } from "../theme";
import { WHOLE, type Tree } from "../tree";
import { draw, ROW } from "./draw";
import { layOut, nodeAt, type Layout } from "./layout";

/** The maximum number of rows drawn at once. Drilling down shows deeper ones. */
const ROWS = 24;
const DRILL_MS = 160;
/** A pointer that moves less than this between down and up, in pixels, is a click. */
const CLICK_PIXELS = 4;

export interface IcicleEvents {
  /** The pointer or the keyboard is on a node; -1 for none. */
  hovered(node: number, event: PointerEvent | null): void;
  selected(node: number): void;
  /** The user drills down into this node. */
  drilled(node: number): void;
  /** The user opens the node's line. */
  opened(node: number): void;
}

export class Icicle {
  #tree: Tree | null = null;
  #layout: Layout | null = null;
  #root = WHOLE;
  #range: Range = { start: 0, end: 1 };
  #selected = -1;
  #hovered = -1;
  #found: Found | null = null;
  #focused = false;
  #animation = 0;
  readonly #surface: Surface;
  #labels = new Labels("");

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly events: IcicleEvents,
  ) {
    this.#surface = new Surface(canvas, (context) => {
      this.#draw(context);
    });
    this.#listen();
    this.restyle();
  }

  /** Replaces the tree. With `keep`, the visible part of the root stays visible. */
  show(tree: Tree, root: number, selected: number, keep: boolean): void {
    cancelAnimationFrame(this.#animation);
    const before = this.#whole();
    const seen = {
      start: (this.#range.start - before.start) / length(before),
      end: (this.#range.end - before.start) / length(before),
    };
    this.#tree = tree;
    this.#layout = layOut(tree);
    this.#root = root;
    this.#selected = selected;
    this.#hovered = -1;
    const whole = this.#whole();
    this.#range = keep
      ? { start: whole.start + seen.start * length(whole), end: whole.start + seen.end * length(whole) }
      : whole;
    this.#resize();
  }

  /** Makes a node fill the view. */
  drill(root: number, selected: number): void {
    this.#root = root;
    this.#selected = selected;
    this.#hovered = -1;
    this.#resize();
    this.#glide(this.#whole());
  }

  mark(found: Found | null): void {
    this.#found = found;
    this.#surface.invalidate();
  }

  select(node: number): void {
    this.#selected = node;
    this.#reveal(node);
    this.#surface.invalidate();
  }

  /** Applies the colours of a new theme. */
  restyle(): void {
    const palette = colours();
    this.#labels = new Labels(`12px ${palette.sans}`);
    this.#surface.invalidate();
  }

  svg(): string | null {
    return this.#surface.svg("Breakdown of one iteration");
  }

  #draw(context: Paint): void {
    if (this.#tree === null || this.#layout === null) return;
    const palette = colours();
    context.font = `12px ${palette.sans}`;
    const scene = {
      tree: this.#tree,
      layout: this.#layout,
      range: this.#range,
      top: this.#tree.depth[this.#root]!,
      hovered: this.#hovered,
      selected: this.#selected,
      focused: this.#focused,
      found: this.#found,
    };
    draw(context, scene, this.#surface.width, this.#surface.height, palette, this.#labels);
  }

  #whole(): Range {
    const layout = this.#layout;
    const whole = { start: layout?.start[this.#root] ?? 0, end: layout?.end[this.#root] ?? 1 };
    // A node of zero size cannot fill the view.
    return length(whole) > 0 ? whole : { start: 0, end: 1 };
  }

  #least(): number {
    return Math.min(length(this.#whole()), 1e-9);
  }

  #resize(): void {
    const tree = this.#tree;
    if (tree === null) return;
    const below = this.#depthBelow(this.#root) - tree.depth[this.#root]! + 1;
    this.canvas.style.height = `${Math.min(ROWS, Math.max(3, below)) * ROW}px`;
    this.#surface.invalidate();
  }

  #depthBelow(root: number): number {
    const tree = this.#tree!;
    if (root === WHOLE) return tree.deepest;
    let deepest = tree.depth[root]!;
    const open = [root];
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      deepest = Math.max(deepest, tree.depth[node]!);
      for (const child of tree.children[node]!) open.push(child);
    }
    return deepest;
  }

  #glide(to: Range): void {
    cancelAnimationFrame(this.#animation);
    const from = this.#range;
    if (reducedMotion()) {
      this.#range = to;
      this.#surface.invalidate();
      return;
    }
    const began = performance.now();
    const step = (now: number) => {
      const share = Math.min(1, Math.max(0, (now - began) / DRILL_MS));
      const eased = 1 - (1 - share) ** 3;
      this.#range = {
        start: from.start + (to.start - from.start) * eased,
        end: from.end + (to.end - from.end) * eased,
      };
      this.#surface.invalidate();
      if (share < 1) this.#animation = requestAnimationFrame(step);
    };
    this.#animation = requestAnimationFrame(step);
  }

  #reveal(node: number): void {
    const layout = this.#layout;
    if (layout === null || node < 0) return;
    const middle = (layout.start[node]! + layout.end[node]!) / 2;
    if (middle >= this.#range.start && middle <= this.#range.end) return;
    const half = length(this.#range) / 2;
    this.#range = within({ start: middle - half, end: middle + half }, this.#whole(), this.#least());
  }

  #at(event: MouseEvent): number {
    if (this.#tree === null || this.#layout === null || this.#surface.width === 0) return -1;
    const { x, y } = this.#surface.locate(event);
    const depth = this.#tree.depth[this.#root]! + Math.floor(y / ROW);
    return nodeAt(this.#layout, depth, this.#range.start + (x / this.#surface.width) * length(this.#range));
  }

  #listen(): void {
    const { canvas } = this;
    let down: { x: number; range: Range } | null = null;
    let dragged = false;
    // A click drills down immediately, so the second click of a double click would hit another node.
    let clicked = -1;

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      cancelAnimationFrame(this.#animation);
      down = { x: event.clientX, range: this.#range };
      dragged = false;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (down === null) {
        this.#hover(this.#at(event), event);
        return;
      }
      const by = event.clientX - down.x;
      if (!dragged && Math.abs(by) < CLICK_PIXELS) return;
      if (!dragged) {
        dragged = true;
        canvas.setPointerCapture(event.pointerId);
        this.#hover(-1, null);
      }
      this.#range = pan(down.range, this.#whole(), (-by / this.#surface.width) * length(down.range));
      this.#surface.invalidate();
    });
    const release = () => {
      down = null;
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("click", (event) => {
      if (dragged || event.detail > 1) return;
      clicked = this.#at(event);
      if (clicked >= 0) this.#press(clicked, event.ctrlKey || event.metaKey);
    });
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("dblclick", () => {
      if (clicked >= 0 && this.#tree?.isLeaf(clicked) === false) this.events.opened(clicked);
    });
    canvas.addEventListener("pointerleave", () => {
      if (down === null) this.#hover(-1, null);
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        const sideways = event.shiftKey ? event.deltaY : event.deltaX;
        if (event.ctrlKey || event.metaKey) {
          const at = this.#range.start + (this.#surface.locate(event).x / this.#surface.width) * length(this.#range);
          const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.0025)));
          this.#range = zoom(this.#range, this.#whole(), at, factor, this.#least());
        } else if (sideways !== 0 && length(this.#range) < length(this.#whole())) {
          this.#range = pan(this.#range, this.#whole(), (sideways / this.#surface.width) * length(this.#range));
        } else return;
        event.preventDefault();
        this.#surface.invalidate();
      },
      { passive: false },
    );
    canvas.addEventListener("focus", () => {
      this.#focused = canvas.matches(":focus-visible");
      if (this.#focused && this.#selected < 0) this.#move(this.#root);
      this.#surface.invalidate();
    });
    canvas.addEventListener("blur", () => {
      this.#focused = false;
      this.events.hovered(-1, null);
      this.#surface.invalidate();
    });
    canvas.addEventListener("keydown", (event) => {
      if (this.#key(event)) event.preventDefault();
    });
  }

  #hover(node: number, event: PointerEvent | null): void {
    this.canvas.classList.toggle("pointing", node >= 0);
    if (node !== this.#hovered) {
      this.#hovered = node;
      this.#surface.invalidate();
    }
    this.events.hovered(node, event);
  }

  #press(node: number, open: boolean): void {
    const tree = this.#tree!;
    // Hide the tooltip of the clicked node, because other nodes take its place.
    this.#hover(-1, null);
    this.#selected = node;
    this.#surface.invalidate();
    this.events.selected(node);
    if (open || tree.isLeaf(node)) this.events.opened(node);
    // Clicking the node that already fills the view goes back up.
    else this.events.drilled(node === this.#root && node !== WHOLE ? tree.parent[node]! : node);
  }

  #move(node: number | undefined): void {
    if (node === undefined || node < 0) return;
    this.#focused = true;
    // The row is below the last visible one.
    const tree = this.#tree!;
    if (tree.depth[node]! - tree.depth[this.#root]! >= ROWS) this.events.drilled(tree.parent[node]!);
    this.select(node);
    this.events.selected(node);
  }

  #key(event: KeyboardEvent): boolean {
    const tree = this.#tree;
    const layout = this.#layout;
    if (tree === null || layout === null || event.altKey) return false;
    const at = this.#selected < 0 ? this.#root : this.#selected;
    const parent = tree.parent[at]!;
    switch (event.key) {
      case "ArrowDown":
        this.#move(tree.bySize(at)[0]);
        return true;
      case "ArrowUp":
        if (at === this.#root && at !== WHOLE) this.events.drilled(parent);
        else this.#move(parent);
        return true;
      case "ArrowLeft":
      case "ArrowRight": {
        if (at === this.#root) return true;
        const row = layout.rows[tree.depth[at]!]!;
        const next = row[row.indexOf(at) + (event.key === "ArrowLeft" ? -1 : 1)];
        if (next !== undefined && this.#inside(next)) this.#move(next);
        return true;
      }
      case "Home":
        this.#move(this.#root);
        return true;
      case "Enter":
        if (event.ctrlKey || event.metaKey || tree.isLeaf(at)) this.events.opened(at);
        else this.events.drilled(at);
        return true;
      case "Backspace":
      case "Escape":
        if (this.#root === WHOLE) return false;
        this.events.drilled(tree.parent[this.#root]!);
        return true;
      case "+":
      case "=":
      case "-": {
        if (event.ctrlKey || event.metaKey) return false;
        const middle = (layout.start[at]! + layout.end[at]!) / 2;
        this.#range = zoom(this.#range, this.#whole(), middle, event.key === "-" ? 1.5 : 1 / 1.5, this.#least());
        this.#surface.invalidate();
        return true;
      }
      default:
        return false;
    }
  }

  #inside(node: number): boolean {
    const layout = this.#layout!;
    const whole = this.#whole();
    return layout.start[node]! >= whole.start && layout.end[node]! <= whole.end;
  }
}
