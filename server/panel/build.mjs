// Builds the page into a folder: `node build.mjs dist`. The same source gives the same bytes.

import { build } from "esbuild";
import { copyFile, mkdir, readFile, rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));

export async function buildInto(folder) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const common = { absWorkingDir: here, bundle: true, minify: true, legalComments: "none", charset: "utf8" };
  // VS Code 1.91, the oldest that the extension supports, shows webviews with Chromium 122.
  const target = ["chrome122", "firefox115", "safari16.4"];
  await build({ ...common, target, entryPoints: ["src/main.ts"], format: "iife", outfile: join(folder, "panel.js") });
  await build({ ...common, target, entryPoints: ["panel.css"], outfile: join(folder, "panel.css") });
  await copyFile(join(here, "index.html"), join(folder, "index.html"));
  await refuseMarkup(join(folder, "panel.js"));
}

// A report carries the script within its HTML, where these would end or hide it. esbuild writes them
// another way in strings; should one come through all the same, the build says so and not the report.
async function refuseMarkup(path) {
  const found = /<\/script|<script|<!--/i.exec(await readFile(path, "utf8"));
  if (found !== null) throw new Error(`${path} has ${found[0]} at ${found.index}, which cannot stand within HTML`);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await buildInto(resolve(process.argv[2] ?? join(here, "dist")));
}
