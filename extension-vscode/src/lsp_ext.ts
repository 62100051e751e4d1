// Ridgeline's LSP extensions, mirroring the server's `lsp/ext.rs`. `docs/protocol.md` describes them, and a test checks
// the commands and states here against that page.

import type { Range } from "vscode-languageclient/node";

/** The server's activity in a workspace folder. */
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

/** The run in progress. */
export interface RunStatus {
  /** `train.py was saved` */
  reason: string;
  stage: string | null;
  /** Progress, 0 to 1. */
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

/** Request with `{ textDocument }`: the most expensive statements of a document. */
export const HEAT = "ridgeline/heat";

export interface HeatStatement {
  range: Range;
  /** Share of the iteration time, 0 to 1. */
  share: number;
  provenance: "measured" | "estimated" | "stale";
}

/** Request without parameters: the names of the GPUs that the server can estimate for. */
export const GPUS = "ridgeline/gpus";

/** Notification: show the panel of a workspace folder. */
export const OPEN_PANEL = "ridgeline/openPanel";

export interface OpenPanel {
  /** The panel's URL on the server's machine. Contains a token: do not log it. */
  uri: string;
  /** URI of the folder. */
  root: string;
}

/** Notification: the user points at a line in the panel. Replaces the previous highlight. */
export const HIGHLIGHT = "ridgeline/highlight";

export interface Highlight {
  /** Null to clear the highlight. */
  uri: string | null;
  range?: Range;
}

/** Client capabilities beyond LSP, sent as `capabilities.experimental.ridgeline`. */
export const EXPERIMENTAL = { panel: true, highlight: true, diagnosticsInHover: true, hoverLinks: true, background: true };

/** The commands of `workspace/executeCommand`. The palette uses the same names. */
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

/** The optimizations that `ridgeline.applyWhatIf` and `ridgeline.measureWhatIf` support, with their labels. See docs/whatif.md. */
export const OPTIMIZATIONS: Record<string, string> = {
  "amp-bf16": "Use mixed precision (bf16 autocast)",
  "amp-fp16": "Use mixed precision (fp16 autocast with a gradient scaler)",
  tf32: "Use TF32 for float32 matrix multiplications",
  "fused-optimizer": "Use the fused optimizer (fused=True)",
  "foreach-optimizer": "Use the foreach optimizer (foreach=True)",
  "zero-grad-none": "Set gradients to None instead of zero",
  compile: "Compile the model (torch.compile)",
  "cuda-graphs": "Compile the model into CUDA graphs (reduce-overhead)",
  "channels-last": "Use channels_last memory format",
  recompute: "Recompute activations in the backward pass (checkpoint)",
  offload: "Offload saved activations to host memory (save_on_cpu)",
  "data-parallel": "Train on several GPUs (torchrun, DistributedDataParallel)",
  accumulate: "Synchronize gradients once per step (no_sync)",
  "gradient-compression": "Exchange gradients in bfloat16 (bf16_compress_hook)",
  "fused-attention": "Use fused attention (scaled_dot_product_attention)",
  "loader-workers": "Load data in worker processes (num_workers)",
  "pinned-memory": "Copy batches from pinned memory (pin_memory, non_blocking)",
  prefetch: "Copy the next batch while the GPU computes (CUDA stream)",
};

export type ServerCommand = (typeof SERVER_COMMANDS)[number];
