// Finds the server's binary: the setting, else the one that came with the extension, else PATH.

import { access, constants, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";

/** Where to look. */
export interface Places {
  /** `ridgeline.server.path`; empty where the person set none. */
  configured: string;
  /** The folder that the extension is installed in. */
  extension: string;
  /** The environment variable PATH. */
  path: string;
  /** As `process.platform` has it. */
  platform: NodeJS.Platform;
}

/** What was found, or why nothing was, for a person. */
export type Found = { command: string; from: "setting" | "extension" | "PATH" } | { problem: string };

/** A setting that names no program is an error: another binary than the wanted one would only confuse. */
export async function findServer(places: Places): Promise<Found> {
  const configured = places.configured.trim();
  if (configured !== "") {
    const command = configured.replace(/^~(?=[\\/])/, homedir());
    if (!isAbsolute(command)) {
      return { problem: `The setting ridgeline.server.path must be an absolute path, but is ${configured}.` };
    }
    return (await isProgram(command))
      ? { command, from: "setting" }
      : { problem: `The setting ridgeline.server.path is ${command}, which cannot be executed.` };
  }
  const name = places.platform === "win32" ? "ridgeline.exe" : "ridgeline";
  const bundled = join(places.extension, "server", name);
  if (await isProgram(bundled)) {
    return { command: bundled, from: "extension" };
  }
  for (const folder of places.path.split(delimiter)) {
    // A relative folder on PATH would be looked for in whatever folder the editor was started in.
    if (isAbsolute(folder) && (await isProgram(join(folder, name)))) {
      return { command: join(folder, name), from: "PATH" };
    }
  }
  return { problem: "The ridgeline program was not found in the extension or on PATH." };
}

async function isProgram(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}
