// Fails where dist/ is not what the source builds to, byte for byte: `npm run verify`.

import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { buildInto } from "./build.mjs";

const committed = join(dirname(fileURLToPath(import.meta.url)), "dist");
const fresh = await mkdtemp(join(tmpdir(), "ridgeline-panel-"));
try {
  await buildInto(fresh);
  const names = new Set([...(await readdir(fresh)), ...(await readdir(committed))]);
  const different = [];
  for (const name of names) {
    const [a, b] = await Promise.all([fresh, committed].map((folder) => readFile(join(folder, name)).catch(() => null)));
    if (a === null || b === null || !a.equals(b)) different.push(name);
  }
  if (different.length > 0) {
    console.error(`dist/ is not what the source builds to (${different.join(", ")}): run \`npm run build\` and commit dist/.`);
    process.exitCode = 1;
  }
} finally {
  await rm(fresh, { recursive: true, force: true });
}
