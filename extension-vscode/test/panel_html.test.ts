import { readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import { panelDocument, waitingDocument } from "../src/panel_html";

const BUILT = join(__dirname, "../../server/panel/dist");
const read = (name: string) => readFileSync(join(BUILT, name), "utf8");
const PANEL = {
  page: { html: read("index.html"), script: read("panel.js"), style: read("panel.css") },
  workspace: 2,
  theme: "light" as const,
  nonce: "n0nce",
  state: { root: "file:///w" },
};

test("the page is self-contained and cannot load anything", () => {
  const html = panelDocument(PANEL);
  expect(html).toContain("default-src 'none'; script-src 'nonce-n0nce'; style-src 'nonce-n0nce'; img-src data:");
  expect(html).toContain('{"workspace":2,"theme":"light","state":{"root":"file:///w"}}');
  expect(html).toContain(PANEL.page.style);
  expect(html).not.toMatch(/<link|<script src/);
  expect(html).toContain('<main id="main"');
});

test("no text can close the script element", () => {
  const page = { ...PANEL.page, script: 'const a = "</script><!-- $& $1";' };
  const html = panelDocument({ ...PANEL, page, state: { root: "file:///</script><script>alert(2)</script>" } });
  expect(html.match(/<script/g)).toHaveLength(2);
  expect(html.match(/<\/script/g)).toHaveLength(2);
  expect(html).toContain(String.raw`const a = "\x3c/script>\x3c!-- $& $1";`);
});

test("the waiting document loads nothing", () => {
  const html = waitingDocument("<b>");
  expect(html).toContain("default-src 'none'");
  expect(html).toContain("&lt;b&gt;");
});
