// Serves the built page and given documents like the real server, including the content security policy.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const repository = join(dirname(fileURLToPath(import.meta.url)), "../..");
const TYPES = { "": "text/html", "panel.js": "text/javascript", "panel.css": "text/css" };

/** The policy of `server/src/panel/guard.rs`, read from that file so that the two cannot diverge. */
export function contentPolicy() {
  const source = readFileSync(join(repository, "server/src/panel/guard.rs"), "utf8");
  const found = /"(default-src 'none';(?:[^"\\]|\\[^])*)"/.exec(source);
  if (found === null) throw new Error("guard.rs has no content policy that begins with default-src 'none'");
  return found[1].replace(/\\\n\s*/g, "");
}

/** A built file of the page. */
export function builtFile(name) {
  return readFileSync(join(repository, "server/panel/dist", name), "utf8");
}

/**
 * Opens a site with `panel` and `timeline` as its documents, which may be changed while it runs. `posts` contains the
 * page's POST requests, and `compared` the runs whose comparison it requested, which `compare` generates. `send(event,
 * data)` sends an event to every listening page.
 */
export async function openSite({ panel, timeline = null }) {
  const site = { panel, timeline, compare: () => null, compared: [], posts: [], streams: new Set(), refuse: false, answer: { done: true } };
  const policy = contentPolicy();
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://127.0.0.1");
    const name = url.pathname.replace(/^\/token\//, "");
    const reply = (status, type, body) => {
      response.writeHead(status, {
        "content-type": `${type}; charset=utf-8`,
        "content-security-policy": policy,
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
      });
      response.end(body);
    };
    const json = (value) => (value === null ? reply(404, "text/plain", "") : reply(200, "application/json", typeof value === "string" ? value : JSON.stringify(value)));
    if (site.refuse) {
      request.destroy();
    } else if (name in TYPES) {
      reply(200, TYPES[name], builtFile(name || "index.html"));
    } else if (name === "api/panel") {
      json(site.panel);
    } else if (name === "api/timeline") {
      json(site.timeline);
    } else if (name === "api/compare") {
      const [before, after] = ["before", "after"].map((key) => Number(url.searchParams.get(key)));
      site.compared.push([before, after]);
      json(site.compare(before, after));
    } else if (name === "api/events") {
      response.writeHead(200, { "content-type": "text/event-stream", "content-security-policy": policy });
      response.write(":\n\n");
      site.streams.add(response);
      request.on("close", () => site.streams.delete(response));
    } else if (request.method === "POST" && name.startsWith("api/")) {
      let body = "";
      request.on("data", (part) => (body += part));
      request.on("end", () => {
        site.posts.push({ name: name.slice(4), body: JSON.parse(body) });
        json(site.answer);
      });
    } else {
      reply(404, "text/plain", "");
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  site.origin = `http://127.0.0.1:${server.address().port}`;
  site.address = `${site.origin}/token/?workspace=0`;
  site.send = (event, data) => {
    for (const stream of site.streams) stream.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  /** Closes all connections, like a server that exits. */
  site.lose = () => {
    site.refuse = true;
    for (const stream of site.streams) stream.destroy();
  };
  site.close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return site;
}
