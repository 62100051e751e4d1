// The text of the status bar, and the actions behind it. Pure functions without the VS Code API.

import { isAbsolute, relative, sep } from "node:path";

import type { State, Status } from "./lsp_ext";

/** The state of the server process, independent of any folder. */
export type ServerState = "starting" | "ready" | "stopped" | "missing";

/** The contents of the status bar item. */
export interface Bar {
  text: string;
  /** Markdown. */
  tooltip: string;
  /** Text for screen readers. */
  label: string;
  emphasis: "none" | "warning" | "error";
}

/** An entry of the list of actions. */
export interface Action {
  label: string;
  command: string;
  /** A command to run after the first one. */
  then?: string;
}

/** Returns the status bar item for the server's state and the active folder's status. */
export function bar(server: ServerState, status: Status | undefined): Bar {
  if (server !== "ready") {
    return serverBar(server);
  }
  const headline = status?.headline?.text.split(" · ")[0];
  const percent = Math.floor((status?.run?.share ?? 0) * 100);
  // What a starting program is doing is for the tooltip: "starting the program: importing …".
  const stage = status?.run?.stage?.split(": ")[0] ?? "profiling";
  const shown: Record<State, [text: string, emphasis: Bar["emphasis"]]> = {
    idle: [headline === undefined ? "$(pulse) Ridgeline" : `$(pulse) ${headline}`, "none"],
    waiting_for_trust: ["$(question) Ridgeline: allow run?", "warning"],
    preparing: [`$(loading~spin) ${headline ?? "Ridgeline: preparing"}`, "none"],
    running: [`$(loading~spin) ${stage}${percent > 0 ? ` ${percent.toString()}%` : ""}`, "none"],
    background: [`$(loading~spin) ${headline ?? "Ridgeline: working"}`, "none"],
    paused: [`$(debug-pause) ${headline ?? "Ridgeline"}`, "none"],
    failed: ["$(error) Ridgeline: run failed", "none"],
  };
  const [text, emphasis] = shown[status?.state ?? "idle"];
  return { text, emphasis, tooltip: tooltip(status), label: label(text, status) };
}

function serverBar(server: Exclude<ServerState, "ready">): Bar {
  const shown = {
    starting: ["$(loading~spin) Ridgeline", "Server starting…", "none"],
    stopped: ["$(error) Ridgeline: stopped", "The server has stopped. Click to restart it; see the log for the cause.", "error"],
    missing: ["$(error) Ridgeline: no server", "The `ridgeline` program was not found. Click for help.", "error"],
  } as const;
  const [text, tooltip, emphasis] = shown[server];
  return { text, tooltip: `**Ridgeline**\n\n${tooltip}`, label: `${spoken(text)}. ${tooltip}`, emphasis };
}

const STATE_SENTENCES: Record<State, string> = {
  idle: "Idle. Save to re-profile.",
  waiting_for_trust: "Waiting for your permission to run.",
  preparing: "Importing the project's packages, so the next run starts faster.",
  running: "Profiling.",
  background: "Working in the background.",
  paused: "Profiling on save is paused.",
  failed: "The last run failed.",
};

function tooltip(status: Status | undefined): string {
  const parts = ["**Ridgeline**"];
  if (status === undefined) {
    parts.push("No measurements yet. Save a Python file of a training project to profile it.");
    return parts.join("\n\n");
  }
  if (status.headline !== null) {
    parts.push(`${escaped(status.headline.text)}  \non ${escaped(status.headline.device)}`);
  }
  const { run, state } = status;
  const sentence = STATE_SENTENCES[state];
  if (state === "running" && run !== null) {
    const stage = run.stage === null ? "" : `: ${escaped(run.stage)}`;
    parts.push(`Profiling (${escaped(run.reason)})${stage}`);
  } else if (status.message === null || state === "waiting_for_trust") {
    // While waiting for trust, the message only repeats this sentence.
    parts.push(sentence);
  } else {
    parts.push(`${sentence}  \n${escaped(status.message)}`);
  }
  parts.push("_Click for actions._");
  return parts.join("\n\n");
}

function label(text: string, status: Status | undefined): string {
  const message = status?.state === "failed" ? status.message : status?.headline?.text;
  return message === null || message === undefined ? spoken(text) : `${spoken(text)}. ${message}`;
}

/** Returns status bar text without its icons. */
function spoken(text: string): string {
  const words = text.replaceAll(/\$\([^)]*\)\s*/g, "");
  return words.startsWith("Ridgeline") ? words : `Ridgeline: ${words}`;
}

/** Escapes Markdown and icon syntax. Messages contain program output and file names. */
function escaped(text: string): string {
  return text.replaceAll(/[\\`*_{}[\]()#+\-.!|<>$~]/g, String.raw`\$&`).replaceAll("\n", "  \n");
}

/** Returns the actions to offer, most likely first. All others are in the palette. */
export function actions(server: ServerState, status: Status | undefined): Action[] {
  const help = { label: "$(book) How to install the server", command: "ridgeline.openWalkthrough" };
  const log = { label: "$(output) Show log", command: "ridgeline.showLog" };
  const restart = { label: "$(refresh) Restart server", command: "ridgeline.restartServer" };
  const settings = { label: "$(gear) Settings", command: "ridgeline.openSettings" };
  if (server === "missing") {
    return [help, settings, restart];
  }
  if (server !== "ready") {
    return [restart, log, settings];
  }
  const profile = { label: "$(play) Profile now", command: "ridgeline.profile" };
  const stop = { label: "$(debug-stop) Stop run", command: "ridgeline.stop" };
  const panel = { label: "$(graph) Open panel", command: "ridgeline.openPanel" };
  const output = { label: "$(terminal) Show program output", command: "ridgeline.showOutput" };
  const pause = { label: "$(debug-pause) Pause profiling on save", command: "ridgeline.pause" };
  const resume = { label: "$(debug-continue) Resume profiling on save", command: "ridgeline.resume" };
  const allow = { label: "$(check) Trust this workspace", command: "ridgeline.trust" };
  // The question may have been closed or moved to the list of notifications. After both commands it is visible again.
  const question = {
    label: "$(question) Answer the question",
    command: "ridgeline.profile",
    then: "notifications.showList",
  };
  const script = { label: "$(list-selection) Select training script", command: "ridgeline.selectScript" };
  const always = [settings, log];
  switch (status?.state) {
    case "running":
    case "background":
      return [stop, panel, output, pause, ...always];
    case "waiting_for_trust":
      return [question, allow, panel, ...always];
    case "paused":
      return [resume, profile, panel, output, script, ...always];
    case "failed":
      return [output, profile, script, panel, pause, ...always];
    case "preparing":
    case "idle":
    case undefined:
      return [profile, panel, output, script, pause, ...always];
  }
}

/**
 * Returns the status of the innermost folder that contains the file. Without a file, or if no folder contains it,
 * returns the status of a folder with a run in progress, else the newest. Roots and the file are paths.
 */
export function statusOf(statuses: ReadonlyMap<string, Status>, file: string | undefined): Status | undefined {
  const containing = [...statuses.keys()].filter((root) => file !== undefined && isInside(file, root));
  const innermost = containing.sort((a, b) => b.length - a.length)[0];
  if (innermost !== undefined) {
    return statuses.get(innermost);
  }
  const all = [...statuses.values()];
  return all.find((status) => status.state === "running") ?? all.at(-1);
}

function isInside(file: string, root: string): boolean {
  const path = relative(root, file);
  return path !== ".." && !path.startsWith(`..${sep}`) && !isAbsolute(path);
}
