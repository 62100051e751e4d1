// One curve against the batch size, with marks for the largest batch and for saturation. An SVG, so it is sharp at any
// size. The table and the handle have the same information.

import { element, fill, set } from "../dom";
import type { Estimate } from "../values";
import type { BatchSize, Point } from "./document";
import { reach, share } from "./scale";

const NS = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 150;
const ROOM = 14;

export interface Wanted {
  label: string;
  of: (point: Point) => Estimate | null;
  text: (value: number) => string;
  /** A line that the curve should stay below. */
  limit: (sizes: BatchSize) => number | null;
}

export class Chart {
  readonly root = element("div", { class: "batch-chart" });
  readonly #figure = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  readonly #scale = element("span", { class: "batch-top quiet", "aria-hidden": "true" });

  constructor(private readonly wanted: Wanted) {
    fill(this.root, this.#scale, this.#figure);
  }

  show(sizes: BatchSize): void {
    const { of, limit, text } = this.wanted;
    const within = reach(sizes);
    const points = sizes.points.flatMap((point) => {
      const range = of(point);
      return range === null ? [] : [{ point, range, x: share(point.batch, within) * WIDTH }];
    });
    const line = limit(sizes);
    // A limit far above the curve would flatten it.
    const highest = Math.max(1e-9, ...points.map(({ range }) => range.high));
    const top = line !== null && line < highest * 3 ? Math.max(highest, line) : highest;
    const y = (value: number) => HEIGHT - ROOM - (value / top) * (HEIGHT - 2 * ROOM);
    const path = (value: (range: Estimate) => number) => points.map(({ range, x }) => `${x.toFixed(1)},${y(value(range)).toFixed(1)}`);
    const band = [...path((range) => range.high), ...path((range) => range.low).reverse()];
    const marks = [
      { at: sizes.saturation?.value, kind: "batch-saturation" },
      { at: sizes.largest?.value, kind: "batch-largest" },
    ].flatMap(({ at, kind }) => {
      if (at === undefined || at < within.first || at > within.last) return [];
      const x = share(at, within) * WIDTH;
      return [svg("line", { class: kind, x1: x, x2: x, y1: 0, y2: HEIGHT })];
    });
    fill(
      this.#figure,
      svg("polygon", { class: "batch-band", points: band.join(" ") }),
      svg("polyline", { class: "batch-line", points: path((range) => range.value).join(" ") }),
      ...marks,
      line !== null && line <= top && svg("line", { class: "batch-limit", x1: 0, x2: WIDTH, y1: y(line), y2: y(line) }),
      ...points.filter(({ point }) => point.measured).map(({ x, range }) => svg("ellipse", { class: "batch-run", cx: x, cy: y(range.value), rx: 4, ry: 4 })),
    );
    this.#scale.textContent = points.length === 0 ? "" : `max ${text(top)}`;
    this.root.classList.toggle("nothing", points.length < 2);
  }
}

function svg(tag: string, attributes: Record<string, string | number>): SVGElement {
  const made = document.createElementNS(NS, tag);
  set(made, attributes);
  return made;
}
