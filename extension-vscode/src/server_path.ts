// Finds the server binary: from the setting, else bundled with the extension, else on PATH.

import { access, constants, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";

export interface SearchLocations {
  /** The setting `ridgeline.server.path`. Empty if not set. */
  configured: string;
  /** The extension's install folder. */
  extension: string;
  /** The environment variable PATH. */
  path: string;
  /** The value of `process.platform`. */
  platform: NodeJS.Platform;
}

/** The server's location, or an error message for the user. */
export type ServerLocation = { command: string; from: "setting" | "extension" | "PATH" } | { problem: string };

/** Finds the server. An invalid setting is an error: falling back to another binary would be confusing. */
export async function findServer(places: SearchLocations): Promise<ServerLocation> {
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
    // A relative folder on PATH would resolve against the folder that the editor was started in.
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
