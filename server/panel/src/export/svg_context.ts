// Records what a chart draws on its canvas as SVG.

import type { Paint } from "../surface";

interface State {
  font: string;
  fillStyle: Paint["fillStyle"];
  strokeStyle: Paint["strokeStyle"];
  lineWidth: number;
  globalAlpha: number;
  /** Open `<g>` elements. */
  groups: number;
}

/** The part of a canvas context that charts use. */
export class SvgContext implements Paint {
  fillStyle: Paint["fillStyle"] = "#000000";
  strokeStyle: Paint["strokeStyle"] = "#000000";
  lineWidth = 1;
  globalAlpha = 1;
  textBaseline: CanvasTextBaseline = "alphabetic";
  readonly #parts: string[] = [];
  readonly #states: State[] = [];
  /** Measures texts, and resolves colours such as `CanvasText`. */
  readonly #measure: CanvasRenderingContext2D;
  #path: string[] = [];
  #dash: number[] = [];
  #groups = 0;
  #clips = 0;

  constructor(
    private readonly width: number,
    private readonly height: number,
  ) {
    const measure = document.createElement("canvas").getContext("2d");
    if (measure === null) throw new Error("this browser does not support 2D canvas");
    this.#measure = measure;
  }

  get font(): string {
    return this.#measure.font;
  }

  set font(font: string) {
    this.#measure.font = font;
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    if (typeof this.fillStyle === "string") this.#add("rect", { x, y, width, height }, this.#filled());
  }

  strokeRect(x: number, y: number, width: number, height: number): void {
    this.#add("rect", { x, y, width, height }, this.#stroked());
  }

  fillText(text: string, x: number, y: number): void {
    const { size, weight, family } = parseFont(this.font);
    // Many viewers ignore `dominant-baseline`.
    const down = this.textBaseline === "middle" ? 0.35 * size : 0;
    const look = `${this.#filled()} font-size="${number(size)}" font-family="${escape(family)}"${weight === "" ? "" : ` font-weight="${weight}"`}`;
    this.#parts.push(`<text x="${number(x)}" y="${number(y + down)}" ${look}>${escape(text)}</text>`);
  }

  measureText(text: string): TextMetrics {
    return this.#measure.measureText(text);
  }

  beginPath(): void {
    this.#path = [];
  }

  moveTo(x: number, y: number): void {
    this.#path.push(`M${number(x)} ${number(y)}`);
  }

  lineTo(x: number, y: number): void {
    this.#path.push(`${this.#path.length === 0 ? "M" : "L"}${number(x)} ${number(y)}`);
  }

  /** Only full circles. */
  arc(x: number, y: number, radius: number): void {
    const half = `a${number(radius)} ${number(radius)} 0 1 0`;
    this.#path.push(`M${number(x - radius)} ${number(y)}${half} ${number(2 * radius)} 0${half} ${number(-2 * radius)} 0Z`);
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.#path.push(`M${number(x)} ${number(y)}h${number(width)}v${number(height)}h${number(-width)}Z`);
  }

  fill(): void {
    if (typeof this.fillStyle === "string") this.#add("path", { d: this.#path.join("") }, this.#filled());
  }

  stroke(): void {
    this.#add("path", { d: this.#path.join("") }, this.#stroked());
  }

  setLineDash(dash: number[]): void {
    this.#dash = dash;
  }

  clip(): void {
    this.#clips += 1;
    const id = `clip${this.#clips}`;
    this.#parts.push(`<clipPath id="${id}"><path d="${this.#path.join("")}"/></clipPath><g clip-path="url(#${id})">`);
    this.#groups += 1;
  }

  save(): void {
    const { font, fillStyle, strokeStyle, lineWidth, globalAlpha } = this;
    this.#states.push({ font, fillStyle, strokeStyle, lineWidth, globalAlpha, groups: this.#groups });
  }

  restore(): void {
    const state = this.#states.pop();
    if (state === undefined) return;
    const { groups, ...look } = state;
    Object.assign(this, look);
    while (this.#groups > groups) {
      this.#parts.push("</g>");
      this.#groups -= 1;
    }
  }

  /** Charts draw without patterns then. */
  createPattern(): null {
    return null;
  }

  /** Returns the SVG document. */
  finish(title: string): string {
    const size = `width="${number(this.width)}" height="${number(this.height)}" viewBox="0 0 ${number(this.width)} ${number(this.height)}"`;
    const end = "</g>".repeat(this.#groups);
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>\n<title>${escape(title)}</title>\n${this.#parts.join("\n")}${end}\n</svg>\n`;
  }

  #add(tag: string, attributes: Record<string, number | string>, look: string): void {
    const own = Object.entries(attributes).map(([name, value]) => `${name}="${typeof value === "number" ? number(value) : value}"`);
    this.#parts.push(`<${tag} ${own.join(" ")} ${look}/>`);
  }

  #filled(): string {
    return `fill="${this.#colour(this.fillStyle)}"${this.#opacity()}`;
  }

  #stroked(): string {
    const dash = this.#dash.length === 0 ? "" : ` stroke-dasharray="${this.#dash.join(" ")}"`;
    return `fill="none" stroke="${this.#colour(this.strokeStyle)}" stroke-width="${number(this.lineWidth)}"${dash}${this.#opacity()}`;
  }

  #opacity(): string {
    return this.globalAlpha === 1 ? "" : ` opacity="${number(this.globalAlpha)}"`;
  }

  #colour(style: Paint["fillStyle"]): string {
    if (typeof style !== "string") return "none";
    this.#measure.fillStyle = style;
    return this.#measure.fillStyle;
  }
}

/** At most two decimals. */
function number(value: number): string {
  return Number.isFinite(value) ? String(Math.round(value * 100) / 100) : "0";
}

function escape(text: string): string {
  // eslint-disable-next-line no-control-regex -- XML cannot contain control characters.
  const printable = text.replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
  return printable.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

function parseFont(font: string): { size: number; weight: string; family: string } {
  const [, weight = "", size = "12", family = "sans-serif"] = /^(?:(\d+|bold) )?([\d.]+)px (.*)$/.exec(font) ?? [];
  return { size: Number(size), weight, family };
}
