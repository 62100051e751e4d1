import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { afterEach, expect, test, vi } from "vitest";

import { PanelBridge } from "../src/panel_bridge";

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** Returns a bridge to a server behind a token, and the messages it sent. `next` waits for one more message. */
async function bridged(handler: Handler) {
  server = createServer(handler);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const sent: Record<string, unknown>[] = [];
  const saved: [string, string][] = [];
  const save = (name: string, content: string) => {
    saved.push([name, content]);
    return name === "full.csv" ? Promise.reject(new Error("the disk is full")) : Promise.resolve();
  };
  const waiting: (() => void)[] = [];
  const post = (message: unknown) => {
    sent.push(message as Record<string, unknown>);
    waiting.shift()?.();
  };
  const bridge = new PanelBridge(new URL(`http://127.0.0.1:${port.toString()}/token/?workspace=1`), post, save);
  const next = async () => {
    if (sent.length === 0) await new Promise<void>((done) => waiting.push(done));
    return sent.shift();
  };
  return { bridge, next, saved };
}

test("forwards requests with the token and returns the responses", async () => {
  const { bridge, next } = await bridged((request, response) => {
    let body = "";
    request.on("data", (part) => (body += String(part)));
    request.on("end", () => response.writeHead(200).end([request.method, request.url, body].join(" ")));
  });
  bridge.receive({ kind: "request", id: 1, path: "api/panel?workspace=1" });
  expect(await next()).toEqual({ kind: "answer", id: 1, status: 200, text: "GET /token/api/panel?workspace=1 " });
  bridge.receive({ kind: "request", id: 2, path: "api/jump", body: { file: 0 } });
  expect(await next()).toEqual({ kind: "answer", id: 2, status: 200, text: 'POST /token/api/jump {"file":0}' });
});

test("saves exports under the name that the page suggests", async () => {
  const { bridge, next, saved } = await bridged((_, response) => response.end());
  bridge.receive({ kind: "save", id: 1, name: "gpt-2026-11-27-kernels.csv", content: "kernel\r\n" });
  expect(await next()).toEqual({ kind: "answer", id: 1, status: 200, text: "" });
  expect(saved).toEqual([["gpt-2026-11-27-kernels.csv", "kernel\r\n"]]);
  bridge.receive({ kind: "save", id: 2, name: "full.csv", content: "" });
  expect(await next()).toEqual({ kind: "answer", id: 2, status: 0, text: "Error: the disk is full" });
});

test("suggests no name with a path or of another kind", async () => {
  const { bridge, next, saved } = await bridged((_, response) => response.end());
  const names = ["../kernels.csv", "a/b.svg", String.raw`a\b.csv`, ".bashrc", ".csv", "run.sh", "x.csv\n", `${"a".repeat(200)}.csv`, 7, undefined];
  for (const [id, name] of names.entries()) {
    bridge.receive({ kind: "save", id, name, content: "" });
    expect(await next()).toMatchObject({ kind: "answer", id, status: 400 });
  }
  bridge.receive({ kind: "save", id: 99, name: "a.csv", content: 5 });
  expect(await next()).toMatchObject({ kind: "answer", id: 99, status: 400 });
  expect(saved).toEqual([]);
});

test("refuses all other paths", async () => {
  let asked = 0;
  const { bridge, next } = await bridged((_, response) => {
    asked += 1;
    response.end();
  });
  const paths = ["../", "http://elsewhere.example/api/panel", "//elsewhere.example/", "api/../x", "panel.js", "api/panel?x=a", 7, undefined];
  for (const [id, path] of paths.entries()) {
    bridge.receive({ kind: id % 2 === 0 ? "request" : "listen", id, path });
    expect(await next()).toMatchObject({ kind: "answer", id, status: 400 });
  }
  bridge.receive({ kind: "request", id: "1", path: "api/panel" });
  bridge.receive({});
  expect(asked).toBe(0);
});

test("forwards events until the page closes the stream", async () => {
  let stream: ServerResponse | undefined;
  const { bridge, next } = await bridged((_, response) => {
    stream = response;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(":\n\nevent: status\ndata: {\"a\":");
  });
  bridge.receive({ kind: "listen", id: 5, path: "api/events?workspace=1" });
  expect(await next()).toEqual({ kind: "open", id: 5 });
  stream?.write('1}\n\n');
  expect(await next()).toEqual({ kind: "event", id: 5, name: "status", data: '{"a":1}' });
  bridge.receive({ kind: "leave", id: 5 });
  await vi.waitFor(() => {
    expect(stream?.closed).toBe(true);
  });
});

test("reports lost and refused streams and an unreachable server", async () => {
  const { bridge, next } = await bridged((request, response) => {
    response.writeHead(request.url?.includes("workspace=1") ? 503 : 200).flushHeaders();
    setTimeout(() => response.destroy(), 10);
  });
  bridge.receive({ kind: "listen", id: 1, path: "api/events?workspace=1" });
  expect(await next()).toEqual({ kind: "lost", id: 1 });
  bridge.receive({ kind: "listen", id: 2, path: "api/events?workspace=2" });
  expect(await next()).toEqual({ kind: "open", id: 2 });
  expect(await next()).toEqual({ kind: "lost", id: 2 });
  server?.closeAllConnections();
  server?.close();
  bridge.receive({ kind: "request", id: 3, path: "api/panel?workspace=1" });
  expect(await next()).toMatchObject({ kind: "answer", id: 3, status: 0 });
});

test("returns the page with its script and style", async () => {
  const { bridge } = await bridged((request, response) => response.end(request.url));
  expect(await bridge.page()).toEqual({ html: "/token/", script: "/token/panel.js", style: "/token/panel.css" });
});
