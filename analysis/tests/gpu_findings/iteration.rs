//! Records one training iteration of a program in the agent's formats.

use std::collections::HashMap;
use std::sync::Arc;

use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::Options;
use ridgeline_analysis::recording::line_log::{
    LINE, LineLogBuilder, PHASE_ENTER, PHASE_EXIT, PUSH, RECORDER, Record,
};
use ridgeline_analysis::recording::manifest::Manifest;
use ridgeline_analysis::recording::trace::Trace;
use serde_json::{Value, json};

use super::{FAULT, LAYERS, LOOPS, SINGLE};
use crate::recorded::findings_of;

/// Phase numbers of the line log.
pub(super) const DATA: u32 = 0;
pub(super) const FORWARD: u32 = 1;
pub(super) const BACKWARD: u32 = 2;
pub(super) const OPTIMIZER: u32 = 3;

const MAIN: i64 = 100;
/// Records an iteration. The GPU executes its queue asynchronously to the host.
pub(super) struct Iteration {
    pub(super) text: String,
    events: Vec<Value>,
    log: LineLogBuilder,
    host_us: i64,
    gpu_us: i64,
    correlation: u64,
    /// Autograd sequence number and forward thread ID of the next operators.
    pub(super) node: Option<(u64, u64)>,
    /// Address and bytes of each allocation of the next operator. Negative for a free.
    pub(super) memory: Vec<(u64, i64)>,
    held_bytes: i64,
    peak_bytes: i64,
    pub(super) manifest: Value,
}

impl Iteration {
    /// Starts a recording of a program, with the manifest that the agent would write for it.
    pub(super) fn of(text: &str) -> Iteration {
        let loop_line = line_of(text, LOOPS);
        let mut log = LineLogBuilder::new(&[(MAIN, true)]);
        log.record(Record { time_ns: 0, kind: PUSH, thread: 0, a: 0, b: loop_line });
        let contains = |words: &str| text.contains(words);
        let loaders = contains("loader = ").then(|| {
            json!({
                "workers": 2, "pin_memory": contains("pin_memory=True"), "persistent": true,
                "batch_size": 64, "fetch_ns": [20_000], "passes": 1,
                "at": {"file": 0, "line": line_of(text, &["loader = "])},
                "distinct_shapes": if contains("height = ") { 8 } else { 1 },
            })
        });
        let precision =
            if contains("set_float32_matmul_precision(\"high\")") { "high" } else { "highest" };
        let manifest = json!({
            "schema": 1, "status": "complete", "torch": "2.11.0",
            "device": {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "index": 0,
                "capacity_bytes": 85_000_000_000_u64, "capability": [9, 0], "multiprocessors": 132},
            "machine": {"cores": 16},
            "settings": {"autocast": [], "matmul_precision": precision,
                "cudnn_benchmark": contains("cudnn.benchmark = True"), "cudnn_tf32": true,
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

    /// Whether this is the program with the fault.
    pub(super) fn is_faulty(&self) -> bool {
        self.text.contains(FAULT)
    }

    /// Moves execution to the line that contains this code.
    pub(super) fn line(&mut self, code: &str) {
        self.record(LINE, 0, line_of(&self.text, &[code]));
    }

    pub(super) fn record(&mut self, kind: u8, a: u32, b: u32) {
        self.log.record(Record { time_ns: 1000 * self.host_us, kind, thread: 0, a, b });
    }

    pub(super) fn phase(&mut self, phase: u32, run: impl FnOnce(&mut Iteration)) {
        self.record(PHASE_ENTER, phase, 0);
        run(self);
        self.record(PHASE_EXIT, phase, 0);
    }

    /// Adds host time of Python code between operators.
    pub(super) fn python(&mut self, us: i64) {
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

    /// Adds an operator of 10 µs that launches the kernels, given as name and duration in
    /// microseconds.
    pub(super) fn op(&mut self, name: &str, dims: Value, element: &str, kernels: &[(&str, i64)]) {
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

    /// Adds a copy operator. If `blocks`, the host waits for the copy.
    pub(super) fn copy(&mut self, op: &str, copy: &str, bytes: u64, us: i64, blocks: bool) {
        let start_us = self.host_us;
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
        self.event("cpu_op", op, MAIN, start_us, self.host_us - start_us, inputs);
    }

    fn synchronize(&mut self, name: &str) {
        let us = (self.gpu_us - self.host_us).max(0) + 2;
        self.launch(name, us);
        self.python(us);
    }

    /// Adds a backward pass with one operator per layer, and an optimizer step. The kernels of each
    /// operator are given as name and duration in microseconds.
    pub(super) fn backward(
        &mut self,
        op: &str,
        dims: &Value,
        element: &str,
        kernels: &[(&str, i64)],
    ) {
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

    /// Ends the recording as the agent does and diagnoses it. Returns the findings, and the
    /// iteration's time and peak memory.
    pub(super) fn findings(mut self) -> (Vec<Finding>, Cost) {
        let program_ended_ns = 1000 * self.host_us;
        self.synchronize("cudaDeviceSynchronize");
        let end_ns = 1000 * self.host_us;
        let recorder_ns = (end_ns - program_ended_ns) as u32;
        self.log.record(Record {
            time_ns: end_ns,
            kind: RECORDER,
            thread: 0,
            a: recorder_ns,
            b: 0,
        });
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
        let cost = Cost { ns: end_ns as f64, bytes: self.peak_bytes as f64 };
        (findings_of(recording, &project), cost)
    }
}

/// Time and peak memory of an iteration, or the savings of both.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    pub(super) ns: f64,
    pub(super) bytes: f64,
}

/// Returns the number of the first line that contains one of `words`.
pub(super) fn line_of(text: &str, words: &[&str]) -> u32 {
    let matches = |line: &str| words.iter().any(|words| line.contains(words));
    text.lines().position(matches).unwrap_or_else(|| panic!("{words:?} in {text}")) as u32 + 1
}
