import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";

import { afterEach, beforeEach, expect, test } from "vitest";

import { findServer, type ServerLocation } from "../src/server_path";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "ridgeline-"));
});
afterEach(() => rm(folder, { recursive: true }));

async function program(path: string, mode = 0o755): Promise<string> {
  const file = join(folder, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, "");
  await chmod(file, mode);
  return file;
}

function find(configured: string, path: string, platform: NodeJS.Platform = "linux"): Promise<ServerLocation> {
  return findServer({ configured, extension: join(folder, "extension"), path, platform });
}

test("the setting takes precedence", async () => {
  const set = await program("set/anything");
  await program("extension/server/ridgeline");
  expect(await find(set, "")).toEqual({ command: set, from: "setting" });
});

test("an invalid setting is an error even if another binary exists", async () => {
  await program("extension/server/ridgeline");
  const text = await program("text", 0o644);
  for (const wrong of [join(folder, "none"), text, folder, "ridgeline", "./ridgeline"]) {
    expect(await find(wrong, ""), wrong).toHaveProperty("problem", expect.stringContaining("ridgeline.server.path"));
  }
});

test("the bundled binary takes precedence over PATH", async () => {
  const bundled = await program("extension/server/ridgeline");
  await program("bin/ridgeline");
  expect(await find("", join(folder, "bin"))).toEqual({ command: bundled, from: "extension" });
});

test("the first executable on PATH is used", async () => {
  await mkdir(join(folder, "a/ridgeline"), { recursive: true });
  await program("b/ridgeline", 0o644);
  const c = await program("c/ridgeline");
  const path = ["", ".", join(folder, "a"), join(folder, "b"), join(folder, "c")].join(delimiter);
  expect(await find("", path)).toEqual({ command: c, from: "PATH" });
});

test("on Windows the binary ends in .exe", async () => {
  const bundled = await program("extension/server/ridgeline.exe");
  expect(await find("", "", "win32")).toEqual({ command: bundled, from: "extension" });
});

test("a missing binary is reported", async () => {
  expect(await find("", join(folder, "none"))).toHaveProperty("problem", expect.stringContaining("PATH"));
});
