// Runs cases/exthost.ts inside VS Code's extension host. `node exthost.mjs`; see editor.mjs for its environment.

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { EXTENSION, Home, RUN_LIMIT, buildExtension, openBrowser, pictures, ridgeline, run, within } from "./editor.mjs";

buildExtension();
const home = new Home({
  project: "digits",
  extensions: [join(import.meta.dirname, "python-extension")],
  settings: { "ridgeline.server.path": ridgeline },
});
let code = 1;
try {
  const esbuild = join(EXTENSION, "node_modules/.bin/esbuild");
  const cases = join(home.folder, "cases.js");
  const source = join(import.meta.dirname, "cases/exthost.ts");
  run(esbuild, [source, "--bundle", "--platform=node", "--format=cjs", "--external:vscode", `--outfile=${cases}`], home.folder);

  const address = await home.start({ automated: true });
  const { context, page, outside } = await openBrowser(home);
  const ended = new Promise((done) => {
    void page.exposeFunction("codeAutomationExit", (status) => done(status));
  });
  // Filters out the editor's own log, which is long and not related to the cases.
  await page.exposeFunction("codeAutomationLog", (_type, [text]) => {
    if (/^(ok|note|FAILED) /.test(String(text))) {
      console.log(text);
    }
  });
  const remote = (path) => `vscode-remote://${new URL(address).host}${path}`;
  const payload = JSON.stringify([
    ["extensionDevelopmentPath", remote(EXTENSION)],
    ["extensionTestsPath", remote(cases)],
  ]);
  await page.goto(`${address}/?${home.query}&payload=${encodeURIComponent(payload)}`);
  code = await within(ended, 4 * RUN_LIMIT, "the cases in the extension host");
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, "vscode-extension-host.png") });
  await context.close();
  if (outside.length > 0) {
    console.log("FAILED requests to other machines:", outside);
    code = 1;
  }
} catch (error) {
  console.log("FAILED", error);
  code = 1;
} finally {
  await home.close();
}
process.exit(code);
