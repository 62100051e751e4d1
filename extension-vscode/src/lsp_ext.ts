// What Ridgeline adds to the protocol: the mirror of the server's `lsp/ext.rs`. `docs/protocol.md` describes it, and
// a test holds the commands and states here equal to that page.

import type { Range } from "vscode-languageclient/node";

/** What the server does in a workspace folder. */
export type State = "idle" | "waiting_for_trust" | "preparing" | "running" | "background" | "paused" | "failed";

export const STATES: readonly State[] = [
  "idle",
  "waiting_for_trust",
  "preparing",
  "running",
  "background",
  "paused",
  "failed",
];

/** The newest measurement. */
export interface Headline {
  /** `312 samples/s · 102 ms · peak 3.1 / 23.7 GB` */
  text: string;
  timeMs: number;
  samplesPerSecond: number | null;
  peakBytes: number;
  capacityBytes: number | null;
  device: string;
  isEstimate: boolean;
}

/** A run that goes on. */
export interface RunStatus {
  /** `train.py was saved` */
  reason: string;
  stage: string | null;
  /** 0 to 1 */
  share: number | null;
}

/** Notification: the status of one workspace folder. */
export const STATUS = "ridgeline/status";

export interface Status {
  /** URI of the folder. */
  root: string;
  state: State;
  message: string | null;
  run: RunStatus | null;
  headline: Headline | null;
}

/** Request with `{ textDocument }`: the statements of a document that cost most. */
export const HEAT = "ridgeline/heat";

export interface HeatStatement {
  range: Range;
  /** Of the iteration's time: 0 to 1. */
  share: number;
  provenance: "measured" | "estimated" | "stale";
}

/** Request without parameters: the names of the GPUs that can be estimated for. */
export const GPUS = "ridgeline/gpus";

/** Notification: the panel of a workspace folder is to be shown. */
export const OPEN_PANEL = "ridgeline/openPanel";

export interface OpenPanel {
  /** Its address on the server's machine. It holds a token, so it belongs into no log. */
  uri: string;
  /** URI of the folder. */
  root: string;
}

/** Notification: the person points at a line in the panel, in place of the one before. */
export const HIGHLIGHT = "ridgeline/highlight";

export interface Highlight {
  /** Null where they no longer point at any. */
  uri: string | null;
  range?: Range;
}

/** What this client can do beyond the protocol, announced as `capabilities.experimental.ridgeline`. */
export const EXPERIMENTAL = { panel: true, highlight: true, diagnosticsInHover: true, hoverLinks: true, background: true };

/** The commands of `workspace/executeCommand`, under the names that the palette has for them. */
export const SERVER_COMMANDS = [
  "ridgeline.profile",
  "ridgeline.stop",
  "ridgeline.pause",
  "ridgeline.resume",
  "ridgeline.clear",
  "ridgeline.showOutput",
  "ridgeline.showReport",
  "ridgeline.openPanel",
  "ridgeline.trust",
  "ridgeline.revokeTrust",
  "ridgeline.selectScript",
  "ridgeline.selectTargetGpu",
  "ridgeline.setBatchSize",
  "ridgeline.exploreBatchSize",
  "ridgeline.measureWhatIf",
  "ridgeline.applyWhatIf",
] as const;

/** What `ridgeline.applyWhatIf` can edit in and `ridgeline.measureWhatIf` can measure: names and what each does, as docs/whatif.md has them. */
export const OPTIMIZATIONS: Record<string, string> = {
  "amp-bf16": "Use mixed precision (bf16 autocast)",
  "amp-fp16": "Use mixed precision (fp16 autocast with a gradient scaler)",
  tf32: "Use TF32 for float32 matrix multiplications",
  "fused-optimizer": "Use the fused optimizer (fused=True)",
  "foreach-optimizer": "Use the foreach optimizer (foreach=True)",
  "zero-grad-none": "Set gradients to None instead of zero",
  compile: "Compile the model (torch.compile)",
  "channels-last": "Use channels_last memory format",
  recompute: "Recompute activations in the backward pass (checkpoint)",
  "loader-workers": "Load data in worker processes (num_workers)",
  "pinned-memory": "Copy batches from pinned memory (pin_memory, non_blocking)",
};

export type ServerCommand = (typeof SERVER_COMMANDS)[number];
