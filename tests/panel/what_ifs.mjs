// Builds `what_ifs` as specified in docs/whatif.md.

const MS = 1e6;
const range = (value, factor) => ({ low: value / factor, value, high: value * factor });

const NOW = { time_ns: 102 * MS, peak_bytes: 3.1e9 };

/** Optimizations as `[name, title, source, speedup, factor of the range, peak in GB, lines, notes]`. */
const KNOWN = [
  ["data-parallel", "Data-parallel on 4 GPUs", "Li et al., VLDB 2020; Daydream 5.1", 3.4, 1.15, 3.3, [], ["with NVLink between the GPUs: 450 GB/s, which was not measured", "the gradients' exchange is hidden behind 87% of the backward pass"]],
  ["amp-bf16", "Mixed precision (bf16)", "Micikevicius et al., ICLR 2018; Daydream 5.1", 1.84, 1.09, 2.1, [[0, 88], [1, 57]], ["54 products were probed in bfloat16 on this GPU", "adds 112 casts of 0.9 ms altogether"]],
  ["compile", "torch.compile", "Ansel et al., ASPLOS 2024", 1.31, 1.13, 2.6, [[0, 88]], ["fuses 214 pointwise kernels into 37"]],
  ["fused-attention", "Fused attention", "Dao et al., NeurIPS 2022", 1.16, 1.06, 1.9, [[0, 24], [0, 28], [0, 30], [0, 31], [0, 33]], []],
  ["fused-optimizer", "Fused AdamW", "Apex FusedAdam; Daydream 5.1", 1.04, 1.02, 3.1, [[1, 61]], []],
  ["tf32", "TF32 products", "NVIDIA, “TF32”", 1.03, 1.02, 3.1, [[1, 4]], []],
  ["loader-workers", "4 loader workers", "PyTorch DataLoader", 1.02, 1.01, 3.1, [[2, 12]], []],
  ["recompute", "Recompute activations", "Echo, Zheng et al., ISCA 2020", 0.81, 1.05, 1.4, [[0, 52]], []],
  ["offload", "Offload activations", "vDNN, Rhu et al., MICRO 2016", 0.64, 1.2, 1.2, [], []],
];

export function whatIfs(more = {}) {
  const row = ([name, title, source, speedup, factor, peak, lines, notes]) => ({
    name,
    title,
    source,
    time_ns: range(name === "data-parallel" ? 120 * MS : NOW.time_ns / speedup, factor),
    speedup: range(speedup, factor),
    peak_bytes: range(peak * 1e9, 1.02),
    lines: lines.map(([file, line]) => ({ file, line })),
    notes,
    edit: { possible: true, why: null },
    measured: null,
  });
  const rows = KNOWN.map(row);
  const named = (name) => rows.find((one) => one.name === name);
  Object.assign(named("data-parallel"), { edit: { possible: false, why: "it takes a launcher, and more than one GPU" } });
  Object.assign(named("tf32"), { edit: { possible: false, why: "train.py:4 does it already" } });
  Object.assign(named("fused-optimizer"), { measured: { before_ns: 101.5 * MS, time_ns: 97.6 * MS, speedup: 1.04, peak_bytes: 3.1e9, when_unix_ms: 1789000000000 } });
  Object.assign(named("compile"), { measured: { before_ns: 102 * MS, time_ns: 90 * MS, speedup: 1.13, peak_bytes: 2.61e9, when_unix_ms: 1789000000000 } });
  const together = (names, title, speedup, peak) => ({ names, title, time_ns: range(NOW.time_ns / speedup, 1.15), speedup: range(speedup, 1.15), peak_bytes: range(peak * 1e9, 1.03) });
  return {
    replay_error: 0.004,
    message: null,
    before: { ...NOW },
    rows,
    combinations: [
      together(["compile", "amp-bf16"], "torch.compile, mixed precision (bf16)", 2.3, 1.8),
      together(["compile", "amp-bf16", "fused-optimizer"], "torch.compile, mixed precision (bf16), fused AdamW", 2.2, 1.8),
    ],
    refusals: [
      { name: "fp8", title: "FP8", why: "this GPU has no FP8" },
      { name: "channels-last", title: "Channels-last memory", why: "there is no convolution" },
      { name: "fp8-delayed", title: "FP8 with delayed scaling", why: "this GPU has no FP8" },
    ],
    recompute: [0, 1, 2, 3, 4, 5].map((dropped) => ({
      time_ns: (102 + dropped * 4.8) * MS,
      peak_bytes: 3.1e9 - dropped * 0.34e9,
      lines: [28, 41, 42, 24, 58].slice(0, dropped).map((line) => ({ file: 0, line })),
      is_an_edit: dropped < 5,
    })),
    accuracy: { pairs: 7, mean_error: 0.06, largest_error: 0.14 },
    measuring: null,
    notes: ["Two of 54 operators could not be probed: their ratios are those of the operators' costs"],
    ...more,
  };
}
