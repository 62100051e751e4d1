// The roofline: how close each operator of a line comes to what the device can do.

import type { Actions } from "../actions";
import type { Recording } from "../document";
import { element, fill, write } from "../dom";
import { counted, duration, percent, rate, significant } from "../format";
import { phaseLegend } from "../legend";
import { placeLink } from "../place_link";
import { ListTable, type Column } from "../table";
import type { Note, Tooltip } from "../tooltip";
import { RooflineChart } from "./chart";
import type { Point, Roofline } from "./document";

const SHOWN = 8;

export class RooflineSection {
  readonly #about = element("p", { class: "explanation" });
  readonly #legend = element("div", { class: "above-chart" }, element("span"), phaseLegend());
  readonly #canvas = element("canvas", { class: "roofline", role: "img" });
  readonly #missing = element("p", { class: "keys" });
  readonly #chart: RooflineChart;
  readonly #table: ListTable<Point>;
  /** With the columns that need ceilings. */
  readonly #limited: ListTable<Point>;

  constructor(
    root: HTMLElement,
    private readonly actions: Actions,
    tooltip: Tooltip,
  ) {
    const placeName = ({ place }: Point) => (place === null ? "" : actions.placeName(place));
    this.#chart = new RooflineChart(this.#canvas, placeName, {
      pointed: (point, event) => {
        if (point === null || event === null) tooltip.hide();
        else tooltip.show(this.#note(point), event);
        actions.highlight(point?.place ?? null);
      },
      opened: ({ place }) => {
        if (actions.canJump(place)) actions.jump(place);
      },
    });
    const columns: Column<Point>[] = [
      { head: "Line", class: "when", cell: (point) => placeLink(point.place, placeName(point) || "unknown", actions) },
      { head: "Operator", class: "name", cell: named },
      { head: "Time", class: "number", cell: ({ timeNs }) => duration(timeNs) },
      { head: "FLOPs per byte", class: "number", cell: ({ intensity }) => significant(intensity) },
      { head: "FLOP/s", class: "number", cell: (point) => rate(point.rate, "FLOP/s") },
    ];
    const ofCeilings: Column<Point>[] = [
      { head: "Limited by", cell: ({ bound }) => bound ?? "unknown" },
      { head: "Of the ceiling", class: "number", cell: ({ shareOfRoof }) => (shareOfRoof === null ? "unknown" : percent(shareOfRoof)) },
    ];
    const caption = "Operators by line, most expensive first";
    this.#table = new ListTable<Point>(caption, columns, SHOWN);
    this.#limited = new ListTable<Point>(caption, [...columns, ...ofCeilings], SHOWN);
    fill(root, this.#about, this.#legend, this.#canvas, this.#missing, this.#table.root, this.#limited.root);
  }

  show({ roofline, device }: Recording): void {
    const isKnown = roofline.points.length > 0;
    write(this.#about, isKnown ? about(roofline, device) : "The FLOPs and bytes of this recording's operators are unknown. They need the shapes of the inputs.");
    write(this.#missing, missing(roofline));
    this.#missing.hidden = this.#missing.textContent === "";
    for (const part of [this.#legend, this.#canvas]) part.hidden = !isKnown;
    const isLimited = roofline.points.some(({ bound }) => bound !== null);
    this.#table.root.hidden = !isKnown || isLimited;
    this.#limited.root.hidden = !isKnown || !isLimited;
    this.#chart.show(roofline);
    this.#canvas.setAttribute("aria-label", `${counted(roofline.points.length, "operator")} by FLOPs per byte and FLOP/s. The table lists them.`);
    this.#table.show(isLimited ? [] : roofline.points);
    this.#limited.show(isLimited ? roofline.points : []);
  }

  restyle(): void {
    this.#chart.restyle();
  }

  svg(): string | null {
    return this.#chart.svg();
  }

  #note(point: Point): Note {
    const facts: [string, string][] = [];
    if (point.place !== null) facts.push(["line", this.actions.placeName(point.place)]);
    facts.push(["time", duration(point.timeNs)], ["phase", point.phase || "unknown"]);
    facts.push(["FLOPs per byte", significant(point.intensity)], ["reached", rate(point.rate, "FLOP/s")]);
    facts.push(["bandwidth", rate(point.bytes / (point.timeNs / 1e9), "B/s")]);
    if (point.bound !== null) facts.push(["limited by", point.bound]);
    if (point.shareOfRoof !== null) facts.push(["of the ceiling", percent(point.shareOfRoof)]);
    if (point.kernel !== null) facts.push(["kernel", point.kernel]);
    return { title: point.name, about: point.inputs, facts };
  }
}

function named({ name, inputs }: Point): HTMLElement {
  return element("span", { class: "long" }, element("span", { class: "mono" }, name), element("span", { class: "about" }, ` ${inputs}`));
}

function about(roofline: Roofline, device: string): string {
  const points = "Each point is an operator of one line. Its area is its time.";
  if (roofline.peaks.length === 0 && roofline.bandwidth === null) {
    return `${points} The peak rates of ${device || "this device"} are unknown, so the chart has no ceilings.`;
  }
  const from = roofline.ratesFrom === null ? "" : ` (${roofline.ratesFrom})`;
  return `${points} The lines are the ceilings of ${device || "this device"}${from}: memory bandwidth on the left, compute on the right.`;
}

/** What the chart does not show. */
function missing({ leftOut, unknownNs, withoutFlopsNs }: Roofline): string {
  const parts = [
    leftOut > 0 && counted(leftOut, "operator with little time", "operators with little time"),
    unknownNs > 0 && `${duration(unknownNs)} in PyTorch ops with unknown FLOPs or bytes`,
    withoutFlopsNs > 0 && `${duration(withoutFlopsNs)} in PyTorch ops that compute nothing`,
  ].filter((part) => part !== false);
  return parts.length === 0 ? "" : `Not shown: ${parts.join(", ")}. Bytes are the minimum that an op has to move.`;
}
