// Asks the panel's server for the page in the webview. The extension runs on the server's machine, and the window may
// be on another one, or behind a proxy that no port is forwarded through.

import { request, type IncomingMessage } from "node:http";

import { createParser } from "eventsource-parser";

import type { BuiltPage } from "./panel_html";

/** What the page may ask for; nothing else of the server is reached through it. */
const PATH = /^api\/[a-z]+(\?[a-z]+=\d+(&[a-z]+=\d+)*)?$/;
/** Longer answers are refused: a timeline of 100,000 operators has 20 MB. */
const LONGEST_ANSWER = 256 * 1024 * 1024;
/** A little more than the server takes at most before it gives up by itself. */
const ANSWER_LIMIT_MS = 62_000;

/** The page's messages, as `server/panel/src/transport.ts` sends them. */
interface Asked {
  kind?: unknown;
  id?: unknown;
  path?: unknown;
  body?: unknown;
}

export class PanelBridge {
  /** Closes the streams of events, by the number that the page gave each. */
  private readonly streams = new Map<number, () => void>();

  /** `address` is that of the page, with its token; `post` sends a message to the page. */
  constructor(
    private readonly address: URL,
    private readonly post: (message: unknown) => void,
  ) {}

  /** The page with what it names. */
  async page(): Promise<BuiltPage> {
    const [html, script, style] = await Promise.all([this.file("./"), this.file("panel.js"), this.file("panel.css")]);
    return { html, script, style };
  }

  /** Takes a message of the page. */
  receive({ kind, id, path, body }: Asked): void {
    if (typeof id !== "number") {
      return;
    }
    if (kind === "leave") {
      this.streams.get(id)?.();
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

  private async file(path: string): Promise<string> {
    const { status, text } = await this.ask(path);
    if (status !== 200) {
      throw new Error(`the server answered ${status.toString()} for ${path}`);
    }
    return text;
  }

  private async ask(path: string, body?: unknown): Promise<{ status: number; text: string }> {
    const response = await this.send(path, body, AbortSignal.timeout(ANSWER_LIMIT_MS));
    const parts: Buffer[] = [];
    let length = 0;
    for await (const part of response) {
      parts.push(part as Buffer);
      length += (part as Buffer).length;
      if (length > LONGEST_ANSWER) {
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
      // A stream of its own for each: the server closes what has been idle.
      request(url, { method: body === undefined ? "GET" : "POST", headers, signal, agent: false }, done)
        .on("error", failed)
        .end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}
