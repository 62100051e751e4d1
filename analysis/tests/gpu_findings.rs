//! Findings that only a GPU can show, of recordings written by hand as the agent leaves them: Kineto's
//! trace, a manifest, a line log. They hold the way from the file to the finding; no GPU ran them. The
//! programs are those of `demo-projects/planted`, which `tests/gpu/run --planted` runs on one.

use crate::recorded;

use std::collections::HashMap;
use std::sync::Arc;

use recorded::found;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::rewrite::{Request, rewrite};
use ridgeline_analysis::python::semantics::Entry;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::Options;
use ridgeline_analysis::recording::line_log::{
    LINE, LineLogBuilder, MODULE_ENTER, MODULE_EXIT, PHASE_ENTER, PHASE_EXIT, POP, PUSH, RECORDER,
    Record,
};
use ridgeline_analysis::recording::manifest::Manifest;
use ridgeline_analysis::recording::trace::Trace;
use serde_json::{Value, json};

/// A project with its fault, and without.
struct Pair {
    rule: &'static str,
    faulty: &'static str,
    clean: &'static str,
}

macro_rules! pair {
    ($rule:literal) => {
        Pair {
            rule: $rule,
            faulty: include_str!(concat!(
                "../../demo-projects/planted/",
                $rule,
                "/faulty/train.py"
            )),
            clean: include_str!(concat!("../../demo-projects/planted/", $rule, "/clean/train.py")),
        }
    };
}

const HIDDEN_SYNC: Pair = pair!("hidden-sync");

/// What ends a line with a fault.
const FAULT: &str = "  # fault";
/// The loops that train.
const LOOPS: &[&str] = &["for _ in range(200):", "for x, y in loader:"];
/// How often an operator runs in these recordings.
const LAYERS: usize = 8;

/// Phases as the line log numbers them.
const DATA: u32 = 0;
const FORWARD: u32 = 1;
const BACKWARD: u32 = 2;
const OPTIMIZER: u32 = 3;

const MAIN: i64 = 100;
const BF16: &str = "c10::BFloat16";
const SINGLE: &str = "float";
const PRODUCT: &str =
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1";
const TF32: &str = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1";
const FP32: &str = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma";
const CONVOLUTION: &str =
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64";
const REORDER: &str = "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>";
const POINTWISE: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluFunctor>";

/// Writes an iteration down. Times are in microseconds; the GPU works its queue off by itself.
struct Iteration {
    text: String,
    events: Vec<Value>,
    log: LineLogBuilder,
    host_us: i64,
    gpu_us: i64,
    correlation: u64,
    /// Autograd's number of what the next operators make or run, and of the thread that made it.
    node: Option<(u64, u64)>,
    /// Bytes that the next operator allocates, or frees, at an address.
    memory: Vec<(u64, i64)>,
    held_bytes: i64,
    peak_bytes: i64,
    manifest: Value,
}

impl Iteration {
    /// One of a program, with the manifest that the agent would write of its text.
    fn of(text: &str) -> Iteration {
        let loop_line = line_of(text, LOOPS);
        let mut log = LineLogBuilder::new(&[(MAIN, true)]);
        log.record(Record { time_ns: 0, kind: PUSH, thread: 0, a: 0, b: loop_line });
        let says = |words: &str| text.contains(words);
        let loaders = says("loader = ").then(|| {
            json!({
                "workers": 2, "pin_memory": says("pin_memory=True"), "persistent": true,
                "batch_size": 64, "fetch_ns": [20_000], "passes": 1,
                "at": {"file": 0, "line": line_of(text, &["loader = "])},
                "distinct_shapes": if says("height = ") { 8 } else { 1 },
            })
        });
        let precision =
            if says("set_float32_matmul_precision(\"high\")") { "high" } else { "highest" };
        let manifest = json!({
            "schema": 1, "status": "complete", "torch": "2.11.0",
            "device": {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "index": 0,
                "capacity_bytes": 85_000_000_000_u64, "capability": [9, 0], "multiprocessors": 132},
            "machine": {"cores": 16},
            "settings": {"autocast": [], "matmul_precision": precision,
                "cudnn_benchmark": says("cudnn.benchmark = True"), "cudnn_tf32": true,
                "deterministic": false, "anomaly": false},
            "files": [{"path": "train.py", "line_crc": []}],
            "codes": [{"file": 0, "name": "<module>", "first_line": 1}],
            "threads": [{"tid": MAIN, "main": true}],
            "loop": {"file": 0, "line": loop_line},
            "batch": {"size": 64, "from": "loader"},
            "loaders": Vec::from_iter(loaders),
        });
        Iteration {
            text: text.to_owned(),
            events: Vec::new(),
            log,
            host_us: 0,
            gpu_us: 0,
            correlation: 0,
            node: None,
            memory: Vec::new(),
            held_bytes: 0,
            peak_bytes: 0,
            manifest,
        }
    }

    /// Whether it is of the program with the fault.
    fn is_faulty(&self) -> bool {
        self.text.contains(FAULT)
    }

    /// Goes on at the line with this code.
    fn line(&mut self, code: &str) {
        self.record(LINE, 0, line_of(&self.text, &[code]));
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
        let mut inputs = json!({"Input Dims": dims, "Input type": types});
        if let Some((number, thread)) = self.node {
            inputs["Sequence number"] = number.into();
            inputs["Fwd thread id"] = thread.into();
        }
        for (address, bytes) in std::mem::take(&mut self.memory) {
            self.held_bytes += bytes;
            self.peak_bytes = self.peak_bytes.max(self.held_bytes);
            let args = json!({"Addr": address, "Bytes": bytes, "Device Type": 1, "Device Id": 0});
            self.events
                .push(json!({"ph": "i", "name": "[memory]", "pid": 1, "tid": MAIN, "s": "t",
                "ts": self.host_us + 1, "args": args}));
        }
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

    /// The backward pass of the operators with the numbers of layers, each with kernels of so many
    /// microseconds, and a step.
    fn backward(&mut self, op: &str, dims: &Value, element: &str, kernels: &[(&str, i64)]) {
        self.line("loss.backward()");
        self.phase(BACKWARD, |it| {
            for layer in (0..LAYERS).rev() {
                it.node = Some((layer as u64, 1));
                it.op(op, dims.clone(), element, kernels);
            }
        });
        self.node = None;
        self.line("optimizer.step()");
        self.phase(OPTIMIZER, |it| {
            let kernel = "void at::native::multi_tensor_apply_kernel<FusedSgdMathFunctor>";
            it.op("aten::_fused_sgd_", json!([[4096, 1024]]), SINGLE, &[(kernel, 80)]);
        });
    }

    /// Ends it as the agent does, and diagnoses it. Its findings, and what it took.
    fn findings(mut self) -> (Vec<Finding>, Taken) {
        let program_ended_ns = 1000 * self.host_us;
        self.synchronize("cudaDeviceSynchronize");
        let end_ns = 1000 * self.host_us;
        let took_ns = (end_ns - program_ended_ns) as u32;
        self.log.record(Record { time_ns: end_ns, kind: RECORDER, thread: 0, a: took_ns, b: 0 });
        self.manifest["iterations"] = json!({
            "found_by": "optimizer", "warmup": 2, "seen": 7, "timed_ns": vec![end_ns; 3],
            "timed_device_ns": vec![end_ns; 3], "profiled": [[0, end_ns]], "measured": 0,
        });
        let trace =
            json!({"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": self.events});
        let manifest = Manifest::parse(self.manifest.to_string().as_bytes()).expect("a manifest");
        let trace =
            Trace::read(trace.to_string().as_bytes(), &Options::default()).expect("a trace");
        let recording = Recording {
            trace,
            lines: Some(self.log.finish()),
            manifest: Some(manifest),
            ceilings: None,
        };
        let project: HashMap<String, Arc<str>> =
            HashMap::from([("train.py".to_owned(), self.text.into())]);
        let taken = Taken { ns: end_ns as f64, bytes: self.peak_bytes as f64 };
        (found(recording, &project), taken)
    }
}

/// What an iteration takes, or takes less.
#[derive(Clone, Copy)]
struct Taken {
    ns: f64,
    bytes: f64,
}

/// The first line with one of these words.
fn line_of(text: &str, words: &[&str]) -> u32 {
    let is_one = |line: &str| words.iter().any(|words| line.contains(words));
    text.lines().position(is_one).unwrap_or_else(|| panic!("{words:?} in {text}")) as u32 + 1
}

impl Pair {
    /// Runs both twins: the clean one raises nothing, and the faulty one the rule at its marked line. Where
    /// that has a fix, it makes the clean twin. The finding, and what the clean twin saves.
    #[track_caller]
    fn holds(&self, run: impl Fn(&mut Iteration)) -> (Finding, Taken) {
        let record = |text: &str| {
            let mut it = Iteration::of(text);
            run(&mut it);
            it.findings()
        };
        let (found, faulty) = record(self.faulty);
        let (none, clean) = record(self.clean);
        assert_eq!(none, [], "the clean twin");
        let [finding] = &found[..] else { panic!("{found:#?}") };
        let line = line_of(self.faulty, &[FAULT]);
        assert_eq!((finding.rule, finding.at.line), (self.rule, line), "{finding:#?}");
        self.fix_makes_the_clean_twin(finding);
        (finding.clone(), Taken { ns: faulty.ns - clean.ns, bytes: faulty.bytes - clean.bytes })
    }

    #[track_caller]
    fn fix_makes_the_clean_twin(&self, finding: &Finding) {
        let Some(kind) = finding.fix else { return };
        let project: HashMap<String, Arc<str>> =
            HashMap::from([("train.py".to_owned(), self.faulty.into())]);
        let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
        let lines = [("train.py", finding.at.line)];
        let made = rewrite(&project, &entry, &Request { kind, lines: &lines, count: None });
        let made = made.expect("a fix");
        let [file] = &made.files[..] else { panic!("{made:#?}") };
        // As no formatter would break its lines.
        let plain = |text: &str| {
            let text: String = text.replace(FAULT, "").split_whitespace().collect();
            text.replace(",)", ")")
        };
        assert_eq!(plain(&file.applied(self.faulty)), plain(self.clean));
    }
}

#[track_caller]
fn costs_ms(finding: &Finding, expected: std::ops::Range<f64>) {
    let cost = finding.cost.expect("a cost");
    assert!(expected.contains(&(cost.time_ns / 1e6)), "{cost:?}");
}

/// What it is told to cost is within a fifth of what the clean twin saves.
#[track_caller]
fn costs_what_is_saved((finding, saved): &(Finding, Taken)) {
    let cost = finding.cost.expect("a cost");
    let kinds = [(cost.time_ns, saved.ns), (cost.bytes, saved.bytes)];
    let told: Vec<(f64, f64)> = kinds.into_iter().filter(|(told, _)| *told > 0.0).collect();
    assert_eq!(told.len(), 1, "{cost:?}");
    for (told, saved) in told {
        assert!((told - saved).abs() <= 0.2 * saved, "{told} for {saved}");
    }
}

/// Layers of the largest activations, which an operator reads where the program does.
fn watched(it: &mut Iteration, operator: &str, bytes: u64) {
    let shape = json!([[1024], [8192, 1024], [1024, 1024]]);
    for _ in 0..LAYERS {
        it.line("x = x + layer(x)");
        it.phase(FORWARD, |it| {
            it.op("aten::addmm", shape.clone(), SINGLE, &[(TF32, 90)]);
            it.op("aten::gelu", json!([[8192, 1024]]), SINGLE, &[(POINTWISE, 20)]);
        });
        let reads = it.is_faulty();
        it.record(LINE, 0, line_of(&it.text, &[FAULT, "self.largest.append"]));
        it.phase(FORWARD, |it| {
            it.op("aten::amax", json!([[8192, 1024]]), SINGLE, &[(POINTWISE, 20)]);
            if reads {
                it.copy(operator, "Memcpy DtoH (Device -> Pageable)", bytes, 2, true);
                it.python(30);
            }
        });
    }
    it.backward("aten::addmm", &shape, SINGLE, &[(TF32, 180)]);
}

#[test]
fn a_number_that_the_host_waits_for() {
    let found = HIDDEN_SYNC.holds(|it| watched(it, "aten::_local_scalar_dense", 4));
    assert!(found.0.message.starts_with("`.item()`"), "{}", found.0.message);
    costs_what_is_saved(&found);
}

#[test]
fn what_else_the_host_waits_for() {
    let item = "aten::_local_scalar_dense";
    let cases = [
        ("total += float(x.max())", item, 4, "`float()`"),
        ("print(x.max())", item, 4, "`print()`"),
        ("assert x.max() < 9", item, 1, "A condition on a tensor"),
        ("seen = x.argmax(1).tolist()", "aten::copy_", 512, "`.tolist()`"),
        ("seen = x.cpu()", "aten::copy_", 4096, "`.cpu()`"),
        ("some = x.nonzero()", "aten::nonzero", 8, "`.nonzero()`"),
        ("some = x[x > 0]", "aten::nonzero", 8, "Indexing with a mask"),
    ];
    let planted = "self.largest.append(x.detach().abs().amax().item())";
    assert!(HIDDEN_SYNC.faulty.contains(planted));
    for (statement, operator, bytes, named) in cases {
        let text = HIDDEN_SYNC.faulty.replace(planted, statement);
        let mut it = Iteration::of(&text);
        watched(&mut it, operator, bytes);
        let (found, _) = it.findings();
        let [finding] = &found[..] else { panic!("{statement}: {found:#?}") };
        let line = line_of(&text, &[FAULT]);
        assert_eq!((finding.rule, finding.at.line), ("hidden-sync", line), "{statement}");
        assert!(finding.message.starts_with(named), "{statement}: {}", finding.message);
    }
}

/// A batch that is copied to the GPU, layers whose first ones the GPU is done with before the host has
/// launched the next, and others.
fn sounds(it: &mut Iteration, copies: &str, copy_us: i64, blocks: bool) {
    it.phase(DATA, |it| it.python(20));
    it.line("x = x.to(");
    it.copy("aten::copy_", copies, 9_600_000, copy_us, blocks);
    it.line("loss = ");
    it.phase(FORWARD, |it| {
        for _ in 0..2 * LAYERS {
            it.op("aten::gelu", json!([[3136, 64]]), SINGLE, &[(POINTWISE, 3)]);
        }
        for _ in 0..LAYERS {
            let shape = json!([[3072], [3136, 768], [768, 3072]]);
            it.op("aten::addmm", shape, SINGLE, &[(TF32, 90)]);
        }
    });
    let shape = json!([[3136, 3072], [3072, 768]]);
    it.backward("aten::mm", &shape, SINGLE, &[(TF32, 180)]);
}

#[test]
fn a_copy_from_pinned_memory_that_blocks() {
    costs_what_is_saved(&pair!("blocking-copy").holds(|it| {
        let blocks = it.is_faulty();
        sounds(it, "Memcpy HtoD (Pinned -> Device)", 190, blocks);
    }));
}

#[test]
fn batches_that_are_not_pinned() {
    costs_what_is_saved(&pair!("loader-not-pinned").holds(|it| match it.is_faulty() {
        true => sounds(it, "Memcpy HtoD (Pageable -> Device)", 1600, true),
        false => sounds(it, "Memcpy HtoD (Pinned -> Device)", 190, false),
    }));
}

#[test]
fn products_of_single_precision_without_tf32() {
    let (found, _) = pair!("fp32-without-tf32").holds(|it| {
        let kernel = if it.is_faulty() { (FP32, 1400) } else { (TF32, 220) };
        let shape = json!([[2048], [8192, 2048], [2048, 2048]]);
        it.line("loss = ");
        it.phase(FORWARD, |it| {
            for _ in 0..LAYERS {
                it.op("aten::addmm", shape.clone(), SINGLE, &[kernel]);
            }
        });
        it.backward("aten::addmm", &shape, SINGLE, &[kernel]);
    });
    // Of 22.4 ms.
    costs_ms(&found, 12.0..20.0);
}

#[test]
fn a_vocabulary_that_tensor_cores_do_not_like() {
    let (found, _) = pair!("tensor-core-sizes").holds(|it| {
        let words = if it.is_faulty() { 50_257 } else { 50_304 };
        it.line("x = x + self.body(x)");
        it.phase(FORWARD, |it| {
            let shape = json!([[3072], [4096, 768], [768, 3072]]);
            it.op("aten::addmm", shape, BF16, &[(PRODUCT, 60)]);
        });
        it.line("return self.head(x)");
        it.phase(FORWARD, |it| {
            let shape = json!([[4096, 768], [768, words]]);
            it.op("aten::mm", shape, BF16, &[(PRODUCT, 900)]);
        });
        it.backward("aten::mm", &json!([[4096, 768], [768, 3072]]), BF16, &[(PRODUCT, 120)]);
    });
    assert!(found.message.contains("50257"), "{}", found.message);
}

/// Convolutions, each behind what reorders its pictures.
fn pictures(it: &mut Iteration, reorder: &[(&str, i64)]) {
    it.line("loss = ");
    it.phase(FORWARD, |it| {
        for layer in 0..LAYERS {
            it.node = Some((layer as u64, 0));
            let shape = json!([[64, 128, 56, 56], [128, 128, 3, 3]]);
            let kernels = [reorder, &[(CONVOLUTION, 150)]].concat();
            it.op("aten::cudnn_convolution", shape, BF16, &kernels);
        }
    });
    let shape = json!([[64, 128, 56, 56], [64, 128, 56, 56], [128, 128, 3, 3]]);
    it.backward("aten::convolution_backward", &shape, BF16, &[(CONVOLUTION, 300)]);
}

#[test]
fn pictures_that_are_reordered_for_each_convolution() {
    costs_what_is_saved(&pair!("channels-last-missed").holds(|it| {
        let reorder: &[(&str, i64)] = if it.is_faulty() { &[(REORDER, 60)] } else { &[] };
        pictures(it, reorder);
    }));
}

/// The same of a loader's batches.
fn loaded_pictures(it: &mut Iteration) {
    it.phase(DATA, |it| it.python(20));
    it.line("x, y = x.to(");
    it.copy("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 1_200_000, 30, false);
    pictures(it, &[]);
}

#[test]
fn convolutions_whose_algorithms_were_not_tried() {
    pair!("cudnn-benchmark-off").holds(loaded_pictures);
}

#[test]
fn algorithms_that_are_tried_for_each_shape() {
    pair!("cudnn-benchmark-changing").holds(loaded_pictures);
}

/// What an operator runs for, with the bytes that it allocates, or frees, by what they hold.
type Step<'a> = (&'a str, i64, &'a [(u64, i64)]);

/// Layers on as many rows as the GPU has room for: each keeps what the linear layer gives, the norm, the
/// dropout's mask and the sum; with a checkpoint the first and the last of them.
fn rows_that_fill_the_memory(it: &mut Iteration) {
    const SUM: i64 = 2_700_000_000;
    const MASK: i64 = SUM / 4;
    const LINEAR: u64 = 0;
    const NORM: u64 = 1;
    const GELU: u64 = 2;
    const MASKED: u64 = 3;
    const DROPPED: u64 = 4;
    const ADDED: u64 = 5;
    fn step(it: &mut Iteration, layer: usize, (name, us, memory): Step<'_>) {
        let address = |what: u64| 1 + 10 * layer as u64 + what;
        it.memory = memory.iter().map(|(what, bytes)| (address(*what), *bytes)).collect();
        it.op(name, json!([[329_000, 2048]]), SINGLE, &[(POINTWISE, us)]);
    }
    let activate: [Step<'_>; 3] = [
        ("aten::native_layer_norm", 1800, &[(NORM, SUM)]),
        ("aten::gelu", 1800, &[(GELU, SUM)]),
        ("aten::native_dropout", 2000, &[(DROPPED, SUM), (MASKED, MASK), (GELU, -SUM)]),
    ];
    let keeps = it.is_faulty();
    let mut modules = vec![json!({"path": "", "type": "Sequential"})];
    for layer in 0..LAYERS {
        let of = |name: &str, kind: &str, parent: usize| json!({"path": format!("{layer}{name}"), "type": kind, "parent": parent});
        let number = modules.len();
        modules.push(of("", "Layer", 0));
        modules.push(of(".linear", "Linear", number));
        modules.push(of(".activate", "Sequential", number));
    }
    it.manifest["modules"] = modules.into();
    let first_line = line_of(&it.text, &["def forward"]);
    let forward = json!({"file": 0, "name": "forward", "first_line": first_line});
    it.manifest["codes"].as_array_mut().expect("codes").push(forward);
    it.line("loss = ");
    it.phase(FORWARD, |it| {
        it.record(MODULE_ENTER, 0, 0);
        for layer in 0..LAYERS {
            let own = 1 + 3 * layer as u32;
            let node = |number: u64| Some((4 * layer as u64 + number, 0));
            it.record(MODULE_ENTER, own, 0);
            it.record(PUSH, 1, line_of(&it.text, &["y = self.linear(x)"]));
            it.record(MODULE_ENTER, own + 1, 0);
            it.node = node(0);
            step(it, layer, ("aten::addmm", 9000, &[(LINEAR, SUM)]));
            it.record(MODULE_EXIT, own + 1, 0);
            it.record(LINE, 1, line_of(&it.text, &["return x + "]));
            it.record(MODULE_ENTER, own + 2, 0);
            for (number, one) in (1..).zip(activate) {
                it.node = node(number);
                step(it, layer, one);
            }
            it.record(MODULE_EXIT, own + 2, 0);
            it.node = None;
            let kept: &[(u64, i64)] = &[(ADDED, SUM), (DROPPED, -SUM)];
            let dropped = &[(ADDED, SUM), (DROPPED, -SUM), (NORM, -SUM), (MASKED, -MASK)];
            step(it, layer, ("aten::add", 2700, if keeps { kept } else { dropped }));
            it.record(POP, 1, 0);
            it.record(MODULE_EXIT, own, 0);
        }
        it.record(MODULE_EXIT, 0, 0);
    });
    it.line("loss.backward()");
    it.phase(BACKWARD, |it| {
        for layer in (0..LAYERS).rev() {
            // Again, where a checkpoint dropped it.
            for one in activate.into_iter().filter(|_| !keeps) {
                it.node = None;
                step(it, layer, one);
            }
            let masked: &[(u64, i64)] = &[(MASKED, -MASK)];
            let and_dropped = &[(MASKED, -MASK), (DROPPED, -SUM)];
            let backward: [Step<'_>; 4] = [
                ("aten::native_dropout_backward", 2000, if keeps { masked } else { and_dropped }),
                ("aten::gelu_backward", 2700, &[(NORM, -SUM)]),
                ("aten::native_layer_norm_backward", 3600, &[(LINEAR, -SUM)]),
                ("aten::mm", 18_000, &[(ADDED, -SUM)]),
            ];
            for (number, one) in (0..4).rev().zip(backward) {
                it.node = Some((4 * layer as u64 + number, 1));
                step(it, layer, one);
            }
        }
    });
    it.node = None;
}

#[test]
fn activations_that_fill_the_memory() {
    costs_what_is_saved(&pair!("recompute-candidates").holds(rows_that_fill_the_memory));
}

#[test]
fn kernels_that_the_host_cannot_start_as_fast() {
    let text = pair!("fp32-without-tf32").clean;
    let mut it = Iteration::of(text);
    it.line("loss = ");
    it.phase(FORWARD, |it| {
        for _ in 0..150 {
            it.op("aten::gelu", json!([[64, 64]]), SINGLE, &[(POINTWISE, 2)]);
        }
    });
    it.backward("aten::gelu_backward", &json!([[64, 64]]), SINGLE, &[(POINTWISE, 3)]);
    let (found, _) = it.findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((finding.rule, finding.at.line), ("tiny-kernels", line_of(text, &["loss = "])));
}

#[test]
fn a_gpu_that_is_hot() {
    let mut it = Iteration::of(HIDDEN_SYNC.clean);
    it.manifest["observed"] = json!({"gpu": {"clock_mhz": [990, 1000], "highest_clock_mhz": 1980,
        "limited_by": ["heat"], "other_processes": 0, "other_bytes": 0}});
    watched(&mut it, "", 0);
    let (found, _) = it.findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((finding.rule, finding.at.line), ("gpu-slowed", line_of(HIDDEN_SYNC.clean, LOOPS)));
    assert!(finding.message.starts_with("Heat throttles the GPU to 50%"), "{}", finding.message);
}
