//! Generates a recording of one long iteration: forward on the main thread, backward on the
//! autograd thread, and one kernel per four operators.

use ridgeline_analysis::recording::line_log::{
    LINE, LineLogBuilder, MODULE_ENTER, MODULE_EXIT, PHASE_ENTER, PHASE_EXIT, PUSH, Record,
};
use ridgeline_analysis::recording::manifest::{
    Code, Iterations, Manifest, Module, SourceFile, Thread,
};
use ridgeline_analysis::recording::trace::{
    self, Activity, ActivityDetails, ActivityKind, DetailsId, MemoryEvent, Operator, RuntimeCall,
    ThreadId, Trace,
};
use ridgeline_analysis::recording::{Interner, Recording};

/// Four operators in forward and four in backward.
const OPERATORS_PER_LAYER: usize = 8;
/// Time of a layer in each pass, in nanoseconds.
const LAYER_NS: i64 = 10_000;
const LAYERS: u32 = 96;

/// Generates a recording with this number of operators, rounded down to whole layers.
pub(crate) fn large(operators: usize) -> Recording {
    let layers = i64::try_from(operators / OPERATORS_PER_LAYER).expect("few operators");
    let backward_ns = layers * LAYER_NS + 1_000;
    let end_ns = 2 * backward_ns;
    let mut builder = TraceBuilder::default();
    let mut log = LineLogBuilder::new(&[(100, true), (101, false)]);
    let mut record = |time_ns: i64, kind: u8, a: u32, b: u32| {
        log.record(Record { time_ns, kind, thread: 0, a, b });
    };
    record(0, PUSH, 0, 1);
    record(0, LINE, 0, 3);
    record(0, PHASE_ENTER, 1, 0);
    record(0, PUSH, 1, 10);
    for layer in 0..layers {
        let (at, number) = (layer * LAYER_NS, layer as u32 % LAYERS);
        record(at, LINE, 1, 20 + number);
        record(at, MODULE_ENTER, 1 + number, 0);
        builder.layer(at, ThreadId(0), "aten::linear", layer as u64);
        builder.memory(at + 500, layer as u64, 1 << 12);
        record(at + LAYER_NS - 1, MODULE_EXIT, 1 + number, 0);
        let at = backward_ns + (layers - 1 - layer) * LAYER_NS;
        let node = "autograd::engine::evaluate_function: AddmmBackward0";
        builder.layer(at, ThreadId(1), node, layer as u64);
        builder.memory(at + 9_000, layer as u64, -(1 << 12));
    }
    record(backward_ns - 1_000, PHASE_EXIT, 1, 0);
    record(backward_ns - 1_000, LINE, 0, 4);
    record(backward_ns - 1_000, PHASE_ENTER, 2, 0);
    record(end_ns - 500, PHASE_EXIT, 2, 0);
    Recording {
        manifest: Some(manifest(end_ns)),
        trace: builder.trace(),
        lines: Some(log.finish()),
        ceilings: None,
    }
}

fn manifest(end_ns: i64) -> Manifest {
    let module = |index: u32| Module {
        path: if index == 0 { String::new() } else { format!("layers.{}", index - 1) },
        type_name: if index == 0 { "Net" } else { "Linear" }.to_owned(),
        parent: (index > 0).then_some(0),
        definition: vec![(0, 5)],
        ..Module::default()
    };
    Manifest {
        schema: 1,
        files: vec![SourceFile { path: "train.py".to_owned(), line_crc: vec![] }],
        codes: ["train", "Net.forward"]
            .map(|name| Code { file: 0, name: name.to_owned(), first_line: 1 })
            .to_vec(),
        threads: vec![Thread { tid: 100, main: true }, Thread { tid: 101, main: false }],
        iterations: Iterations {
            profiled: vec![(0, end_ns)],
            timed_ns: vec![end_ns as u64; 5],
            ..Iterations::default()
        },
        modules: (0..=LAYERS).map(module).collect(),
        ..Manifest::default()
    }
}

#[derive(Default)]
struct TraceBuilder {
    strings: Interner,
    trace: Trace,
}

impl TraceBuilder {
    /// Adds an operator, one nested in it, two nested in that one, and the kernel that the last one
    /// launches.
    fn layer(&mut self, at: i64, thread: ThreadId, name: &str, sequence: u64) {
        let forward_thread = (thread.0 > 0).then_some(1);
        let nested = ["aten::addmm", "aten::expand", "aten::copy_"];
        let spans = [(0, 9_000), (500, 8_000), (600, 1_000), (2_000, 5_000)];
        for (depth, (name, (start_ns, duration_ns))) in
            [name].into_iter().chain(nested).zip(spans).enumerate()
        {
            let name = self.strings.intern(name).expect("few strings");
            self.trace.operators.push(Operator {
                name,
                thread,
                start_ns: at + start_ns,
                duration_ns,
                sequence: (depth == 0).then_some(sequence).into(),
                forward_thread: forward_thread.filter(|_| depth == 0).into(),
                input_dims: None,
                input_types: None,
                concrete_inputs: None,
                call_stack: None,
            });
        }
        let correlation = Some(self.trace.activities.len() as u64 + 1);
        self.trace.runtime_calls.push(RuntimeCall {
            name: self.strings.intern("cudaLaunchKernel").expect("few strings"),
            thread,
            start_ns: at + 3_000,
            duration_ns: 2_000,
            correlation: correlation.into(),
        });
        self.trace.activities.push(Activity {
            name: self.strings.intern("ampere_sgemm_128x64_tn").expect("few strings"),
            kind: ActivityKind::Kernel,
            start_ns: at + 4_000,
            duration_ns: 8_000,
            correlation: correlation.into(),
            details: DetailsId(0),
        });
    }

    fn memory(&mut self, time_ns: i64, address: u64, bytes: i64) {
        self.trace.memory.push(MemoryEvent {
            time_ns,
            thread: ThreadId(0),
            bytes,
            address: Some(address).into(),
            device_type: Some(1),
            device: Some(0),
            total_allocated: None.into(),
        });
    }

    fn trace(mut self) -> Trace {
        let process = self.strings.intern("1").expect("few strings");
        for number in ["100", "101"] {
            let thread = self.strings.intern(number).expect("few strings");
            self.trace.threads.push(trace::Thread { process, thread });
        }
        self.trace.operators.sort_by_key(|operator| {
            (operator.thread, operator.start_ns, std::cmp::Reverse(operator.duration_ns))
        });
        self.trace.runtime_calls.sort_by_key(|call| (call.thread, call.start_ns));
        self.trace.memory.sort_by_key(|event| event.time_ns);
        self.trace.details = vec![ActivityDetails {
            device: Some(0),
            stream: Some(7),
            ..ActivityDetails::default()
        }];
        self.trace.strings = self.strings.finish();
        self.trace
    }
}
