//! Builds recordings for tests. Times are integer nanoseconds from 0.

use ridgeline_recording::Interner;
use ridgeline_recording::Recording;
use ridgeline_recording::line_log::{LineLogBuilder, Record};
use ridgeline_recording::manifest::{Code, Iterations, Manifest, Module, SourceFile, Thread};
use ridgeline_recording::trace::{
    self, Activity, ActivityDetails, ActivityKind, DetailsId, MemoryEvent, Operator, RuntimeCall,
    ThreadId, Trace,
};

/// Builds a trace whose main thread is thread 0.
#[derive(Default)]
pub(crate) struct TraceBuilder {
    strings: Interner,
    trace: Trace,
}

impl TraceBuilder {
    pub(crate) fn new() -> TraceBuilder {
        TraceBuilder::default()
    }

    fn id(&mut self, text: &str) -> ridgeline_recording::StringId {
        self.strings.intern(text).expect("few strings")
    }

    /// Adds an operator on the main thread.
    pub(crate) fn op(&mut self, name: &str, start_ns: i64, duration_ns: i64) -> &mut Self {
        let name = self.id(name);
        self.trace.operators.push(Operator {
            name,
            thread: ThreadId(0),
            start_ns,
            duration_ns,
            sequence: None.into(),
            forward_thread: None.into(),
            input_dims: None,
            input_types: None,
            concrete_inputs: None,
            call_stack: None,
        });
        self
    }

    /// Adds an autograd node on the main thread.
    pub(crate) fn node(&mut self, name: &str, start_ns: i64, duration_ns: i64) -> &mut Self {
        let name = format!("autograd::engine::evaluate_function: {name}");
        self.op(&name, start_ns, duration_ns)
    }

    fn last(&mut self) -> &mut Operator {
        self.trace.operators.last_mut().expect("an operator")
    }

    /// Sets the sequence number of the last operator.
    pub(crate) fn sequence(&mut self, number: u64) -> &mut Self {
        self.last().sequence = Some(number).into();
        self
    }

    /// Sets the forward thread of the last operator.
    pub(crate) fn forward_thread(&mut self, number: u64) -> &mut Self {
        self.last().forward_thread = Some(number).into();
        self
    }

    /// Moves the last operator to another thread.
    pub(crate) fn thread(&mut self, thread: u32) -> &mut Self {
        self.last().thread = ThreadId(thread);
        self
    }

    /// Sets the inputs of the last operator, as the trace writes them.
    pub(crate) fn inputs(&mut self, dims: &str, types: &str, concrete: &str) -> &mut Self {
        let ids = [dims, types, concrete].map(|text| Some(self.id(text)));
        let [dims, types, concrete] = ids;
        let last = self.last();
        (last.input_dims, last.input_types, last.concrete_inputs) = (dims, types, concrete);
        self
    }

    /// Adds an annotation, on another thread.
    pub(crate) fn annotation(&mut self, name: &str, start_ns: i64, duration_ns: i64) -> &mut Self {
        let name = self.id(name);
        let thread = ThreadId(1);
        self.trace.annotations.push(trace::Annotation { name, thread, start_ns, duration_ns });
        self
    }

    /// Adds a launch on the main thread, and its kernel.
    pub(crate) fn kernel(&mut self, name: &str, launch_ns: i64, start_ns: i64, duration_ns: i64) {
        let correlation = Some(self.trace.activities.len() as u64 + 1);
        let launch = self.id("cudaLaunchKernel");
        self.trace.runtime_calls.push(RuntimeCall {
            name: launch,
            thread: ThreadId(0),
            start_ns: launch_ns,
            duration_ns: 2,
            correlation: correlation.into(),
        });
        self.leaked_kernel(name, start_ns, duration_ns);
    }

    /// Adds a launch on the main thread during the capture of a CUDA graph.
    pub(crate) fn captured_launch(&mut self, start_ns: i64) {
        self.call("cudaLaunchKernel", start_ns, None);
    }

    /// Adds a replay of a CUDA graph on the main thread, and its kernels: node number, start and
    /// duration.
    pub(crate) fn replay(&mut self, launch_ns: i64, kernels: &[(u64, i64, i64)]) {
        let correlation = Some(1_000_000 + launch_ns.unsigned_abs());
        self.call("cudaGraphLaunch", launch_ns, correlation);
        for &(node, start_ns, duration_ns) in kernels {
            self.leaked_kernel("gemm", start_ns, duration_ns);
            let kernel = self.trace.activities.last_mut().expect("a kernel");
            kernel.correlation = correlation.into();
            let details = self.trace.details.last_mut().expect("its details");
            details.graph_node = Some(node);
        }
    }

    fn call(&mut self, name: &str, start_ns: i64, correlation: Option<u64>) {
        let name = self.id(name);
        self.trace.runtime_calls.push(RuntimeCall {
            name,
            thread: ThreadId(0),
            start_ns,
            duration_ns: 2,
            correlation: correlation.into(),
        });
    }

    /// Moves the last launch to another thread.
    pub(crate) fn launch_thread(&mut self, thread: u32) {
        self.trace.runtime_calls.last_mut().expect("a launch").thread = ThreadId(thread);
    }

    /// Adds a kernel without a launch in the recording.
    pub(crate) fn leaked_kernel(&mut self, name: &str, start_ns: i64, duration_ns: i64) {
        let correlation = Some(self.trace.activities.len() as u64 + 1);
        let name = self.id(name);
        self.trace.activities.push(Activity {
            name,
            kind: ActivityKind::Kernel,
            start_ns,
            duration_ns,
            correlation: correlation.into(),
            details: DetailsId(self.trace.details.len() as u32),
        });
        self.trace.details.push(ActivityDetails {
            device: Some(0),
            stream: Some(7),
            ..ActivityDetails::default()
        });
    }

    /// Adds an allocation, or a free if the bytes are negative, on the main thread.
    pub(crate) fn memory(&mut self, time_ns: i64, address: u64, bytes: i64) -> &mut Self {
        self.trace.memory.push(MemoryEvent {
            time_ns,
            thread: ThreadId(0),
            bytes,
            address: Some(address).into(),
            device_type: Some(0),
            device: Some(-1),
            total_allocated: None.into(),
        });
        self
    }

    pub(crate) fn trace(mut self) -> Trace {
        let threads = self.trace.operators.iter().map(|operator| operator.thread.0).max();
        let process = self.id("1");
        for number in 0..=threads.unwrap_or(0) {
            let thread = self.id(&(100 + number).to_string());
            self.trace.threads.push(trace::Thread { process, thread });
        }
        self.trace.operators.sort_by_key(|operator| {
            (operator.thread, operator.start_ns, std::cmp::Reverse(operator.duration_ns))
        });
        self.trace.runtime_calls.sort_by_key(|call| (call.thread, call.start_ns));
        self.trace.memory.sort_by_key(|event| event.time_ns);
        self.trace.strings = self.strings.finish();
        self.trace
    }
}

/// Creates a recording of one file `train.py` with the functions `<module>` (0), `Net.forward` (1)
/// and `helper` (2), and of one iteration from 0 to `end_ns`.
pub(crate) fn recording(
    trace: TraceBuilder,
    records: &[(i64, u8, u32, u32)],
    end_ns: i64,
) -> Recording {
    let manifest = Manifest {
        schema: 1,
        files: vec![SourceFile { path: "train.py".to_owned(), line_crc: vec![] }],
        codes: ["<module>", "Net.forward", "helper"]
            .map(|name| Code { file: 0, name: name.to_owned(), first_line: 1 })
            .to_vec(),
        threads: vec![Thread { tid: 100, main: true }, Thread { tid: 101, main: false }],
        iterations: Iterations {
            profiled: vec![(0, end_ns)],
            timed_ns: vec![end_ns as u64],
            ..Iterations::default()
        },
        modules: vec![
            module("", "Net", None, 50),
            module("a", "Linear", Some(0), 11),
            module("b", "Linear", Some(0), 12),
        ],
        ..Manifest::default()
    };
    let mut log = LineLogBuilder::new(&[(100, true), (101, false)]);
    for &(time_ns, kind, a, b) in records {
        log.record(Record { time_ns, kind, thread: 0, a, b });
    }
    Recording {
        trace: trace.trace(),
        lines: Some(log.finish()),
        manifest: Some(manifest),
        ceilings: None,
    }
}

fn module(path: &str, type_name: &str, parent: Option<u32>, line: u32) -> Module {
    Module {
        path: path.to_owned(),
        type_name: type_name.to_owned(),
        parent,
        definition: vec![(0, line)],
        ..Module::default()
    }
}
