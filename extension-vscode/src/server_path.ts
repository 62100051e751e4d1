// Finds the server's binary: the setting, else PATH.

import { access, constants } from "node:fs/promises";
import { delimiter, join } from "node:path";

const BINARY = process.platform === "win32" ? "ridgeline.exe" : "ridgeline";

/** The binary's path, or undefined where there is none that can be run. */
export async function serverPath(configured: string | undefined): Promise<string | undefined> {
  if (configured !== undefined && configured !== "") {
    return (await isExecutable(configured)) ? configured : undefined;
  }
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const candidate = join(folder, BINARY);
    if (folder !== "" && (await isExecutable(candidate))) {
      return candidate;
    }
  }
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
