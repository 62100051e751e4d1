// Many panels of one server in one browser, which has six connections to it for all of them.

import { test } from "node:test";

import { RECORDING, skip, withServed } from "./served.mjs";

const TABS = 8;

test("every one of many panels in one browser shows its project", { skip }, () =>
  withServed(async (browser, address) => {
    const context = await browser.newContext();
    for (let tab = 0; tab < TABS; tab += 1) {
      const page = await context.newPage();
      await page.goto(address);
      // Until it is there, the page says its own name.
      await page.locator("#project", { hasText: RECORDING }).waitFor();
    }
  }),
);
