// A handle on a chart, for mouse, pen, touch and keyboard. While it moves, only the preview changes. Releasing it within
// the panel, or Enter, sets the batch size. Releasing it outside, or Escape, cancels.

import { element, set } from "../dom";
import { batchAt, share, stepped, type Reach } from "./scale";

export interface Holder {
  /** Previews a batch size; null when the drag ends. */
  preview(batch: number | null): void;
  commit(batch: number): void;
  /** Whether a point, in window coordinates, is within the panel. */
  isInside(x: number, y: number): boolean;
}

export class Handle {
  readonly root: HTMLElement;
  #reach: Reach = { first: 1, last: 2 };
  #current = 1;
  #previewed: number | null = null;
  #pointer: number | null = null;

  constructor(
    label: string,
    private readonly track: HTMLElement,
    private readonly holder: Holder,
  ) {
    this.root = element("div", { class: "batch-handle", role: "slider", tabindex: 0, "aria-label": label, "aria-orientation": "horizontal" });
    this.root.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || this.#pointer !== null) return;
      this.#pointer = event.pointerId;
      this.root.setPointerCapture(event.pointerId);
      this.root.focus();
      event.preventDefault();
    });
    this.root.addEventListener("pointermove", (event) => {
      if (event.pointerId === this.#pointer) this.#look(this.#at(event));
    });
    this.root.addEventListener("pointerup", (event) => {
      if (event.pointerId !== this.#pointer) return;
      const batch = this.#previewed;
      const inside = holder.isInside(event.clientX, event.clientY);
      this.#letGo();
      if (inside && batch !== null) this.#set(batch);
    });
    for (const lost of ["pointercancel", "lostpointercapture", "blur"]) {
      this.root.addEventListener(lost, () => { this.#letGo(); });
    }
    this.root.addEventListener("keydown", (event) => { this.#key(event); });
  }

  /** Whether the user is moving it. */
  get isHeld(): boolean {
    return this.#previewed !== null || this.#pointer !== null;
  }

  show(current: number, reach: Reach): void {
    this.#current = current;
    this.#reach = reach;
    set(this.root, { "aria-valuemin": reach.first, "aria-valuemax": reach.last });
  }

  /** Moves to a batch size. `words` is the text for screen readers. */
  stand(batch: number, words: string): void {
    set(this.root, { "aria-valuenow": batch, "aria-valuetext": words });
    this.root.style.left = `${(share(batch, this.#reach) * 100).toFixed(3)}%`;
  }

  #at(event: PointerEvent): number {
    const box = this.track.getBoundingClientRect();
    return batchAt((event.clientX - box.left) / Math.max(1, box.width), this.#reach);
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const looked = this.#previewed;
    if (event.key === "Escape") {
      if (!this.isHeld) return;
      this.#letGo();
    } else if (event.key === "Enter" || event.key === " ") {
      this.#letGo();
      if (looked !== null) this.#set(looked);
    } else {
      const next = stepped(event.key, looked ?? this.#current, this.#reach);
      if (next === null) return;
      this.#look(next);
    }
    event.preventDefault();
    event.stopPropagation();
  }

  #look(batch: number): void {
    this.#previewed = batch;
    this.holder.preview(batch);
  }

  #letGo(): void {
    if (this.#pointer !== null && this.root.hasPointerCapture(this.#pointer)) this.root.releasePointerCapture(this.#pointer);
    const held = this.isHeld;
    this.#pointer = null;
    this.#previewed = null;
    if (held) this.holder.preview(null);
  }

  #set(batch: number): void {
    if (batch !== this.#current) this.holder.commit(batch);
  }
}
