// Checks package.json against the pages of `docs/`. The server's tests check those pages against the server.

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { describe, expect, test } from "vitest";

import { OPTIMIZATIONS, SERVER_COMMANDS, STATES } from "../src/lsp_ext";

const ROOT = join(__dirname, "..");

interface Setting {
  type: string;
  default: unknown;
  minimum?: number;
  maximum?: number;
  scope?: string;
  markdownDescription: string;
}
interface Manifest {
  capabilities: { untrustedWorkspaces: { supported: unknown; restrictedConfigurations: string[] } };
  contributes: {
    configuration: { properties: Record<string, Setting> }[];
    commands: { command: string; category: string; title: string }[];
    colors: { id: string; defaults: Record<string, string> }[];
  };
}

const manifest = JSON.parse(read("package.json")) as Manifest;
const settings = Object.assign({}, ...manifest.contributes.configuration.map((group) => group.properties)) as Record<
  string,
  Setting
>;

/** Settings that only this client has. */
const CLIENT_SETTINGS = ["ridgeline.server.path", "ridgeline.heat.enable", "ridgeline.trace.server"];
/** Commands that only this client has. */
const CLIENT_COMMANDS = [
  "ridgeline.showActions",
  "ridgeline.restartServer",
  "ridgeline.showLog",
  "ridgeline.openSettings",
  "ridgeline.openWalkthrough",
];

function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}

/** Returns the cells of a page's table rows whose first cell is code. */
function rows(page: string): string[][] {
  const lines = page.split("\n").filter((line) => line.startsWith("| `"));
  return lines.map((line) => line.slice(1, -1).split("|").map((cell) => cell.trim()));
}

function code(cell: string | undefined): string {
  return (cell ?? "").replaceAll("`", "");
}

describe("settings", () => {
  const documented = rows(read("../docs/settings.md"));

  test("match the server's settings plus the client's", () => {
    const server = documented.map(([name]) => code(name));
    expect(server.length).toBeGreaterThan(0);
    expect(Object.keys(settings).sort()).toEqual([...server, ...CLIENT_SETTINGS].sort());
  });

  test.each(documented)("%s has the server's default and words", (name = "", standard = "", what = "") => {
    const setting = settings[code(name)];
    const value: unknown = JSON.parse(code(standard));
    // The settings editor cannot set null. The server treats empty text as null.
    expect(setting?.default).toEqual(value === null ? "" : value);
    expect(setting?.type).toBe(value === null ? "string" : typeof value);
    expect(setting?.markdownDescription).toBe(what);
    if (what.includes("(0 to 1)")) {
      expect([setting?.minimum, setting?.maximum]).toEqual([0, 1]);
    }
  });

  test("of the client are listed in the README", () => {
    const readme = rows(read("README.md"));
    for (const name of CLIENT_SETTINGS) {
      const [, standard, what] = readme.find(([cell]) => code(cell) === name) ?? [];
      expect(JSON.parse(code(standard) || "null"), name).toEqual(settings[name]?.default);
      expect(what, name).toBe(settings[name]?.markdownDescription);
    }
  });
});

/** Settings that only change what is shown. Every other setting can start a process, or choose which one. */
const HARMLESS =
  /^ridgeline\.(inlayHints\.|codeLens\.|hover\.|findings\.|diagnostics\.|heat\.|trace\.|prices$|batchSize\.memoryLimit$)/;

test("settings that can start programs are restricted in untrusted folders", () => {
  const { untrustedWorkspaces } = manifest.capabilities;
  const restricted = untrustedWorkspaces.restrictedConfigurations;
  // The extension does not start in such a folder at all. The list is a safeguard in case that is ever relaxed.
  expect(untrustedWorkspaces.supported).toBe(false);
  const dangerous = Object.keys(settings).filter((name) => !HARMLESS.test(name));
  expect([...restricted].sort()).toEqual(dangerous.sort());
  for (const name of ["runOnSave", "watchFiles", "live.enable", "interpreter", "server.path"]) {
    expect(dangerous).toContain(`ridgeline.${name}`);
  }
  // Which programs are started is a machine-level decision.
  expect(settings["ridgeline.server.path"]?.scope).toBe("machine");
  expect(settings["ridgeline.interpreter"]?.scope).toBe("machine-overridable");
});

describe("commands", () => {
  const page = read("../docs/protocol.md");
  const section = page.split("\n## ").find((part) => part.startsWith("Commands")) ?? "";

  test("of the server are all registered", () => {
    const documented = rows(section).map(([name]) => code(name));
    expect(documented.length).toBeGreaterThan(0);
    expect([...SERVER_COMMANDS]).toEqual(documented);
  });

  test("appear in the palette under Ridgeline", () => {
    const contributed = manifest.contributes.commands;
    expect(contributed.map(({ command }) => command).sort()).toEqual([...SERVER_COMMANDS, ...CLIENT_COMMANDS].sort());
    expect(contributed.filter(({ category }) => category !== "Ridgeline")).toEqual([]);
  });
});

test("states match the protocol", () => {
  const section = read("../docs/protocol.md").split("\n## ").find((part) => part.startsWith("States")) ?? "";
  expect([...STATES]).toEqual(rows(section).map(([name]) => code(name)));
});

test("colours have a default for every kind of theme", () => {
  for (const { id, defaults } of manifest.contributes.colors) {
    expect(Object.keys(defaults).sort(), id).toEqual(["dark", "highContrast", "highContrastLight", "light"]);
  }
});

describe("optimizations", () => {
  test("match the server's", () => {
    const page = read("../docs/whatif.md");
    const section = page.split("\n## ").find((one) => one.startsWith("Apply")) ?? "";
    const documented = rows(section).map(([name, what]) => [code(name), code(what)]);
    expect(Object.entries(OPTIMIZATIONS)).toEqual(documented);
  });
});
