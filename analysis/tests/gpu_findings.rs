//! Findings that only a GPU can show, of recordings written by hand as the agent leaves them: Kineto's
//! trace, a manifest, a line log. They hold the way from the file to the finding; no GPU ran them.

mod recorded;

use std::collections::HashMap;
use std::sync::Arc;

use recorded::found;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::Options;
use ridgeline_analysis::recording::line_log::{
    LINE, LineLogBuilder, PHASE_ENTER, PHASE_EXIT, PUSH, Record,
};
use ridgeline_analysis::recording::manifest::Manifest;
use ridgeline_analysis::recording::trace::Trace;
use serde_json::{Value, json};

/// Each line is marked by its comment.
const PROGRAM: &str = "\
import torch
from torch.utils.data import DataLoader

net = make_net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
loader = DataLoader(pictures, batch_size=64, num_workers=4, pin_memory=True)  # loader
for x, y in loader:  # loop
    x = x.to(\"cuda\", non_blocking=True)  # copy
    x = net.convolve(x)  # convolutions
    loss = net.classify(x, y)  # product
    total += float(loss)  # read
    optimizer.zero_grad()
    loss.backward()  # backward
    optimizer.step()  # step
";

/// Phases as the line log numbers them.
const DATA: u32 = 0;
const FORWARD: u32 = 1;
const BACKWARD: u32 = 2;
const OPTIMIZER: u32 = 3;

const MAIN: i64 = 100;
const HALF: &str = "c10::Half";
const PRODUCT: &str = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1";
const CONVOLUTION: &str =
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64";

/// Writes an iteration down. Times are in microseconds; the GPU works its queue off by itself.
struct Iteration {
    text: String,
    events: Vec<Value>,
    log: LineLogBuilder,
    host_us: i64,
    gpu_us: i64,
    correlation: u64,
    manifest: Value,
}

impl Iteration {
    fn of(text: &str) -> Iteration {
        let loop_line = line_of(text, "loop");
        let mut log = LineLogBuilder::new(&[(MAIN, true)]);
        log.record(Record { time_ns: 0, kind: PUSH, thread: 0, a: 0, b: loop_line });
        let loader = json!({
            "workers": 4, "pin_memory": true, "persistent": true, "batch_size": 64, "fetch_ns": [20_000],
            "at": {"file": 0, "line": line_of(text, "loader")}, "passes": 1, "distinct_shapes": 1,
        });
        let manifest = json!({
            "schema": 1, "status": "complete", "torch": "2.11.0",
            "device": {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "index": 0,
                "capacity_bytes": 85_000_000_000_u64, "capability": [9, 0], "multiprocessors": 132},
            "machine": {"cores": 16},
            "settings": {"autocast": ["float16"], "matmul_precision": "high", "cudnn_benchmark": true,
                "cudnn_tf32": true, "deterministic": false, "anomaly": false},
            "files": [{"path": "train.py", "line_crc": []}],
            "codes": [{"file": 0, "name": "<module>", "first_line": 1}],
            "threads": [{"tid": MAIN, "main": true}],
            "loop": {"file": 0, "line": loop_line},
            "batch": {"size": 64, "from": "loader"},
            "loaders": [loader],
        });
        Iteration {
            text: text.to_owned(),
            events: Vec::new(),
            log,
            host_us: 0,
            gpu_us: 0,
            correlation: 0,
            manifest,
        }
    }

    fn line(&mut self, mark: &str) {
        self.record(LINE, 0, line_of(&self.text, mark));
    }

    fn record(&mut self, kind: u8, a: u32, b: u32) {
        self.log.record(Record { time_ns: 1000 * self.host_us, kind, thread: 0, a, b });
    }

    fn phase(&mut self, phase: u32, run: impl FnOnce(&mut Iteration)) {
        self.record(PHASE_ENTER, phase, 0);
        run(self);
        self.record(PHASE_EXIT, phase, 0);
    }

    /// Python between operators.
    fn python(&mut self, us: i64) {
        self.host_us += us;
    }

    fn event(
        &mut self,
        category: &str,
        name: &str,
        thread: i64,
        from_us: i64,
        us: i64,
        args: Value,
    ) {
        self.events.push(json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread,
            "ts": from_us, "dur": us, "args": args}));
    }

    /// An operator of 10 µs that launches kernels of so many microseconds.
    fn op(&mut self, name: &str, dims: Value, element: &str, kernels: &[(&str, i64)]) {
        let types: Vec<&str> = dims.as_array().into_iter().flatten().map(|_| element).collect();
        let inputs = json!({"Input Dims": dims, "Input type": types});
        let us = 10 + 4 * kernels.len() as i64;
        self.event("cpu_op", name, MAIN, self.host_us, us, inputs);
        for (kernel, us) in kernels {
            self.host_us += 4;
            self.launch("cudaLaunchKernel", 2);
            let from_us = self.gpu_us.max(self.host_us + 2);
            let on_gpu = json!({"device": 0, "stream": 7, "correlation": self.correlation,
                "grid": [264, 1, 1], "block": [128, 1, 1]});
            self.event("kernel", kernel, 7, from_us, *us, on_gpu);
            self.gpu_us = from_us + us;
        }
        self.host_us += 10;
    }

    fn launch(&mut self, name: &str, us: i64) {
        self.correlation += 1;
        let correlation = json!({"correlation": self.correlation});
        self.event("cuda_runtime", name, MAIN, self.host_us, us, correlation);
    }

    /// An operator that copies, and waits for the copy where it blocks.
    fn copy(&mut self, op: &str, copy: &str, bytes: u64, us: i64, blocks: bool) {
        let began_us = self.host_us;
        self.python(5);
        self.launch("cudaMemcpyAsync", 3);
        let from_us = self.gpu_us.max(self.host_us + 3);
        let args =
            json!({"device": 0, "stream": 7, "correlation": self.correlation, "bytes": bytes});
        self.event("gpu_memcpy", copy, 7, from_us, us, args);
        self.gpu_us = from_us + us;
        self.python(4);
        if blocks {
            self.synchronize("cudaStreamSynchronize");
        }
        self.python(1);
        let dims = if bytes > 8 { json!([[bytes / 4], [bytes / 4]]) } else { json!([[]]) };
        let inputs = json!({"Input Dims": dims, "Input type": ["float", "float"]});
        self.event("cpu_op", op, MAIN, began_us, self.host_us - began_us, inputs);
    }

    fn synchronize(&mut self, name: &str) {
        let us = (self.gpu_us - self.host_us).max(0) + 2;
        self.launch(name, us);
        self.python(us);
    }

    /// Ends it as the agent does, and diagnoses it.
    fn findings(mut self) -> Vec<Finding> {
        self.synchronize("cudaDeviceSynchronize");
        let end_ns = 1000 * self.host_us;
        self.manifest["iterations"] = json!({
            "found_by": "optimizer", "warmup": 2, "seen": 7, "timed_ns": vec![end_ns; 3],
            "timed_device_ns": vec![end_ns; 3], "profiled": [[0, end_ns]], "measured": 0,
        });
        let trace =
            json!({"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": self.events});
        let manifest = Manifest::parse(self.manifest.to_string().as_bytes()).expect("a manifest");
        let trace =
            Trace::read(trace.to_string().as_bytes(), &Options::default()).expect("a trace");
        let recording =
            Recording { trace, lines: Some(self.log.finish()), manifest: Some(manifest) };
        let project: HashMap<String, Arc<str>> =
            HashMap::from([("train.py".to_owned(), self.text.into())]);
        found(recording, &project)
    }
}

fn line_of(text: &str, mark: &str) -> u32 {
    let ending = format!("  # {mark}");
    let at = text.lines().position(|line| line.ends_with(&ending)).expect("the mark");
    at as u32 + 1
}

/// What differs from a program that is in order.
struct Program {
    text: String,
    /// An operator that copies so many bytes to the host.
    reads: Option<(&'static str, u64)>,
    copies: &'static str,
    copy_blocks: bool,
    element: &'static str,
    classes: u64,
    product: &'static str,
    reorders: bool,
    settings: Vec<(&'static str, Value)>,
    loader: Vec<(&'static str, Value)>,
    gpu: Value,
}

impl Default for Program {
    fn default() -> Program {
        Program {
            text: PROGRAM.to_owned(),
            reads: None,
            copies: "Memcpy HtoD (Pinned -> Device)",
            copy_blocks: false,
            element: HALF,
            classes: 1024,
            product: PRODUCT,
            reorders: false,
            settings: Vec::new(),
            loader: Vec::new(),
            gpu: Value::Null,
        }
    }
}

impl Program {
    fn findings(self) -> Vec<Finding> {
        let mut it = Iteration::of(&self.text);
        for (key, value) in self.settings {
            it.manifest["settings"][key] = value;
        }
        for (key, value) in self.loader {
            it.manifest["loaders"][0][key] = value;
        }
        it.manifest["observed"] = json!({"gpu": self.gpu});
        let (element, classes) = (self.element, self.classes);
        it.line("loop");
        it.phase(DATA, |it| it.python(20));
        it.line("copy");
        it.copy("aten::copy_", self.copies, 19_000_000, 900, self.copy_blocks);
        // What the host does while the copy is under way.
        it.python(200);
        it.line("convolutions");
        it.phase(FORWARD, |it| {
            for _ in 0..8 {
                let dims = json!([[64, 64, 56, 56], [64, 64, 3, 3]]);
                let reorder = ("cudnn::ops::nchwToNhwcKernel<__half>", 60);
                let kernels = [reorder, (CONVOLUTION, 150)];
                let kernels = if self.reorders { &kernels[..] } else { &kernels[1..] };
                it.op("aten::cudnn_convolution", dims, element, kernels);
            }
        });
        it.line("product");
        it.phase(FORWARD, |it| {
            let dims = json!([[8192, 1024], [1024, classes]]);
            it.op("aten::mm", dims, element, &[(self.product, 900)]);
        });
        if let Some((operator, bytes)) = self.reads {
            it.line("read");
            it.copy(operator, "Memcpy DtoH (Device -> Pageable)", bytes, 2, true);
            it.python(400);
        }
        it.line("backward");
        it.phase(BACKWARD, |it| {
            for _ in 0..8 {
                let dims = json!([[64, 64, 56, 56], [64, 64, 56, 56], [64, 64, 3, 3]]);
                it.op("aten::convolution_backward", dims, element, &[(CONVOLUTION, 300)]);
            }
        });
        it.line("step");
        it.phase(OPTIMIZER, |it| {
            let kernel = "void at::native::multi_tensor_apply_kernel<FusedSgdMathFunctor>";
            it.op("aten::_fused_sgd_", json!([[4096, 1024]]), "float", &[(kernel, 80)]);
        });
        it.findings()
    }

    /// Its only finding is of that rule, at the line with that mark.
    #[track_caller]
    fn finds(self, rule: &str, mark: &str) -> Finding {
        let line = line_of(&self.text, mark);
        let findings = self.findings();
        let [finding] = &findings[..] else { panic!("{findings:#?}") };
        assert_eq!((finding.rule, finding.at.line), (rule, line), "{finding:#?}");
        finding.clone()
    }
}

#[track_caller]
fn costs_ms(finding: &Finding, expected: std::ops::Range<f64>) {
    let cost = finding.cost.expect("a cost");
    assert!(expected.contains(&(cost.time_ns / 1e6)), "{cost:?}");
}

#[test]
fn a_program_in_order_has_none() {
    assert_eq!(Program::default().findings(), []);
}

#[test]
fn what_the_host_waits_for_in_each_iteration() {
    let item = "aten::_local_scalar_dense";
    let cases = [
        ("total += float(loss)", item, 4, "`float()`"),
        ("total += loss.item()", item, 4, "`.item()`"),
        ("print(loss)", item, 4, "`print()`"),
        ("assert loss < 9", item, 1, "A condition on a tensor"),
        ("seen = x.argmax(1).tolist()", "aten::copy_", 512, "`.tolist()`"),
        ("seen = x.cpu()", "aten::copy_", 4096, "`.cpu()`"),
        ("some = x.nonzero()", "aten::nonzero", 8, "`.nonzero()`"),
        ("some = x[y > 0]", "aten::nonzero", 8, "Indexing with a mask"),
    ];
    for (statement, operator, bytes, named) in cases {
        let text = PROGRAM.replace("total += float(loss)", statement);
        let reads = Some((operator, bytes));
        let found = Program { text, reads, ..Program::default() }.finds("hidden-sync", "read");
        assert!(found.message.starts_with(named), "{statement}: {}", found.message);
        // The GPU is idle while Python goes on and the host launches again.
        costs_ms(&found, 0.3..0.6);
    }
}

#[test]
fn a_copy_from_pinned_memory_that_blocks() {
    let text = PROGRAM.replace(", non_blocking=True", "");
    let found =
        Program { text, copy_blocks: true, ..Program::default() }.finds("blocking-copy", "copy");
    costs_ms(&found, 0.15..0.25);
}

#[test]
fn batches_that_are_not_pinned() {
    let text = PROGRAM.replace(", pin_memory=True", "");
    let found = Program {
        text,
        copies: "Memcpy HtoD (Pageable -> Device)",
        copy_blocks: true,
        loader: vec![("pin_memory", json!(false))],
        ..Program::default()
    };
    found.finds("loader-not-pinned", "loader");
}

#[test]
fn products_of_single_precision_without_tf32() {
    let found = Program {
        element: "float",
        product: "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma",
        settings: vec![("matmul_precision", json!("highest")), ("autocast", json!([]))],
        ..Program::default()
    };
    let found = found.finds("fp32-without-tf32", "product");
    costs_ms(&found, 0.1..0.9);
}

#[test]
fn a_vocabulary_that_tensor_cores_do_not_like() {
    let found = Program { classes: 50_257, ..Program::default() };
    let found = found.finds("tensor-core-sizes", "product");
    assert!(found.message.contains("50257"), "{}", found.message);
}

#[test]
fn pictures_that_are_reordered_for_each_convolution() {
    let found = Program { reorders: true, ..Program::default() };
    costs_ms(&found.finds("channels-last-missed", "convolutions"), 0.47..0.49);
}

#[test]
fn convolutions_whose_algorithms_were_not_tried() {
    let settings = vec![("cudnn_benchmark", json!(false))];
    Program { settings, ..Program::default() }.finds("cudnn-benchmark-off", "backward");
}

#[test]
fn algorithms_that_are_tried_for_each_shape() {
    let loader = vec![("distinct_shapes", json!(40))];
    Program { loader, ..Program::default() }.finds("cudnn-benchmark-changing", "backward");
}

#[test]
fn a_gpu_that_is_hot() {
    let gpu = json!({"clock_mhz": [990, 1000], "highest_clock_mhz": 1980, "limited_by": ["heat"],
        "other_processes": 0, "other_bytes": 0});
    let found = Program { gpu, ..Program::default() }.finds("gpu-slowed", "loop");
    assert!(found.message.starts_with("Heat slows the GPU down to 50%"), "{}", found.message);
}
