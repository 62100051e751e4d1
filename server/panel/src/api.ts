// The server's API (docs/panel.md). All requests stay below the page's own URL.

import type { Command } from "./actions";
import { readDocument, readStatus, type PanelDocument, type Place, type Status } from "./document";
import type { Transport } from "./transport";

/** The server has no such page or measurement: its token changed, or the measurement was discarded. */
export class Gone extends Error {}

export interface Answer {
  done: boolean;
  message: string | null;
}

export interface Events {
  changed(): void;
  status(status: Status): void;
  /** The stream is connected, for the first time or again. */
  connected(): void;
  /** The stream was lost and reconnects after `delayMs`. `again` reconnects at once. */
  lost(delayMs: number, again: () => void): void;
}

const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 30_000;

export class Api {
  constructor(
    private readonly workspace: number,
    private readonly transport: Transport,
  ) {}

  /** Saves a file where the user wants it. */
  save(name: string, content: string): Promise<void> {
    return this.transport.save(name, content);
  }

  async panel(): Promise<PanelDocument> {
    return readDocument(await this.#get("panel"));
  }

  /** Fetches the raw timeline. The caller decodes it later. */
  timeline(generation: number): Promise<unknown> {
    return this.#get("timeline", `&generation=${generation}`);
  }

  /** Compares two runs of the history, given by their timestamps in milliseconds since 1970. */
  compare(before: number, after: number): Promise<unknown> {
    return this.#get("compare", `&before=${before}&after=${after}`);
  }

  /** Opens a place in the editor. `generation` is the measurement whose file indices the place uses. */
  jump(place: Place, generation: number): Promise<Answer> {
    return this.#post("jump", { ...place, generation });
  }

  highlight(place: Place | null, generation: number): Promise<Answer> {
    return this.#post("highlight", place === null ? { file: null } : { ...place, generation });
  }

  /** Sets the batch size in the code. `generation` is the measurement that the page shows. */
  batch(batch: number, generation: number): Promise<Answer> {
    return this.#post("batch", { batch, generation });
  }

  /** Applies an optimization's edit to the code, or measures the edited code against the original. */
  whatIf(name: string, action: "apply" | "measure"): Promise<Answer> {
    return this.#post("whatif", { name, action });
  }

  /** Applies the edit that fixes a finding at its line. `generation` is the measurement that the page shows. */
  mend(name: string, place: Place, generation: number): Promise<Answer> {
    return this.#post("whatif", { name, action: "apply", ...place, generation });
  }

  /** Adds checkpointing to the calls on these lines, so the backward pass recomputes their activations. */
  recompute(lines: readonly Place[], generation: number): Promise<Answer> {
    return this.#post("whatif", { name: "recompute", action: "apply", lines: lines.map((place) => ({ ...place, generation })) });
  }

  command(command: Command): Promise<Answer> {
    return this.#post("command", { command });
  }

  /**
   * Listens while the page is visible. Reconnects with increasing delays if the server is gone. A browser opens at most
   * six connections to one server across all tabs, so hidden tabs must not hold any.
   */
  listen(events: Events): void {
    let delay = FIRST_DELAY_MS;
    let leave: (() => void) | null = null;
    const open = () => {
      leave = this.transport.listen(`api/events?workspace=${this.workspace}`, {
        open: () => {
          delay = FIRST_DELAY_MS;
          events.connected();
        },
        message: (name, data) => {
          if (name === "panel") events.changed();
          const status = name === "status" ? parse(data) : undefined;
          if (status !== undefined) events.status(readStatus(status));
        },
        lost: () => {
          const again = () => {
            clearTimeout(timer);
            open();
          };
          const timer = setTimeout(again, delay);
          leave = () => {
            clearTimeout(timer);
          };
          events.lost(delay, again);
          delay = Math.min(MAX_DELAY_MS, delay * 2);
        },
      });
    };
    const follow = () => {
      if (document.hidden) {
        leave?.();
        leave = null;
      } else if (leave === null) {
        open();
      }
    };
    document.addEventListener("visibilitychange", follow);
    follow();
  }

  async #get(name: string, more = ""): Promise<unknown> {
    const { status, text } = await this.transport.request(`api/${name}?workspace=${this.workspace}${more}`);
    if (status === 404) throw new Gone(name);
    if (status !== 200) throw new Error(`The server answered ${status} for ${name}.`);
    return JSON.parse(text) as unknown;
  }

  async #post(name: string, body: Record<string, unknown>): Promise<Answer> {
    const { status, text } = await this.transport.request(`api/${name}`, { workspace: this.workspace, ...body });
    if (status !== 200) return { done: false, message: `The server answered ${status} for ${name}.` };
    const answer = JSON.parse(text) as Partial<Answer> | null;
    return { done: answer?.done === true, message: typeof answer?.message === "string" ? answer.message : null };
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
