// Which pages may frame the panel: windows on this machine, including cross-origin isolated ones, as in VS Code. No
// pages of other hosts.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";

import { RECORDING, skip, withServed } from "./served.mjs";

const ISOLATED = { "cross-origin-embedder-policy": "require-corp", "cross-origin-opener-policy": "same-origin" };

/** Opens a page of `host` that frames the panel, and calls `work` with the panel's frame. */
async function withFrame(host, headers, work) {
  await withServed(async (browser, address) => {
    const outer = `<!doctype html><iframe src="${address}" style="width: 100%; height: 90vh"></iframe>`;
    const window = createServer((_, response) => {
      response.writeHead(200, { "content-type": "text/html", connection: "close", ...headers });
      response.end(outer);
    });
    window.listen(0, "127.0.0.1");
    await once(window, "listening");
    try {
      const page = await (await browser.newContext()).newPage();
      await page.goto(`http://${host}:${window.address().port}/`);
      await work(page.frames()[1]);
    } finally {
      window.close();
    }
  });
}

for (const [name, headers] of [
  ["a window", {}],
  ["an isolated window", ISOLATED],
]) {
  test(`${name} on this machine may frame the panel`, { skip }, () =>
    withFrame("localhost", headers, async (frame) => {
      await frame.locator("#project", { hasText: RECORDING }).waitFor();
    }),
  );
}

test("a page on another host name may not frame the panel, even if it resolves to this machine", { skip }, () =>
  // Chromium resolves every name below `localhost` to this machine. The policy only allows `localhost` itself.
  withFrame("elsewhere.localhost", {}, async (frame) => {
    await frame.waitForLoadState();
    assert.equal(await frame.locator("#project").count(), 0);
  }),
);
