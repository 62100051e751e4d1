// Tests many panels of one server in one browser, which shares six connections among them.

import { test } from "node:test";

import { RECORDING, skip, withServed } from "./served.mjs";

const TABS = 8;

test("each of many panels in one browser shows its project", { skip }, () =>
  withServed(async (browser, address) => {
    const context = await browser.newContext();
    for (let tab = 0; tab < TABS; tab += 1) {
      const page = await context.newPage();
      await page.goto(address);
      // Until the document arrives, the title is the page's own.
      await page.locator("#project", { hasText: RECORDING }).waitFor();
    }
  }),
);
