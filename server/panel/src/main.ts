// Starts the page: a report from its embedded data, else the live panel from the server.

import { Api, Gone } from "./api";
import { UnknownSchema } from "./document";
import { byId } from "./dom";
import { Page } from "./page";
import { findReport } from "./report";
import { followTheme } from "./theme";
import { EditorTransport, findHost, HttpTransport } from "./transport";

function start(): void {
  const host = findHost();
  const parameters = new URLSearchParams(location.search);
  document.documentElement.classList.toggle("embedded", host !== null || parameters.get("embedded") === "1");
  let page: Page | null = null;
  followTheme(host?.theme ?? parameters.get("theme"), host !== null, () => page?.restyle());

  const report = findReport();
  if (report !== null) {
    page = Page.ofReport(report);
    return;
  }
  const workspace = host?.workspace ?? Number.parseInt(parameters.get("workspace") ?? "0", 10);
  const transport = host === null ? new HttpTransport() : new EditorTransport(host.state);
  page = Page.live(new Api(Number.isSafeInteger(workspace) && workspace >= 0 ? workspace : 0, transport));
}

try {
  start();
} catch (error) {
  // Without this, the page would stay blank without an error.
  byId("notice").textContent =
    error instanceof UnknownSchema || error instanceof Gone ? error.message : `The page could not be displayed: ${String(error)}`;
  byId("notice").hidden = false;
  throw error;
}
