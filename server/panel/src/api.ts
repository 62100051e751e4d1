// What the server answers (docs/panel.md). No request goes anywhere but to the page's own folder.

import type { Command } from "./actions";
import { readDocument, readStatus, type PanelDocument, type Place, type Status } from "./document";
import type { Transport } from "./transport";

/** The server has no such page or measurement: its token is another, or it was thrown away. */
export class Gone extends Error {}

export interface Answer {
  done: boolean;
  message: string | null;
}

export interface Events {
  changed(): void;
  status(status: Status): void;
  /** The stream is there again after it was lost, or for the first time. */
  connected(): void;
  /** The stream was lost; `again` tries at once what would be tried after `delayMs`. */
  lost(delayMs: number, again: () => void): void;
}

const FIRST_DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 30_000;

export class Api {
  constructor(
    private readonly workspace: number,
    private readonly transport: Transport,
  ) {}

  async panel(): Promise<PanelDocument> {
    return readDocument(await this.#get("panel"));
  }

  /** As it came: decoding is left to when there is time for it. */
  timeline(generation: number): Promise<unknown> {
    return this.#get("timeline", `&generation=${generation}`);
  }

  /** Two runs of the history side by side, by when they were, in milliseconds since 1970. */
  compare(before: number, after: number): Promise<unknown> {
    return this.#get("compare", `&before=${before}&after=${after}`);
  }

  /** `generation` says which measurement's files the place means. */
  jump(place: Place, generation: number): Promise<Answer> {
    return this.#post("jump", { ...place, generation });
  }

  highlight(place: Place | null, generation: number): Promise<Answer> {
    return this.#post("highlight", place === null ? { file: null } : { ...place, generation });
  }

  /** Sets the batch size in the code, of which the page shows this measurement. */
  batch(batch: number, generation: number): Promise<Answer> {
    return this.#post("batch", { batch, generation });
  }

  /** Makes an optimization's edit in the code, or runs the edited code beside it. */
  whatIf(name: string, action: "apply" | "measure"): Promise<Answer> {
    return this.#post("whatif", { name, action });
  }

  /** Makes the edit that mends a finding at its line, of the measurement that the page shows. */
  mend(name: string, place: Place, generation: number): Promise<Answer> {
    return this.#post("whatif", { name, action: "apply", ...place, generation });
  }

  /** Lets what these lines call be computed again in the backward pass. */
  recompute(lines: readonly Place[], generation: number): Promise<Answer> {
    return this.#post("whatif", { name: "recompute", action: "apply", lines: lines.map((place) => ({ ...place, generation })) });
  }

  command(command: Command): Promise<Answer> {
    return this.#post("command", { command });
  }

  /**
   * Listens while the page is seen; tries again, ever more slowly, when the server is gone. A browser has six
   * connections to one server for all of its tabs: those that nobody sees would leave none for the next.
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
          delay = Math.min(LONGEST_DELAY_MS, delay * 2);
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
