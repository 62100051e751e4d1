// Interaction with the timeline: zoom, pan, pointer and keyboard.

import { AXIS } from "../axis";
import type { Cursor } from "../cursor";
import { Labels } from "../label";
import { length, pan, within, zoom, type Range } from "../range";
import { Surface, type Paint } from "../surface";
import { colours } from "../theme";
import { Painter, placeRows, ROW, rowAt, type Placement } from "./draw";
import type { Finding } from "./find";
import { flowsOf, type Flow } from "./flows";
import { firstAfter, rowOf, spanAt, type Timeline } from "./model";

/** The shortest visible range, in nanoseconds. */
const NEAREST = 50;
const CLICK_PIXELS = 4;
const TALLEST = 520;

export interface TimelineEvents {
  hovered(span: number, event: PointerEvent | null): void;
  selected(span: number): void;
  opened(span: number): void;
  /** The visible part of the axis changed. */
  moved(range: Range, whole: Range): void;
  /** A range of time was marked, or no longer is. */
  marked(range: Range | null): void;
}

export class TimelineView {
  readonly root: HTMLElement;
  readonly #surface: Surface;
  readonly #painter = new Painter();
  readonly #room: HTMLElement;
  #labels = new Labels("");
  #timeline: Timeline | null = null;
  #placement: Placement = { rowTop: new Float64Array(), trackTop: new Float64Array(), height: 0 };
  #range: Range = { start: 0, end: 1 };
  #hovered = -1;
  #hoveredRow = -1;
  #selected = -1;
  #selectedRow = -1;
  #focused = false;
  #marked: Range | null = null;
  #matches: Finding | null = null;
  #flows: Flow[] = [];

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly cursor: Cursor,
    private readonly events: TimelineEvents,
  ) {
    this.#surface = new Surface(canvas, (context) => {
      this.#draw(context);
    });
    // The canvas is only as large as the viewport and paints the tracks scrolled into view, however many there are.
    this.#room = document.createElement("div");
    this.#room.append(canvas);
    this.root = document.createElement("div");
    this.root.className = "timeline-scroll";
    this.root.append(this.#room);
    this.root.addEventListener("scroll", () => {
      this.#surface.invalidate();
    });
    cursor.listen(() => {
      this.#surface.invalidate();
    });
    this.#listen();
    this.restyle();
  }

  /** Replaces the timeline and keeps the visible part of the axis. */
  show(timeline: Timeline): void {
    const before = this.#timeline;
    const range = this.#range;
    this.#timeline = timeline;
    this.#placement = placeRows(timeline);
    this.#hovered = -1;
    this.#selected = -1;
    this.#matches = null;
    this.#flows = [];
    this.#mark(null);
    const height = this.#placement.height + AXIS;
    this.#room.style.height = `${height}px`;
    this.canvas.style.height = `${Math.min(TALLEST, height)}px`;
    const scale = before === null ? 0 : timeline.durationNs / before.durationNs;
    this.#look(scale === 0 ? this.#whole() : { start: range.start * scale, end: range.end * scale });
  }

  restyle(): void {
    this.#labels = new Labels(`11px ${colours().sans}`);
    this.#surface.invalidate();
  }

  svg(): string | null {
    return this.#surface.svg("Timeline of one iteration");
  }

  zoomBy(factor: number): void {
    const at = this.#selected >= 0 && this.#inView(this.#selected) ? this.#middle(this.#selected) : this.#range.start + length(this.#range) / 2;
    this.#look(zoom(this.#range, this.#whole(), at, factor, NEAREST));
  }

  reset(): void {
    this.#look(this.#whole());
  }

  /** Shows which spans match a search. */
  showMatches(found: Finding | null): void {
    this.#matches = found;
    this.#surface.invalidate();
  }

  get selected(): number {
    return this.#selected;
  }

  /** Selects a span and scrolls it into view. */
  select(span: number): void {
    this.#selected = span;
    const timeline = this.#timeline;
    this.#flows = timeline === null ? [] : flowsOf(timeline, span);
    if (timeline === null || span < 0) {
      this.#surface.invalidate();
      return;
    }
    this.#selectedRow = rowOf(timeline, span);
    if (!this.#inView(span)) {
      const long = timeline.end[span]! - timeline.start[span]!;
      const size = Math.max(length(this.#range), 1.2 * long);
      const start = this.#middle(span) - size / 2;
      this.#look({ start, end: start + size });
    }
    const top = this.#placement.rowTop[this.#selectedRow]!;
    const seen = this.root.clientHeight - AXIS;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + ROW > this.root.scrollTop + seen) this.root.scrollTop = top + ROW - seen;
    this.#surface.invalidate();
  }

  #whole(): Range {
    return { start: 0, end: this.#timeline?.durationNs ?? 1 };
  }

  #look(range: Range): void {
    this.#range = within(range, this.#whole(), NEAREST);
    this.events.moved(this.#range, this.#whole());
    this.#surface.invalidate();
  }

  #middle(span: number): number {
    return (this.#timeline!.start[span]! + this.#timeline!.end[span]!) / 2;
  }

  #inView(span: number): boolean {
    const middle = this.#middle(span);
    return middle >= this.#range.start && middle <= this.#range.end;
  }

  #draw(context: Paint): void {
    if (this.#timeline === null) return;
    const scene = {
      timeline: this.#timeline,
      placement: this.#placement,
      range: this.#range,
      scroll: this.root.scrollTop,
      hovered: this.#hovered,
      hoveredRow: this.#hoveredRow,
      selected: this.#selected,
      selectedRow: this.#selectedRow,
      focused: this.#focused,
      cursor: this.cursor.on(this.#timeline.durationNs),
      marked: this.#marked,
      matches: this.#matches,
      flows: this.#flows,
    };
    this.#painter.draw(context, scene, this.#surface.width, this.#surface.height, colours(), this.#labels);
  }

  #timeAt(x: number): number {
    return this.#range.start + (x / Math.max(1, this.#surface.width)) * length(this.#range);
  }

  #point(event: PointerEvent | MouseEvent): { span: number; row: number } {
    const timeline = this.#timeline;
    if (timeline === null) return { span: -1, row: -1 };
    const { x, y } = this.#surface.locate(event);
    const row = y < AXIS ? -1 : rowAt(this.#placement, y - AXIS + this.root.scrollTop);
    if (row < 0) return { span: -1, row };
    const slack = (2 * length(this.#range)) / Math.max(1, this.#surface.width);
    return { span: spanAt(timeline, timeline.rows[row]!, this.#timeAt(x), slack), row };
  }

  #listen(): void {
    const { canvas } = this;
    let down: { x: number; range: Range; markFrom: number | null } | null = null;
    let dragged = false;

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const markFrom = event.shiftKey ? this.#timeAt(this.#surface.locate(event).x) : null;
      down = { x: event.clientX, range: this.#range, markFrom };
      dragged = false;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (down === null) {
        this.#hover(event);
        return;
      }
      const by = event.clientX - down.x;
      if (!dragged && Math.abs(by) < CLICK_PIXELS) return;
      if (!dragged) {
        dragged = true;
        canvas.setPointerCapture(event.pointerId);
        canvas.classList.add("dragging");
        this.#leave();
      }
      if (down.markFrom !== null) {
        this.#markBetween(down.markFrom, this.#timeAt(this.#surface.locate(event).x));
        return;
      }
      this.#look(pan(down.range, this.#whole(), (-by / Math.max(1, this.#surface.width)) * length(down.range)));
    });
    const release = () => {
      down = null;
      canvas.classList.remove("dragging");
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("click", (event) => {
      if (dragged || event.detail > 1) return;
      this.#stand(this.#point(event).span);
      if (this.#selected >= 0) this.events.opened(this.#selected);
    });
    canvas.addEventListener("dblclick", () => {
      this.#approach();
    });
    canvas.addEventListener("pointerleave", () => {
      if (down === null) this.#leave();
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        const sideways = event.shiftKey ? event.deltaY : event.deltaX;
        if (event.ctrlKey || event.metaKey) {
          const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.0025)));
          const at = this.#timeAt(this.#surface.locate(event).x);
          this.#look(zoom(this.#range, this.#whole(), at, factor, NEAREST));
        } else if (Math.abs(sideways) > (event.shiftKey ? 0 : Math.abs(event.deltaY))) {
          this.#look(pan(this.#range, this.#whole(), (sideways / Math.max(1, this.#surface.width)) * length(this.#range)));
        } else return;
        event.preventDefault();
      },
      { passive: false },
    );
    canvas.addEventListener("focus", () => {
      this.#focused = canvas.matches(":focus-visible");
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

  #hover(event: PointerEvent): void {
    const { span, row } = this.#point(event);
    this.canvas.classList.toggle("pointing", span >= 0);
    if (span !== this.#hovered) {
      this.#hovered = span;
      this.#hoveredRow = row;
      this.#surface.invalidate();
    }
    this.cursor.move({ atNs: this.#timeAt(this.#surface.locate(event).x), wholeNs: this.#whole().end });
    this.events.hovered(span, event);
  }

  #leave(): void {
    this.#hovered = -1;
    this.cursor.move(null);
    this.events.hovered(-1, null);
    this.#surface.invalidate();
  }

  #stand(span: number): void {
    this.select(span);
    this.events.selected(span);
  }

  #mark(range: Range | null): void {
    if (range === null && this.#marked === null) return;
    this.#marked = range;
    this.events.marked(range);
    this.#surface.invalidate();
  }

  #markBetween(one: number, other: number): void {
    const { start, end } = this.#whole();
    const inside = (time: number) => Math.min(end, Math.max(start, time));
    this.#mark({ start: inside(Math.min(one, other)), end: inside(Math.max(one, other)) });
  }

  /** Zooms to the selected span. */
  #approach(): void {
    const timeline = this.#timeline;
    if (timeline === null || this.#selected < 0) return;
    const start = timeline.start[this.#selected]!;
    const long = Math.max(NEAREST, timeline.end[this.#selected]! - start);
    this.#look({ start: start - 0.1 * long, end: start + 1.1 * long });
  }

  #key(event: KeyboardEvent): boolean {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (event.shiftKey && event.key.startsWith("Arrow")) return this.#step(event.key);
    switch (event.key) {
      case "ArrowLeft":
      case "a":
        this.#look(pan(this.#range, this.#whole(), -0.15 * length(this.#range)));
        return true;
      case "ArrowRight":
      case "d":
        this.#look(pan(this.#range, this.#whole(), 0.15 * length(this.#range)));
        return true;
      case "ArrowUp":
      case "ArrowDown":
        this.root.scrollTop += event.key === "ArrowUp" ? -3 * ROW : 3 * ROW;
        return true;
      case "+":
      case "=":
      case "w":
        this.zoomBy(1 / 1.5);
        return true;
      case "-":
      case "s":
        this.zoomBy(1.5);
        return true;
      case "Home":
      case "0":
        this.reset();
        return true;
      case "Enter":
        if (this.#selected >= 0) this.events.opened(this.#selected);
        return true;
      case "f":
        this.#approach();
        return true;
      case "m":
        if (this.#timeline === null || this.#selected < 0) return false;
        this.#markBetween(this.#timeline.start[this.#selected]!, this.#timeline.end[this.#selected]!);
        return true;
      case "Escape":
        if (this.#marked !== null) this.#mark(null);
        else if (this.#selected >= 0) this.#stand(-1);
        else return false;
        return true;
      default:
        return false;
    }
  }

  /** Selects the next span of the row, or the span at the same time in another row. */
  #step(key: string): boolean {
    const timeline = this.#timeline;
    if (timeline === null || timeline.size === 0) return false;
    if (this.#selected < 0) {
      const row = timeline.rows[0]!;
      this.#stand(Math.min(row.end - 1, firstAfter(timeline, row, this.#range.start)));
      return true;
    }
    const at = this.#selectedRow;
    const row = timeline.rows[at]!;
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const next = this.#selected + (key === "ArrowLeft" ? -1 : 1);
      if (next >= row.first && next < row.end) this.#stand(next);
      return true;
    }
    const other = timeline.rows[at + (key === "ArrowUp" ? -1 : 1)];
    if (other === undefined) return true;
    const next = Math.min(other.end - 1, firstAfter(timeline, other, this.#middle(this.#selected)));
    this.#stand(next);
    return true;
  }
}
