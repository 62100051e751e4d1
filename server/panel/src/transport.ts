// The ways from the page to its server: HTTP where the page came from there, or messages to an editor that asks in
// its place. A webview of a remote window reaches no port of the server's machine, and the editor's extension is on
// that machine.

export interface Response {
  status: number;
  /** As it was sent. */
  text: string;
}

export interface StreamEvents {
  open(): void;
  message(name: string, data: string): void;
  /** It has ended, or could not be opened; nothing follows. */
  lost(): void;
}

export interface Transport {
  /** Asks for a path below the page, such as `api/panel?workspace=0`; with a body it posts. */
  request(path: string, body?: unknown): Promise<Response>;
  /** Listens to a stream of events; gives what closes it. */
  listen(path: string, events: StreamEvents): () => void;
}

/** The events of the server's stream (docs/panel.md). */
const EVENTS = ["panel", "status"];
/** A little more than the server takes at most before it gives up by itself. */
const ANSWER_LIMIT_MS = 65_000;

/** The page came from the server. */
export class HttpTransport implements Transport {
  async request(path: string, body?: unknown): Promise<Response> {
    const sent = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const response = await fetch(`./${path}`, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_LIMIT_MS), ...sent });
    return { status: response.status, text: await response.text() };
  }

  listen(path: string, events: StreamEvents): () => void {
    const stream = new EventSource(`./${path}`);
    stream.addEventListener("open", () => {
      events.open();
    });
    for (const name of EVENTS) {
      stream.addEventListener(name, ({ data }: MessageEvent) => {
        events.message(name, String(data));
      });
    }
    // EventSource tries again by itself only after some errors; the page does it after all.
    stream.addEventListener("error", () => {
      stream.close();
      events.lost();
    });
    return () => {
      stream.close();
    };
  }
}

/** What an editor offers to the script of its webview. */
interface Editor {
  postMessage(message: unknown): void;
  setState(state: unknown): void;
}

/** What the document of an editor says to its page. */
export interface Host {
  workspace: number;
  theme: string;
  /** Kept by the editor, so that the panel comes back when the window is loaded anew. */
  state: unknown;
}

/** What an editor wrote into the page; null where no editor shows it. */
export function findHost(): Host | null {
  const host = document.getElementById("host");
  return host === null ? null : (JSON.parse(host.textContent) as Host);
}

/** The page is in an editor's webview, and the editor asks the server. */
export class EditorTransport implements Transport {
  readonly #editor: Editor;
  readonly #answers = new Map<number, (answer: Response) => void>();
  readonly #streams = new Map<number, StreamEvents>();
  #last = 0;

  constructor(state: unknown) {
    this.#editor = (window as unknown as { acquireVsCodeApi(): Editor }).acquireVsCodeApi();
    this.#editor.setState(state);
    window.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
      this.#receive(data as Record<string, unknown> | null);
    });
  }

  request(path: string, body?: unknown): Promise<Response> {
    const id = (this.#last += 1);
    return new Promise((done, failed) => {
      const timer = setTimeout(() => {
        this.#answers.delete(id);
        failed(new Error("The editor did not answer in time."));
      }, ANSWER_LIMIT_MS);
      this.#answers.set(id, (answer) => {
        clearTimeout(timer);
        // The editor could not reach the server.
        if (answer.status === 0) failed(new Error(answer.text));
        else done(answer);
      });
      this.#editor.postMessage({ kind: "request", id, path, body });
    });
  }

  listen(path: string, events: StreamEvents): () => void {
    const id = (this.#last += 1);
    this.#streams.set(id, events);
    this.#editor.postMessage({ kind: "listen", id, path });
    return () => {
      if (this.#streams.delete(id)) this.#editor.postMessage({ kind: "leave", id });
    };
  }

  #receive(data: Record<string, unknown> | null): void {
    const id = Number(data?.id);
    const stream = this.#streams.get(id);
    switch (data?.kind) {
      case "answer":
        this.#answers.get(id)?.({ status: Number(data.status), text: String(data.text) });
        this.#answers.delete(id);
        break;
      case "open":
        stream?.open();
        break;
      case "event":
        stream?.message(String(data.name), String(data.data));
        break;
      case "lost":
        this.#streams.delete(id);
        stream?.lost();
        break;
    }
  }
}
