// Starts VS Code's own server with a new home folder, and a Chromium that opens it. Requests of either to other
// machines are blocked and reported.

import { spawn, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, delimiter, join, resolve } from "node:path";

import { proxyBelow } from "./proxy.mjs";

const HERE = import.meta.dirname;
export const ROOT = resolve(HERE, "../../..");
export const EXTENSION = join(ROOT, "extension-vscode");
export const PROJECTS = resolve(HERE, "../projects");

/** Timeout of steps that include a run of the training script, in milliseconds. */
export const RUN_LIMIT = 180_000;
/** Timeout of steps that only involve the editor, in milliseconds. */
export const EDITOR_LIMIT = 60_000;

function required(name) {
  const value = process.env[name];
  if (!value) {
    throw new Error(`${name} is not set`);
  }
  return value;
}

/** The folder that `tests/editors/setup` filled. */
const editors = required("RIDGELINE_EDITORS");
/** The server under test, and a Python with torch. */
export const ridgeline = required("RIDGELINE_BINARY");
export const python = required("RIDGELINE_TEST_PYTHON");
/** The folder for screenshots. */
export const pictures = process.env.RIDGELINE_EDITOR_PICTURES ?? join(ROOT, "target/editors");

const NODE = join(editors, "node/bin/node");
const VSCODE = join(editors, "code-server/lib/vscode/out/server-main.js");
const CODE_SERVER = join(editors, "code-server/out/node/entry.js");

/** Settings that disable animations, prompts and telemetry. */
const SETTINGS = {
  "workbench.startupEditor": "none",
  "workbench.tips.enabled": false,
  "workbench.reduceMotion": "on",
  "workbench.colorTheme": "Dark Modern",
  "workbench.secondarySideBar.defaultVisibility": "hidden",
  "chat.disableAIFeatures": true,
  "chat.commandCenter.enabled": false,
  "telemetry.telemetryLevel": "off",
  "extensions.autoUpdate": false,
  "extensions.autoCheckUpdates": false,
  "extensions.ignoreRecommendations": true,
  "update.mode": "none",
  "git.enabled": false,
  "files.autoSave": "off",
  "editor.minimap.enabled": false,
  // No automatic completion of typed text.
  "editor.autoClosingBrackets": "never",
  "editor.autoClosingQuotes": "never",
  "editor.quickSuggestions": { "other": "off", "comments": "off", "strings": "off" },
};

/**
 * Bundles the extension, after installing its packages. The finished bundle is moved into place, because another driver
 * may be copying the folder at the same time.
 */
export function buildExtension() {
  if (!existsSync(join(EXTENSION, "node_modules"))) {
    run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], EXTENSION);
  }
  // Not in `dist`, where it could be copied before it is complete.
  const bundle = join(EXTENSION, `node_modules/.bundle-${process.pid}.js`);
  mkdirSync(join(EXTENSION, "dist"), { recursive: true });
  run("npm", ["run", "--silent", "build", "--", `--outfile=${bundle}`], EXTENSION);
  renameSync(bundle, join(EXTENSION, "dist/main.js"));
}

/** Runs a program to completion. On failure, throws an error with its output. */
export function run(program, arguments_, folder, environment = process.env) {
  const { status, stdout, stderr, error } = spawnSync(program, arguments_, {
    cwd: folder,
    env: environment,
    encoding: "utf8",
    timeout: EDITOR_LIMIT * 5,
  });
  if (error || status !== 0) {
    throw new Error(`${basename(program)} ${arguments_.join(" ")}: ${error ?? `${stdout}${stderr}`}`);
  }
  return stdout;
}

/**
 * The home folder of an editor: its data, its extensions and a copy of a project, in a temporary folder. `extensions`
 * are unpacked extensions to install; `vsix` is one to install as a user would.
 */
export class Home {
  constructor({ project, folders = 1, settings = {}, extensions = [], vsix }) {
    this.folder = mkdtempSync(join(tmpdir(), "ridgeline-code-"));
    this.project = join(this.folder, basename(project));
    this.data = join(this.folder, "data");
    this.extensions = join(this.folder, "extensions");
    cpSync(resolve(PROJECTS, project), this.project, { recursive: true });
    // What the window opens: the project, or a workspace with the project and a second copy.
    this.query = `folder=${encodeURIComponent(this.project)}`;
    if (folders === 2) {
      cpSync(this.project, join(this.folder, "second"), { recursive: true });
      const workspace = join(this.folder, "both.code-workspace");
      writeFileSync(workspace, JSON.stringify({ folders: [{ path: basename(project) }, { path: "second" }] }));
      this.query = `workspace=${encodeURIComponent(workspace)}`;
    }
    const text = JSON.stringify({ ...SETTINGS, ...settings });
    for (const kind of ["User", "Machine"]) {
      mkdirSync(join(this.data, kind), { recursive: true });
      writeFileSync(join(this.data, kind, "settings.json"), text);
    }
    mkdirSync(join(this.folder, "home"));
    // The interpreter that the stand-in for the Python extension reports.
    writeFileSync(join(this.folder, "interpreter"), python);
    mkdirSync(this.extensions);
    for (const extension of extensions) {
      const { publisher, name, version } = JSON.parse(readFileSync(join(extension, "package.json"), "utf8"));
      const filter = (source) => basename(source) !== "node_modules";
      cpSync(extension, join(this.extensions, `${publisher}.${name}-${version}`), { recursive: true, filter });
    }
    if (vsix) {
      run(NODE, [VSCODE, ...this.#places(), "--install-extension", vsix], this.folder, this.environment());
    }
  }

  #places() {
    return ["--server-data-dir", this.folder, "--user-data-dir", this.data, "--extensions-dir", this.extensions];
  }

  /** Returns an environment without that of the user who runs the tests: no home, no Python on PATH. */
  environment() {
    const path = ["/usr/bin", "/bin"].join(delimiter);
    return {
      HOME: join(this.folder, "home"),
      PATH: path,
      LANG: "C.UTF-8",
      EXTENSIONS_GALLERY: "{}",
      RIDGELINE_CACHE_DIR: join(this.folder, "cache"),
      RIDGELINE_STATE_DIR: join(this.folder, "state"),
      ...(process.env.RIDGELINE_LOG && { RIDGELINE_LOG: process.env.RIDGELINE_LOG }),
      // Threads of OpenMP that spin would slow down each other when tests run side by side.
      ...(process.env.GOMP_SPINCOUNT && { GOMP_SPINCOUNT: process.env.GOMP_SPINCOUNT }),
    };
  }

  /**
   * Starts the editor's server. Returns its URL. With `automated`, it reports the results of tests in the extension
   * host, but shows no notifications.
   */
  async start({ trusted = true, automated = false } = {}) {
    const flags = ["--host", "127.0.0.1", "--port", "0", "--without-connection-token", "--telemetry-level", "off"];
    if (trusted) {
      flags.push("--disable-workspace-trust");
    }
    if (automated) {
      flags.push("--enable-smoke-test-driver");
    }
    return this.#serve([VSCODE, ...this.#places(), ...flags, "--accept-server-license-terms"], /Web UI available at (\S+?)\/?\s/);
  }

  /**
   * Starts code-server behind a proxy that serves it below a path, like JupyterHub. Returns the URL behind the proxy.
   */
  async startBehindProxy(path) {
    const flags = ["--bind-addr", "127.0.0.1:0", "--auth", "none", "--disable-telemetry", "--disable-update-check"];
    const places = ["--config", join(this.folder, "config.yaml"), "--user-data-dir", this.data, "--extensions-dir", this.extensions];
    writeFileSync(join(this.folder, "config.yaml"), "");
    const served = await this.#serve([CODE_SERVER, ...flags, ...places, "--disable-workspace-trust"], /listening on (\S+?)\/?\s/);
    this.proxy = await proxyBelow(path, served);
    return `http://127.0.0.1:${this.proxy.address().port}${path}`;
  }

  async #serve(command, listening) {
    // A separate process group, so that all its processes can be killed together.
    const child = spawn(NODE, command, { cwd: this.folder, env: this.environment(), detached: true, stdio: ["ignore", "pipe", "pipe"] });
    this.child = child;
    this.output = "";
    const address = new Promise((found, failed) => {
      const listen = (chunk) => {
        this.output += chunk;
        const match = listening.exec(this.output);
        if (match) {
          found(match[1].replace("localhost", "127.0.0.1"));
        }
      };
      child.stdout.setEncoding("utf8").on("data", listen);
      child.stderr.setEncoding("utf8").on("data", listen);
      child.on("exit", (code) => failed(new Error(`VS Code's server exited with ${code}:\n${this.output}`)));
    });
    this.address = await within(address, EDITOR_LIMIT, "VS Code's server to start");
    return this.address;
  }

  /** Stops all processes and removes the folder. */
  async close() {
    this.proxy?.closeAllConnections();
    this.proxy?.close();
    if (this.child && this.child.exitCode === null) {
      const gone = new Promise((done) => this.child.once("exit", done));
      kill(this.child.pid, "SIGTERM");
      await Promise.race([gone, new Promise((done) => setTimeout(done, 5000))]);
    }
    if (this.child) {
      kill(this.child.pid, "SIGKILL");
    }
    // Processes that are shutting down may still write there.
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/** Returns all processes started in a home, including reparented ones. Their environment contains the home's path. */
export function processes(home) {
  const mark = `HOME=${join(home.folder, "home")}`;
  const found = [];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      if (readFileSync(`/proc/${pid}/environ`, "utf8").split("\0").includes(mark)) {
        found.push({ pid, line: readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim() });
      }
    } catch {
      // The process has just exited, or belongs to another user.
    }
  }
  return found;
}

/** Ends a process group, which may already be gone. */
function kill(group, signal) {
  try {
    process.kill(-group, signal);
  } catch (error) {
    if (error.code !== "ESRCH") {
      throw error;
    }
  }
}

/** Waits for a promise. The timeout error says what it waited for. */
export async function within(promise, limit, what) {
  let timer;
  const late = new Promise((_, failed) => {
    timer = setTimeout(() => failed(new Error(`timed out after ${limit / 1000} s waiting for ${what}`)), limit);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Opens Chromium with one page. `outside` lists all its requests to other machines. */
export async function openBrowser(home, viewport = { width: 1280, height: 860 }) {
  const { chromium } = createRequire(join(editors, "playwright/package.json"))("playwright-core");
  const context = await chromium.launchPersistentContext(join(home.folder, "chromium"), {
    executablePath: join(editors, "tools/chromium"),
    headless: true,
    viewport,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    ],
  });
  const outside = [];
  context.on("request", (request) => {
    const { protocol, hostname } = new URL(request.url());
    // VS Code's own service worker answers these, from files of its installation.
    const isResource = hostname.endsWith(".vscode-resource.vscode-cdn.net");
    if (/^(https?|wss?):$/.test(protocol) && !["127.0.0.1", "localhost"].includes(hostname) && !isResource) {
      outside.push(request.url());
    }
  });
  return { context, page: context.pages()[0] ?? (await context.newPage()), outside };
}
