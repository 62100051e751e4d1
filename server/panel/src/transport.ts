// Connects the page to its server: over HTTP if the server served the page, or through messages to the editor's
// extension, which forwards them. The webview of a remote window cannot reach ports of the server's machine, but the
// extension runs on that machine.

export interface Response {
  status: number;
  /** The raw data. */
  text: string;
}

export interface StreamEvents {
  open(): void;
  message(name: string, data: string): void;
  /** The stream ended or could not be opened. Nothing follows. */
  lost(): void;
}

export interface Transport {
  /** Requests a path below the page, such as `api/panel?workspace=0`. With a body, it is a POST. */
  request(path: string, body?: unknown): Promise<Response>;
  /** Opens an event stream. Returns a function that closes it. */
  listen(path: string, events: StreamEvents): () => void;
  /** Saves a file where the user wants it. */
  save(name: string, content: string): Promise<void>;
}

/** The events of the server's stream (docs/panel.md). */
const EVENTS = ["panel", "status"];
/** Request timeout, slightly longer than the server's own. */
const REQUEST_TIMEOUT_MS = 65_000;

/** HTTP, for a page that the server served. */
export class HttpTransport implements Transport {
  async request(path: string, body?: unknown): Promise<Response> {
    const sent = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const response = await fetch(`./${path}`, { cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS), ...sent });
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
    // EventSource reconnects only after some errors. The page reconnects after all of them.
    stream.addEventListener("error", () => {
      stream.close();
      events.lost();
    });
    return () => {
      stream.close();
    };
  }

  save(name: string, content: string): Promise<void> {
    download(name, content);
    return Promise.resolve();
  }
}

/** Downloads a file, as the browser does. */
export function download(name: string, content: string): void {
  const type = name.endsWith(".svg") ? "image/svg+xml" : name.endsWith(".csv") ? "text/csv" : "application/json";
  const address = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The download begins after this task.
  setTimeout(() => {
    URL.revokeObjectURL(address);
  }, 10_000);
}

/** The API that VS Code provides to a webview's script. */
interface Editor {
  postMessage(message: unknown): void;
  setState(state: unknown): void;
}

/** Data that the editor embeds in the page. */
export interface Host {
  workspace: number;
  theme: string;
  /** Persisted by the editor, to restore the panel after a window reload. */
  state: unknown;
}

/** Returns the data that the editor embedded in the page, or null outside an editor. */
export function findHost(): Host | null {
  const host = document.getElementById("host");
  return host === null ? null : (JSON.parse(host.textContent) as Host);
}

/** Messages to the editor, for a page in its webview. */
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
    return this.#ask({ kind: "request", path, body }, REQUEST_TIMEOUT_MS);
  }

  /** A webview cannot download. The editor asks the user for the place, which may take any time. */
  async save(name: string, content: string): Promise<void> {
    const { status } = await this.#ask({ kind: "save", name, content }, null);
    if (status !== 200) throw new Error("The editor rejected the request.");
  }

  #ask(message: object, timeoutMs: number | null): Promise<Response> {
    const id = (this.#last += 1);
    return new Promise((done, failed) => {
      const late = () => {
        this.#answers.delete(id);
        failed(new Error("The editor did not answer in time."));
      };
      const timer = timeoutMs === null ? undefined : setTimeout(late, timeoutMs);
      this.#answers.set(id, (answer) => {
        clearTimeout(timer);
        // The editor could not reach the server, or write the file.
        if (answer.status === 0) failed(new Error(answer.text));
        else done(answer);
      });
      this.#editor.postMessage({ ...message, id });
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
