// Generates documents as specified in docs/panel.md, of any size and deterministic, for the page's tests and
// benchmark. Documents of real recordings are in server/panel/fixtures/.

const MS = 1e6;
const PHASES = ["data", "forward", "backward", "optimizer", "other"];

/** Returns a deterministic generator of pseudo-random numbers between 0 and 1. */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** The roofline of an H200, with GEMMs near the compute ceiling and element-wise operators near the bandwidth. */
function roofline() {
  const TFLOP = 1e12;
  const bandwidth = 4.8 * TFLOP;
  const peaks = [{ name: "FP32", flops_per_second: 67 * TFLOP }, { name: "FP16", flops_per_second: 989 * TFLOP }];
  const point = (name, inputs, kernel, line, phase, time, intensity, share, peak) => {
    const ceiling = Math.min(peaks.find((one) => one.name === peak).flops_per_second, intensity * bandwidth);
    const flops = share * ceiling * (time / 1e9);
    return {
      name, inputs, kernel, place: { file: 0, line }, phase, time_ns: time, flops, bytes: flops / intensity, peak,
      bound: intensity * bandwidth < ceiling * 1.001 ? "memory" : "compute",
      share_of_roof: share,
    };
  };
  const half = "[32, 1024, 1024] c10::BFloat16";
  const points = [
    point("AddmmBackward0", half, "sm90_xmma_gemm_bf16", 41, "backward", 18 * MS, 420, 0.61, "FP16"),
    point("AddmmBackward0", half, "sm90_xmma_gemm_bf16", 24, "backward", 14 * MS, 380, 0.55, "FP16"),
    point("aten::addmm", half, "sm90_xmma_gemm_bf16", 41, "forward", 9 * MS, 420, 0.66, "FP16"),
    point("aten::addmm", half, "sm90_xmma_gemm_bf16", 24, "forward", 7 * MS, 380, 0.6, "FP16"),
    point("aten::scaled_dot_product_attention", half, "flash_fwd_kernel", 28, "forward", 6 * MS, 130, 0.42, "FP16"),
    point("aten::gelu", half, "vectorized_elementwise_kernel", 42, "forward", 3 * MS, 2.1, 0.83, "FP32"),
    point("GeluBackward0", half, "vectorized_elementwise_kernel", 42, "backward", 4 * MS, 3.2, 0.8, "FP32"),
    point("aten::native_layer_norm", half, "layer_norm_kernel", 53, "forward", 1.5 * MS, 1.4, 0.55, "FP32"),
    point("aten::add", half, "vectorized_elementwise_kernel", 58, "forward", 1.2 * MS, 0.17, 0.88, "FP32"),
    point("aten::_foreach_add_", "[1024, 1024] float", "multi_tensor_apply_kernel", 61, "optimizer", 2.5 * MS, 0.12, 0.71, "FP32"),
    point("aten::cross_entropy_loss", "[32768, 50257] float", "softmax_kernel", 92, "forward", 2 * MS, 0.9, 0.35, "FP32"),
  ].sort((a, b) => b.time_ns - a.time_ns);
  return { rates_from: "datasheet", bandwidth, peaks, points, left_out: 0, without_flops_ns: 1.1 * MS, unknown_ns: 0.4 * MS };
}

/**
 * The largest tensors: weights and optimizer state from before, and the activations of each layer, which the backward
 * pass frees in reverse.
 */
function memoryTensors(curve, duration, layers) {
  const tensor = (name, bytes, kind, from, to) => ({
    bytes: Math.round(bytes),
    kind,
    allocated_ns: from === null ? null : Math.round(from * duration),
    freed_ns: to === null ? null : Math.round(to * duration),
    name,
    place: { file: name.startsWith("train") ? 1 : 0, line: Number(name.split(":")[1]) },
  });
  const found = [tensor("model.py:77", 0.4e9, "weights", null, null), tensor("train.py:61", 0.7e9, "optimizer state", null, null)];
  const spare = Math.min(...curve.map(([, bytes]) => bytes)) - 1.1e9;
  found.push(tensor("model.py:78", 0.9 * spare, "weights", null, null));
  const free = (at) => curve.findLast(([time]) => time <= at * duration)[1] - 1.1e9 - spare;
  for (let layer = 0; layer < layers; layer += 1) {
    const [from, to] = [0.05 + (0.35 * layer) / layers, 0.9 - (0.45 * layer) / layers];
    const room = Math.max(0, Math.min(free(from + 0.01), free(to - 0.01))) / layers;
    found.push(tensor("model.py:28", 0.5 * room, "activations", from, to), tensor("model.py:41", 0.35 * room, "activations", from, to));
  }
  return found;
}

/** A transformer with `layers` blocks; about 16 nodes each. */
export function panelDocument({ layers = 12, generation = 7, kernels = 24, runs = 14, device = "NVIDIA H200" } = {}) {
  const random = generator(11);
  const when = (run) => 1789000000000 + generation * 1000 - run * 1000 * 60 * 7 * (run + 1);
  const files = [{ path: "model.py" }, { path: "train.py" }, { path: "data/loader.py" }];
  const modules = [];
  const add = (nodes, name, detail, parent, time, memory, phases, calls, place) => {
    nodes.push({
      name,
      detail,
      parent,
      time_ns: time,
      memory_bytes: Math.round(memory),
      phases: phases.map((share) => share * time),
      calls,
      place,
    });
    return nodes.length - 1;
  };
  const both = [0, 0.36, 0.6, 0.04, 0];
  const duration = 102 * MS;
  const root = add(modules, "GPT", "GPT", -1, 88 * MS, 2.5e9, both, 5, { file: 0, line: 88 });
  add(modules, "embedding", "Embedding", root, 4 * MS, 2e8, [0, 0.3, 0.5, 0.2, 0], 5, { file: 0, line: 70 });
  const blocks = add(modules, "blocks", "ModuleList", root, 70 * MS, 2e9, both, null, { file: 0, line: 74 });
  for (let layer = 0; layer < layers; layer += 1) {
    const time = (70 * MS * (0.85 + 0.3 * random())) / layers / 1.02;
    const block = add(modules, `blocks.${layer}`, "Block", blocks, time, 2e9 / layers, both, 5, { file: 0, line: 52 });
    const parts = [
      ["norm1", "LayerNorm", 0.04, 53],
      ["attention", "CausalSelfAttention", 0.46, 54],
      ["norm2", "LayerNorm", 0.04, 55],
      ["mlp", "MLP", 0.42, 56],
    ];
    for (const [name, detail, share, line] of parts) {
      const part = add(modules, name, detail, block, time * share, (2e9 / layers) * share, both, 5, { file: 0, line });
      const inside =
        name === "attention"
          ? [["qkv", "Linear", 0.35, 24], ["dropout", "Dropout", 0.03, 30], ["projection", "Linear", 0.2, 33]]
          : name === "mlp"
            ? [["expand", "Linear", 0.4, 41], ["gelu", "GELU", 0.12, 42], ["contract", "Linear", 0.4, 43]]
            : [];
      for (const [child, of, within, at] of inside) {
        add(modules, child, of, part, time * share * within, ((2e9 / layers) * share) * within, both, 5, { file: 0, line: at });
      }
    }
  }
  add(modules, "norm", "LayerNorm", root, 1.2 * MS, 3e7, both, 5, { file: 0, line: 76 });
  add(modules, "head", "Linear", root, 10 * MS, 3e8, both, 5, { file: 0, line: 77 });
  add(modules, "loader", "DataLoader", -1, 6 * MS, 4e6, [1, 0, 0, 0, 0], 5, { file: 2, line: 12 });
  add(modules, "AdamW", "optimizer", -1, 5 * MS, 6e8, [0, 0, 0, 1, 0], 5, { file: 1, line: 61 });

  const lines = [];
  const model = add(lines, "model.py", "", -1, 74 * MS, 2.3e9, both, null, null);
  const functions = [
    ["CausalSelfAttention.forward", 34 * MS, [["q, k, v = self.qkv(x).split(…)", 24, 0.4], ["y = F.scaled_dot_product_attention(…)", 28, 0.45], ["return self.projection(y)", 33, 0.15]]],
    ["MLP.forward", 28 * MS, [["x = self.expand(x)", 41, 0.42], ["x = self.gelu(x)", 42, 0.12], ["return self.contract(x)", 43, 0.46]]],
    ["Block.forward", 6 * MS, [["x = x + self.attention(self.norm1(x))", 58, 0.5], ["x = x + self.mlp(self.norm2(x))", 59, 0.5]]],
    ["GPT.forward", 6 * MS, [["logits = self.head(self.norm(x))", 92, 0.8], ["x = self.embedding(tokens)", 90, 0.2]]],
  ];
  for (const [name, time, of] of functions) {
    const at = add(lines, name, "", model, time, (2.3e9 * time) / (74 * MS), both, null, null);
    for (const [text, line, share] of of) {
      add(lines, `${line}`, text, at, time * share, ((2.3e9 * time) / (74 * MS)) * share, both, 5 * layers, { file: 0, line });
    }
  }
  const train = add(lines, "train.py", "", -1, 22 * MS, 6e8, [0.1, 0.1, 0.4, 0.4, 0], null, null);
  const step = add(lines, "train_step", "", train, 22 * MS, 6e8, [0.1, 0.1, 0.4, 0.4, 0], 5, null);
  const loss = add(lines, "58", "loss = F.cross_entropy(logits, targets)", step, 6 * MS, 3e8, both, 5, { file: 1, line: 58 });
  lines[loss].parts = [
    { kind: "expression", name: "F.cross_entropy(…)", time_ns: 4.5 * MS, place: { file: 1, line: 58 } },
    { kind: "expression", name: "logits / 2", time_ns: 1.5 * MS, place: { file: 1, line: 58 } },
    { kind: "caller", name: "train.py:80", time_ns: 4 * MS, place: { file: 1, line: 80 } },
    { kind: "caller", name: "train.py:83", time_ns: 2 * MS, place: { file: 1, line: 83 } },
  ];
  add(lines, "60", "loss.backward()", step, 9 * MS, 0, [0, 0, 1, 0, 0], 5, { file: 1, line: 60 });
  add(lines, "61", "optimizer.step()", step, 5 * MS, 3e8, [0, 0, 0, 1, 0], 5, { file: 1, line: 61 });
  add(lines, "55", "tokens, targets = next(batches)", step, 2 * MS, 4e6, [1, 0, 0, 0, 0], 5, { file: 1, line: 55 });

  const phases = [];
  const shares = [0.06, 0.34, 0.52, 0.06, 0.02];
  PHASES.forEach((phase, which) => {
    const only = PHASES.map((_, at) => (at === which ? 1 : 0));
    const top = add(phases, phase, "", -1, duration * shares[which], 0, only, null, null);
    for (const [name, time, of] of functions) {
      if (which !== 1 && which !== 2) continue;
      const at = add(phases, name, "model.py", top, (time * shares[which]) / 0.9, 0, only, null, null);
      for (const [text, line, share] of of) add(phases, `${line}`, text, at, (time * share * shares[which]) / 0.9, 0, only, 5, { file: 0, line });
    }
  });

  const curve = [];
  let size = 2.1e9;
  for (let at = 0; at <= 400; at += 1) {
    const share = at / 400;
    size = 2.1e9 + (share < 0.42 ? share / 0.42 : Math.max(0, (0.95 - share) / 0.53)) * 1e9 + (random() - 0.5) * 3e7;
    curve.push([Math.round(share * duration), Math.round(size)]);
  }
  const peak = Math.max(...curve.map(([, bytes]) => bytes));
  const [peakAt] = curve.find(([, bytes]) => bytes === peak);

  return {
    schema: 1,
    generation,
    project: "gpt",
    can_jump: true,
    can_highlight: true,
    status: { state: "idle", message: null, run: null },
    recording: {
      when_unix_ms: when(0),
      device: { name: device, kind: "cuda" },
      torch: "2.11.0",
      batch_size: 32,
      timed_iterations: 5,
      duration_ns: duration,
      headline: [
        { key: "throughput", label: "throughput", text: "312 samples/s", value: 312.4, better: "higher", since_last: { text: "+4.1%", ratio: 1.041, verdict: "better" }, since_head: { text: "+12%", ratio: 1.12, verdict: "better" } },
        { key: "time", label: "iteration", text: "102 ms", value: 102e6, better: "lower", since_last: { text: "−3.9%", ratio: 0.961, verdict: "better" }, since_head: { text: "−11%", ratio: 0.89, verdict: "better" } },
        { key: "memory", label: "peak memory", text: "3.1 GB", value: 3.1e9, better: "lower", since_last: { text: "+220 MB", ratio: 1.07, verdict: "worse" }, since_head: { text: "+0.1%", ratio: 1.001, verdict: "same" } },
        { key: "gpu_busy", label: "GPU busy", text: "81%", value: 0.81, better: "higher", since_last: { text: "+22%", ratio: 1.22, verdict: "same_code" }, since_head: null },
        { key: "coverage", label: "attributed to your lines", text: "98%", value: 0.98, better: "higher", since_last: null, since_head: null },
      ],
      changes_against: { last: "the run 3 minutes earlier", head: "a1b2c3d", head_unix_ms: when(5) },
      breakdowns: [
        { key: "module", label: "module", nodes: modules },
        { key: "line", label: "line", nodes: lines },
        { key: "phase", label: "phase", nodes: phases },
      ],
      memory: {
        peak_bytes: peak,
        capacity_bytes: 23.7e9,
        peak_at_ns: peakAt,
        curve,
        at_peak: [
          { kind: "activations", bytes: Math.round(peak * 0.46) },
          { kind: "optimizer state", bytes: Math.round(peak * 0.22) },
          { kind: "weights", bytes: Math.round(peak * 0.13) },
          { kind: "gradients", bytes: Math.round(peak * 0.12) },
          { kind: "temporaries", bytes: Math.round(peak * 0.05) },
          { kind: "batch", bytes: Math.round(peak * 0.01) },
          { kind: "other", bytes: Math.round(peak * 0.01) },
        ],
        holders: [
          ["model.py:28", "CausalSelfAttention.forward", 0.19, "activations", 28],
          ["model.py:41", "MLP.forward", 0.14, "activations", 41],
          ["model.py:24", "CausalSelfAttention.forward", 0.09, "activations", 24],
          ["train.py:61", "train_step", 0.22, "optimizer state", 61],
          ["model.py:77", "GPT.__init__", 0.06, "weights", 77],
          ["model.py:42", "MLP.forward", 0.04, "activations", 42],
        ]
          .map(([name, detail, share, kind, line]) => ({ name, detail, bytes: Math.round(peak * share), kind, place: { file: name.startsWith("train") ? 1 : 0, line } }))
          .sort((a, b) => b.bytes - a.bytes),
        tensors: memoryTensors(curve, duration, layers),
        explanation:
          "The peak comes 43 ms into the iteration, at the end of the forward pass. Activations that the backward pass still needs are 46% of it; the largest part of them is made at model.py:28.",
      },
      kernels: Array.from({ length: kernels }, (_, at) => ({
        name:
          at % 3 === 0
            ? `sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize${at}`
            : at % 3 === 1
              ? `void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda()#${at}}>`
              : `flash_fwd_splitkv_kernel<${at}>`,
        calls: 60 - at,
        time_ns: (9 * MS) / (at + 1),
        occupancy: at % 4 === 3 ? null : 0.15 + 0.8 * random(),
      })),
      roofline: roofline(),
      untracked: [
        { name: "Python outside the project", time_ns: 0.9 * MS },
        { name: "kernels that were launched before the recording began", time_ns: 0.3 * MS },
      ],
      files,
      notes: ["The loader ran in worker processes: what they did is not in the recording.", "Two iterations were left out: another program used the GPU."],
    },
    history: Array.from({ length: runs }, (_, at) => {
      const time = 102 * MS * (1 + at * 0.012 + 0.06 * (random() - 0.5));
      return {
        when_unix_ms: when(at),
        time_ns: at === 0 ? 102 * MS : time,
        samples_per_second: (32 / time) * 1e9,
        peak_bytes: Math.round(3.1e9 + 2e8 * (random() - 0.5)),
        batch_size: 32,
        device,
        commit: at < 5 ? "a1b2c3d" : "9f8e7d6",
        clean: at > 8,
        generation: at < 3 ? generation - at : null,
      };
    }),
    predictions: null,
    what_ifs: null,
    findings: null,
  };
}

/** Returns a timeline of about `spans` spans: a host thread with nested spans, two streams, phases and idle time. */
export function timelineDocument({ spans = 2_000, generation = 7 } = {}) {
  const random = generator(5);
  const duration = 110 * MS;
  const names = ["forward", "backward", "optimizer", "data", "GPT.forward", "Block.forward"];
  const operators = ["aten::linear", "aten::addmm", "aten::native_layer_norm", "aten::gelu", "aten::scaled_dot_product_attention", "aten::copy_", "aten::mul", "aten::add"];
  const firstOperator = names.length;
  names.push(...operators);
  const firstKernel = names.length;
  names.push("sm90_xmma_gemm_bf16", "flash_fwd_kernel", "vectorized_elementwise_kernel", "layer_norm_kernel");
  const idle = names.length;
  names.push("idle");
  const tracks = [
    { name: "phases", kind: "phases" },
    { name: "main thread", kind: "host" },
    { name: "autograd thread", kind: "host" },
    { name: "stream 7", kind: "stream" },
    { name: "stream 20", kind: "stream" },
    { name: "GPU idle", kind: "idle" },
  ];
  const rows = [];
  const bounds = [0, 0.06, 0.4, 0.92, 0.98, 1];
  const phaseAt = (time) => Math.max(0, bounds.findIndex((bound) => bound * duration > time) - 1);
  [3, 0, 1, 2].forEach((name, which) => {
    rows.push([0, 0, bounds[which] * duration, (bounds[which + 1] - bounds[which]) * duration, name, -1, 0, which]);
  });
  const operatorsWanted = Math.max(10, Math.round(spans * 0.6));
  // Blocks contain operators, which contain operators: three levels below the root.
  const perBlock = 24;
  const blocks = Math.max(1, Math.round(operatorsWanted / perBlock));
  for (let block = 0; block < blocks; block += 1) {
    const track = block / blocks > 0.4 && block / blocks < 0.92 ? 2 : 1;
    const from = (block / blocks) * duration;
    const size = (duration / blocks) * 0.97;
    const phase = phaseAt(from);
    rows.push([track, 0, from, size, 5, 0, 52 + (block % 8), phase]);
    for (let at = 0; at < perBlock - 1; at += 1) {
      const nested = at % 3 === 2;
      const start = from + (size * Math.floor(at / 3)) / 8 + (nested ? size * 0.02 : at % 3 === 1 ? size / 16 : 0);
      const long = (nested ? 0.02 : at % 3 === 1 ? 0.045 : 0.05) * size * (0.6 + 0.4 * random());
      rows.push([track, nested ? 2 : 1, start, long, firstOperator + Math.floor(random() * operators.length), 0, 20 + Math.floor(random() * 40), phase]);
    }
  }
  const kernelsWanted = Math.round(spans * 0.38);
  for (let kernel = 0; kernel < kernelsWanted; kernel += 1) {
    const start = (kernel / kernelsWanted) * duration * 0.985 + duration * 0.012;
    const long = (duration / kernelsWanted) * (0.3 + 0.65 * random());
    rows.push([kernel % 9 === 0 ? 4 : 3, 0, start, long, firstKernel + Math.floor(random() * 4), 0, 20 + Math.floor(random() * 40), phaseAt(start)]);
  }
  for (let gap = 0; gap < Math.round(spans * 0.02); gap += 1) {
    const start = (gap / Math.round(spans * 0.02)) * duration;
    rows.push([5, 0, start, (duration / (spans * 0.02)) * 0.4 * random(), idle, -1, 0, 4]);
  }
  rows.sort((a, b) => a[0] - b[0] || a[2] - b[2] || b[3] - a[3]);
  const column = (at) => rows.map((row) => (at === 2 || at === 3 ? Math.round(row[at]) : row[at]));
  return {
    schema: 1,
    generation,
    duration_ns: duration,
    names,
    tracks,
    spans: { track: column(0), depth: column(1), start_ns: column(2), duration_ns: column(3), name: column(4), file: column(5), line: column(6), phase: column(7) },
    left_out: 0,
  };
}
