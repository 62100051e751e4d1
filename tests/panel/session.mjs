// A monitored page in Chromium: any error on it fails the test that opened it.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { openSite } from "./site.mjs";

const AXE = join(dirname(fileURLToPath(import.meta.url)), "../../server/panel/node_modules/axe-core/axe.min.js");

/** The reason to skip accessibility checks, or false. */
export const noAxe = existsSync(AXE) ? false : "axe-core is not installed; run `npm ci` in server/panel";

/**
 * Opens the panel with the given documents and calls `test` with the page and the site. Afterwards fails if there were
 * requests to other hosts, policy violations or logged errors.
 */
export async function withPanel(browser, { panel, timeline, address = "", ...look }, test) {
  const site = await openSite({ panel, timeline });
  try {
    await withPage(browser, { address: site.address + address, origin: site.origin, ...look }, (page, errors) => test(page, site, errors));
  } finally {
    await site.close();
  }
}

/** The themes of the page, as settings of the system. */
export const THEMES = {
  light: {},
  dark: { theme: "dark" },
  "high contrast": { theme: "dark", contrast: "more" },
  "high contrast, light": { contrast: "more" },
  "forced colors": { theme: "dark", forced: "active" },
};

/** Like `withPanel`, for any URL. `errors` collects the errors, and the test may inspect or clear it. */
export async function withPage(browser, { address, origin, theme = "light", contrast = "no-preference", forced = "none", width = 1280, height = 900, motion = "reduce", ready = true, scripts = true }, test) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, contrast, forcedColors: forced, reducedMotion: motion, javaScriptEnabled: scripts });
  const errors = [];
  try {
    const page = await context.newPage();
    page.setDefaultTimeout(15_000);
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") errors.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => errors.push(`uncaught: ${error.stack ?? error}`));
    page.on("request", (request) => {
      if (!request.url().startsWith(origin) && !request.url().startsWith("data:")) errors.push(`request to ${request.url()}`);
    });
    await page.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    await page.goto(address);
    if (ready) await page.waitForSelector("html[data-ready]");
    await test(page, errors);
    assert.deepEqual(errors, []);
  } finally {
    await context.close();
  }
}

/** Fails on accessibility violations found by axe, with their locations. */
export async function checkAccessibility(page, where) {
  await page.evaluate(readFileSync(AXE, "utf8"));
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`);
  assert.deepEqual(found, [], where);
}

/** Waits for at least `least` requests of the page to `api/NAME` and returns them. */
export async function waitForPosts(site, name, least) {
  const posts = () => site.posts.filter((post) => post.name === name).map(({ body }) => body);
  await waitUntil(() => posts().length >= least, () => `${least} posts to ${name}, but got ${JSON.stringify(posts())}`);
  return posts();
}

/** Waits until a condition holds. */
export async function waitUntil(holds, what) {
  const end = Date.now() + 15_000;
  while (!(await holds())) {
    if (Date.now() > end) assert.fail(`timed out waiting for ${typeof what === "function" ? what() : what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Asserts that no part of the page is wider than the window. */
export async function checkNoSidewaysScroll(page, where) {
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(excess, 0, where);
}
