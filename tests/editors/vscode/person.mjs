// A window of VS Code in Chromium, and the actions and observations of a user in it.

import assert from "node:assert/strict";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";

import { EDITOR_LIMIT, Home, RUN_LIMIT, openBrowser, pictures } from "./editor.mjs";

/** `ridgeline.highlightBackground` in a dark theme, as computed by the browser. */
const MARK = "rgba(55, 148, 255, 0.22)";

mkdirSync(pictures, { recursive: true });

/** A line that is expensive in every run. */
export const HOTTEST = "hidden = torch.relu(self.features(x))";
/** The text of a hint. VS Code renders spaces as non-breaking ones. */
export const COST = /\d\s(µs|ms|s)\s·\s\d+%|fwd\s[\d.]+\s·\sbwd\s[\d.]+\s(µs|ms|s)/;

export class Window {
  constructor(page) {
    this.page = page;
    page.setDefaultTimeout(EDITOR_LIMIT);
  }

  /** Takes a screenshot when all animations have finished, except endless ones. */
  async picture(name, clip) {
    await this.page.evaluate(() => {
      const passing = document.getAnimations().filter((each) => each.effect.getComputedTiming().endTime < Infinity);
      return Promise.allSettled(passing.map((each) => each.finished));
    });
    await this.page.screenshot({ path: join(pictures, `vscode-${name}.png`), clip });
  }

  /** Opens VS Code's quick input with a key. Retries, because a window that is still loading ignores keys. */
  async quickInput(key) {
    const input = this.page.locator(".quick-input-widget input");
    const end = Date.now() + EDITOR_LIMIT;
    do {
      await this.page.keyboard.press(key);
    } while (!(await input.waitFor({ timeout: 2000 }).then(() => true, () => false)) && Date.now() < end);
    return input;
  }

  /** Opens a file by name. `folder` distinguishes files of the same name. */
  async open(file, folder = "") {
    await (await this.quickInput("Control+p")).fill(`${file} ${folder}`.trim());
    const rows = this.page.locator(".quick-input-list .monaco-list-row", { hasText: file });
    // Enter opens the focused result, and results change while they are loading.
    await rows.filter({ hasText: folder }).and(this.page.locator(".focused")).waitFor();
    await this.page.keyboard.press("Enter");
    await this.page.locator(`.tab.active >> text=${file}`).waitFor();
  }

  async command(title) {
    const input = await this.quickInput("F1");
    await input.fill(`>${title}`);
    await this.page.locator(".quick-input-list .monaco-list-row.focused", { hasText: title }).waitFor();
    await this.page.keyboard.press("Enter");
    await input.waitFor({ state: "hidden" });
  }

  /** Moves the cursor to a one-based line and column. */
  async goTo(line, column) {
    await this.page.keyboard.press("Control+1");
    const input = await this.quickInput("Control+g");
    await input.fill(`:${line}:${column}`);
    await this.page.keyboard.press("Enter");
    // VS Code focuses the editor after that. Later, it would take the focus from what the test focuses next.
    await input.waitFor({ state: "hidden" });
    await this.page.locator(".monaco-editor.focused").first().waitFor();
    await this.position(line, column);
  }

  /** Waits until the cursor is at a line, and optionally a column. */
  async position(line, column = "") {
    await this.page.locator(".statusbar-item", { hasText: `Ln ${line}, Col ${column}` }).waitFor();
  }

  /** Saves, and waits until the tab shows that the file is saved. */
  async save() {
    await this.page.keyboard.press("Control+s");
    await this.page.locator(".tab.active.dirty").waitFor({ state: "detached" });
  }

  /** Returns the rendered line that contains a text, including its hints. */
  line(text) {
    // VS Code renders spaces as non-breaking ones.
    const pattern = text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`).replaceAll(" ", String.raw`\s`);
    return this.page.locator(".view-line", { hasText: new RegExp(pattern) }).first();
  }

  /** Waits until a rendered line contains a text. */
  async lineShows(text, expected, limit = RUN_LIMIT) {
    const found = this.line(text).filter({ hasText: expected });
    await found.waitFor({ timeout: limit });
    return found;
  }

  /** Returns the contents of the margin next to a line. */
  async lineNumber(text) {
    const { y } = await this.line(text).boundingBox();
    for (const number of await this.page.locator(".margin-view-overlays .line-numbers").all()) {
      if (Math.abs((await number.boundingBox()).y - y) < 2) {
        return (await number.innerText()).trim();
      }
    }
    throw new Error(`${text} has no line number`);
  }

  /** Waits until only the line that the panel points at is highlighted. */
  async markShows(line) {
    await this.page.waitForFunction(
      ([number, colour]) => {
        const marked = [...document.querySelectorAll(".view-overlays .cdr")].filter(
          (each) => getComputedStyle(each).backgroundColor === colour,
        );
        const numbers = [...document.querySelectorAll(".margin-view-overlays .line-numbers")];
        const beside = (mark) =>
          numbers.find((each) => Math.abs(each.getBoundingClientRect().top - mark.getBoundingClientRect().top) < 2);
        return marked.length > 0 && marked.every((mark) => beside(mark)?.textContent.trim() === number);
      },
      [String(line), MARK],
    );
  }

  get status() {
    return this.page.locator("#ridgeline\\.ridgeline\\.ridgeline\\.status");
  }

  async statusShows(expected, limit = RUN_LIMIT) {
    await this.status.filter({ hasText: expected }).waitFor({ timeout: limit });
  }

  notification(text) {
    return this.page.locator(".notification-toast", { hasText: text });
  }

  /** The panel's page, in the webview's frame. */
  get panel() {
    return this.page.frameLocator("iframe.webview.ready").frameLocator("#active-frame");
  }

  /** Returns the visible text, for when only the test's output is available and not its screenshot. */
  async visibleText() {
    const tabs = await this.page.locator(".tab").allInnerTexts();
    const frames = await Promise.all(
      this.page.frames().map((frame) => frame.locator("body").innerText({ timeout: 1000 }).catch(() => "")),
    );
    const texts = frames.map((text) => text.replaceAll(/\s+/g, " ").slice(0, 200)).filter((text) => text !== "");
    return `The window's tabs: ${JSON.stringify(tabs)}; its frames: ${JSON.stringify(texts)}`;
  }

  /**
   * Waits until VS Code has stored a text in the state of its editors. It does that when idle, and a reload does not
   * wait for it.
   */
  async waitUntilStored(text) {
    await this.page.waitForFunction(isStoredInEditors, text, { polling: 500, timeout: EDITOR_LIMIT });
  }

  /** Moves the pointer over a word of a line until its hover shows. */
  async hover(text, word) {
    const box = await this.line(text).evaluate((line, sought) => {
      const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const at = node.data.indexOf(sought);
        if (at >= 0) {
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + sought.length);
          const { x, y, width, height } = range.getBoundingClientRect();
          return { x: x + width / 2, y: y + height / 2 };
        }
      }
      return undefined;
    }, word);
    assert.ok(box, `${word} is not visible`);
    await this.page.mouse.move(box.x - 30, box.y);
    await this.page.mouse.move(box.x, box.y, { steps: 4 });
    await this.page.locator(".monaco-hover:not(.hidden) .hover-contents").first().waitFor();
  }
}

/** Runs in the page: checks whether the stored editor state of VS Code's web workbench contains a text. */
async function isStoredInEditors(text) {
  const answer = (request) =>
    new Promise((done, failed) => {
      request.onsuccess = () => done(request.result);
      request.onerror = () => failed(request.error);
    });
  const known = await indexedDB.databases();
  for (const { name } of known.filter((one) => one.name.startsWith("vscode-web-state-db-"))) {
    const database = await answer(indexedDB.open(name));
    try {
      const items = database.transaction("ItemTable").objectStore("ItemTable");
      const editors = await answer(items.get("memento/workbench.parts.editor"));
      if (String(editors).includes(text)) {
        return true;
      }
    } finally {
      database.close();
    }
  }
  return false;
}

/** Names of the failed steps. Steps after a failure are skipped. */
export const failures = [];

/** Runs one step of a test. */
export async function step(window, name, body) {
  if (failures.length > 0) {
    return;
  }
  const failed = `FAILED-${name.replaceAll(/\W+/g, "-")}`;
  rmSync(join(pictures, `vscode-${failed}.png`), { force: true });
  try {
    await body();
    console.log(`ok     ${name}`);
  } catch (error) {
    failures.push(name);
    console.log(`FAILED ${name}: ${error.stack ?? error}`);
    console.log(await window.visibleText().catch((another) => `could not read the window: ${another}`));
    await window.picture(failed).catch((another) => console.log(`could not take a screenshot: ${another}`));
  }
}

/**
 * Starts VS Code with the folder open, and passes its window to `body`. Fails if there were requests to other machines.
 * With `below`, it is code-server behind a proxy that serves it below that path.
 */
export async function session({ home: chosen, below, ...flags }, body) {
  if (failures.length > 0) {
    return;
  }
  const home = new Home({ project: "digits", ...chosen });
  let browser;
  try {
    const address = below === undefined ? await home.start(flags) : await home.startBehindProxy(below);
    browser = await openBrowser(home, flags.viewport);
    const window = new Window(browser.page);
    await browser.page.goto(`${address}/?${home.query}`);
    await browser.page.locator(".monaco-workbench .explorer-folders-view").waitFor({ timeout: EDITOR_LIMIT });
    await body(window, home);
    assert.deepEqual(browser.outside, [], "requests to other machines");
  } catch (error) {
    failures.push("the session");
    console.log(`FAILED ${error.stack ?? error}`);
    await browser?.page.screenshot({ path: join(pictures, "vscode-FAILED-session.png") });
  } finally {
    await browser?.context.close();
    await home.close();
  }
}
