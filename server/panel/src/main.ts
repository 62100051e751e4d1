// Starts the page: a report from what it carries, else the live panel from the server.

import { Api, Gone } from "./api";
import { UnknownSchema } from "./document";
import { byId } from "./dom";
import { Page } from "./page";
import { findReport } from "./report";
import { followTheme } from "./theme";

function start(): void {
  const parameters = new URLSearchParams(location.search);
  document.documentElement.classList.toggle("embedded", parameters.get("embedded") === "1");
  let page: Page | null = null;
  followTheme(location.search, () => page?.restyle());

  const report = findReport();
  if (report !== null) {
    page = Page.ofReport(report);
    return;
  }
  const workspace = Number.parseInt(parameters.get("workspace") ?? "0", 10);
  page = Page.live(new Api(Number.isSafeInteger(workspace) && workspace >= 0 ? workspace : 0));
}

try {
  start();
} catch (error) {
  // Without this the page would stay empty and say nothing.
  byId("notice").textContent =
    error instanceof UnknownSchema || error instanceof Gone ? error.message : `The page could not be displayed: ${String(error)}`;
  byId("notice").hidden = false;
  throw error;
}
