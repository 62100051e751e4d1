import { expect, test } from "vitest";

import { isLoopback, panelDocument, waitingDocument } from "../src/panel_html";

const FRAME = {
  address: "http://127.0.0.1:4711/0123abcd/?workspace=2",
  theme: "light" as const,
  nonce: "n0nce",
  state: { root: "file:///w" },
};

test("only the panel's own server can be loaded", () => {
  const html = panelDocument(FRAME);
  expect(html).toContain(
    "default-src 'none'; frame-src http://127.0.0.1:4711; script-src 'nonce-n0nce'; style-src 'nonce-n0nce'",
  );
  expect(html).toContain('src="http://127.0.0.1:4711/0123abcd/?workspace=2&amp;theme=light&amp;embedded=1"');
});

test("no text ends an attribute or the script", () => {
  const html = panelDocument({
    ...FRAME,
    address: 'http://127.0.0.1:4711/"><script>alert(1)</script>/?workspace=0',
    state: { root: "file:///</script><script>alert(2)</script>" },
  });
  expect(html.match(/<script/g)).toEqual(["<script"]);
  expect(html.match(/<\/script/g)).toEqual(["</script"]);
});

test("the document without a panel loads nothing", () => {
  const html = waitingDocument("<b>");
  expect(html).toContain("default-src 'none'");
  expect(html).toContain("&lt;b&gt;");
});

test("only loopback addresses can be answered", () => {
  expect(isLoopback("http://localhost:4711/t/?workspace=0")).toBe(true);
  expect(isLoopback("http://127.0.0.1:4711/t/")).toBe(true);
  expect(isLoopback("https://4711.example.org/t/")).toBe(false);
  expect(isLoopback("https://127.0.0.1.example.org/")).toBe(false);
});
