// Forwards requests of the page in the webview to the panel's HTTP server. The extension runs on the server's machine.
// The window may run on another one, or behind a proxy without port forwarding.

import { request, type IncomingMessage } from "node:http";

import { createParser } from "eventsource-parser";

import type { BuiltPage } from "./panel_html";

/** The only paths that the page may request. */
const PATH = /^api\/[a-z]+(\?[a-z]+=\d+(&[a-z]+=\d+)*)?$/;
/** The only names that the page may suggest for a file to save. */
const FILE_NAME = /^[\p{L}\p{N}_-][\p{L}\p{N}._-]{0,150}\.(svg|csv|json)$/u;
/** The maximum size of a response in bytes. For comparison: a timeline of 100,000 operators has 20 MB. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** Request timeout, slightly longer than the server's own. */
const REQUEST_TIMEOUT_MS = 62_000;

/** A message from the page, as sent by `server/panel/src/transport.ts`. Not validated yet. */
interface PageMessage {
  kind?: unknown;
  id?: unknown;
  path?: unknown;
  body?: unknown;
  name?: unknown;
  content?: unknown;
}

/** Asks the user where to save a file, and saves it. Does nothing if the user cancels. */
export type SaveFile = (name: string, content: string) => Promise<void>;

export class PanelBridge {
  /** Functions that close the event streams, by the id that the page assigned. */
  private readonly streams = new Map<number, () => void>();

  /** `address` is the page's URL with its token. `post` sends a message to the page. */
  constructor(
    private readonly address: URL,
    private readonly post: (message: unknown) => void,
    private readonly saveFile: SaveFile,
  ) {}

  /** Fetches the page with its script and style. */
  async page(): Promise<BuiltPage> {
    const [html, script, style] = await Promise.all([this.file("./"), this.file("panel.js"), this.file("panel.css")]);
    return { html, script, style };
  }

  /** Handles a message from the page. */
  receive({ kind, id, path, body, name, content }: PageMessage): void {
    if (typeof id !== "number") {
      return;
    }
    if (kind === "leave") {
      this.streams.get(id)?.();
    } else if (kind === "save") {
      this.save(id, name, content);
    } else if (typeof path !== "string" || !PATH.test(path)) {
      this.post({ kind: "answer", id, status: 400, text: "" });
    } else if (kind === "listen") {
      this.listen(id, path);
    } else if (kind === "request") {
      this.ask(path, body).then(
        ({ status, text }) => {
          this.post({ kind: "answer", id, status, text });
        },
        (error: unknown) => {
          this.post({ kind: "answer", id, status: 0, text: String(error) });
        },
      );
    }
  }

  dispose(): void {
    this.streams.forEach((close) => {
      close();
    });
  }

  private save(id: number, name: unknown, content: unknown): void {
    if (typeof name !== "string" || !FILE_NAME.test(name) || typeof content !== "string") {
      this.post({ kind: "answer", id, status: 400, text: "" });
      return;
    }
    this.saveFile(name, content).then(
      () => {
        this.post({ kind: "answer", id, status: 200, text: "" });
      },
      (error: unknown) => {
        this.post({ kind: "answer", id, status: 0, text: String(error) });
      },
    );
  }

  private async file(path: string): Promise<string> {
    const { status, text } = await this.ask(path);
    if (status !== 200) {
      throw new Error(`the server answered ${status.toString()} for ${path}`);
    }
    return text;
  }

  private async ask(path: string, body?: unknown): Promise<{ status: number; text: string }> {
    const response = await this.send(path, body, AbortSignal.timeout(REQUEST_TIMEOUT_MS));
    const parts: Buffer[] = [];
    let length = 0;
    for await (const part of response) {
      parts.push(part as Buffer);
      length += (part as Buffer).length;
      if (length > MAX_RESPONSE_BYTES) {
        response.destroy();
        throw new Error("the answer is too long");
      }
    }
    return { status: response.statusCode ?? 0, text: Buffer.concat(parts).toString("utf8") };
  }

  private listen(id: number, path: string): void {
    this.streams.get(id)?.();
    const stop = new AbortController();
    const lost = () => {
      if (this.streams.delete(id)) {
        this.post({ kind: "lost", id });
      }
    };
    this.streams.set(id, () => {
      this.streams.delete(id);
      stop.abort();
    });
    this.send(path, undefined, stop.signal).then((response) => {
      if (response.statusCode !== 200) {
        response.destroy();
        lost();
        return;
      }
      this.post({ kind: "open", id });
      const parser = createParser({
        onEvent: ({ event, data }) => {
          this.post({ kind: "event", id, name: event ?? "message", data });
        },
      });
      response.setEncoding("utf8");
      response.on("data", (text: string) => {
        parser.feed(text);
      });
      response.on("close", lost).on("error", lost);
    }, lost);
  }

  private send(path: string, body: unknown, signal: AbortSignal): Promise<IncomingMessage> {
    const url = new URL(path, this.address);
    const headers = body === undefined ? {} : { "content-type": "application/json" };
    return new Promise((done, failed) => {
      // `agent: false` opens a connection per request: the server closes idle ones.
      request(url, { method: body === undefined ? "GET" : "POST", headers, signal, agent: false }, done)
        .on("error", failed)
        .end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}
