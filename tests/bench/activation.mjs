// Measures how long the extension takes to start in VS Code's extension host, compared with loading only the language
// client that it uses. Run with `node tests/bench/activation.mjs`; the environment variables are those of
// tests/editors/vscode.

import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { EDITOR_LIMIT, EXTENSION, Home, buildExtension, openBrowser, ridgeline, run, within } from "../editors/vscode/editor.mjs";

/** How often each bundle is loaded. The bundles alternate. */
const ROUNDS = 21;

buildExtension();
const home = new Home({ project: "digits", settings: { "ridgeline.server.path": ridgeline } });
try {
  const client = join(EXTENSION, "dist/client-alone.js");
  const esbuild = join(EXTENSION, "node_modules/.bin/esbuild");
  const flags = ["--bundle", "--minify", "--platform=node", "--format=cjs", "--external:vscode", "--target=node20"];
  const source = join(EXTENSION, "dist/client-alone-source.js");
  writeFileSync(source, 'module.exports = require("vscode-languageclient/node");');
  run(esbuild, [source, ...flags, `--outfile=${client}`], home.folder);
  const cases = join(home.folder, "cases.js");
  writeFileSync(cases, `
    const vscode = require("vscode");
    exports.run = async () => {
      const extension = vscode.extensions.getExtension("ridgeline.ridgeline");
      const files = ${JSON.stringify({ extension: join(EXTENSION, "dist/main.js"), client })};
      const times = { extension: [], client: [] };
      for (let round = 0; round < ${ROUNDS}; round++) {
        for (const [name, file] of Object.entries(files)) {
          delete require.cache[require.resolve(file)];
          const began = performance.now();
          require(file);
          times[name].push(performance.now() - began);
        }
      }
      // VS Code finds the extension already loaded, and the time of its calls is measured separately. Time between the
      // two, such as waiting for the window, is not the extension's.
      const loaded = require.cache[require.resolve(files.extension)];
      const { activate: real, deactivate } = loaded.exports;
      let activate;
      loaded.exports = {
        activate(context) {
          const began = performance.now();
          real(context);
          activate = performance.now() - began;
        },
        deactivate,
      };
      await extension.activate();
      const median = (all) => all.sort((a, b) => a - b)[all.length >> 1];
      console.log("bench " + JSON.stringify({ activate, extension: median(times.extension), client: median(times.client) }));
    };
  `);
  const address = await home.start({ automated: true });
  const { context, page } = await openBrowser(home);
  let results;
  await page.exposeFunction("codeAutomationLog", (_type, [text]) => {
    if (String(text).startsWith("bench ")) {
      results = JSON.parse(text.slice("bench ".length));
    }
  });
  const ended = new Promise((done) => {
    void page.exposeFunction("codeAutomationExit", done);
  });
  const remote = (path) => `vscode-remote://${new URL(address).host}${path}`;
  const payload = JSON.stringify([
    ["extensionDevelopmentPath", remote(EXTENSION)],
    ["extensionTestsPath", remote(cases)],
  ]);
  await page.goto(`${address}/?${home.query}&payload=${encodeURIComponent(payload)}`);
  await within(ended, EDITOR_LIMIT, "the measurement");
  await context.close();
  const milliseconds = (value) => `${value.toFixed(1)} ms`;
  console.log(`loading the extension (median of ${ROUNDS})    ${milliseconds(results.extension)}`);
  console.log(`loading only the client (median of ${ROUNDS})  ${milliseconds(results.client)}`);
  console.log(`activating the loaded extension         ${milliseconds(results.activate)}`);
  console.log(`the extension without its client        ${milliseconds(results.extension - results.client + results.activate)}`);
} finally {
  await home.close();
}
