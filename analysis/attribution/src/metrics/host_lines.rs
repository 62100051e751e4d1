//! Python lines of a trace recorded elsewhere, from the frames or call stacks of the profiler
//! (`with_stack=True`).
//!
//! Frames contain the line where a *function begins*, not the calling line; the call stacks of 2021
//! and 2022 contain the calling line. In both cases the time of operators (and of the GPU work that
//! they launched) is counted, not Python time.

use std::collections::{HashMap, HashSet};

use ridgeline_profile::{Phase, PhaseTimes};
use ridgeline_recording::StringId;
use ridgeline_recording::correlation::innermost;
use ridgeline_recording::trace::{PythonFrame, Trace};

use super::operator_time::OperatorPlace;

/// The cost of one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostLine {
    /// Path as in the trace, usually relative to a folder of Python's search path.
    pub file: String,
    /// Line number, counted from 1.
    pub line: u32,
    /// Function name.
    pub scope: String,
    /// Number of calls of the function; 0 if the trace has call stacks instead of frames.
    pub calls: u64,
    /// Nanoseconds of outermost operators for which this is the innermost line outside of
    /// libraries.
    pub self_ns: f64,
    /// Nanoseconds of outermost operators with this line anywhere on their stack. Backward
    /// operators count for the line of their forward operator.
    pub total: PhaseTimes,
    /// Nanoseconds of GPU activities launched with this line on the stack.
    pub device_ns: f64,
}

/// Lines with their costs, and the share of operator time that was attributed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostLines {
    /// The lines, longest first.
    pub lines: Vec<HostLine>,
    /// The share, 0 to 1, of operator time (GPU time if there was a GPU) that was attributed to a
    /// line; `None` if the trace has neither frames nor call stacks.
    pub coverage: Option<f64>,
}

/// Attributes operators to lines.
pub fn host_lines(
    trace: &Trace,
    places: &[OperatorPlace],
    phases: &[Phase],
    operator_of_activity: &[Option<usize>],
) -> HostLines {
    let mut stacks = Stacks::of_frames(trace);
    let has_stacks = trace.operators.iter().any(|operator| operator.call_stack.is_some());
    if trace.python_frames.is_empty() && !has_stacks {
        return HostLines::default();
    }
    let forward = forward_operators(trace);
    let moments = trace.operators.iter().map(|operator| (operator.thread, operator.start_ns));
    let frames = innermost(&trace.python_frames, moments);
    let nodes: Vec<Option<usize>> = trace
        .operators
        .iter()
        .zip(&frames)
        .map(|(operator, frame)| match operator.call_stack {
            Some(stack) => stacks.of_call_stack(trace, stack),
            None => frame.and_then(|frame| stacks.of_frame.get(frame).copied().flatten()),
        })
        .collect();
    let node_of = |index: usize| -> Option<usize> {
        let of_forward = forward.get(&index).and_then(|forward| *nodes.get(*forward)?);
        of_forward.or_else(|| *nodes.get(index)?)
    };

    let (mut host, mut host_reached) = (0.0, 0.0);
    for (index, (operator, place)) in trace.operators.iter().zip(places).enumerate() {
        if place.outermost == index {
            let time = operator.duration_ns as f64;
            host += time;
            if let Some(node) = node_of(index) {
                host_reached += time;
                stacks.add_host(node, phases.get(index).copied().unwrap_or(Phase::Other), time);
            }
        }
    }
    let (mut device, mut device_reached) = (0.0, 0.0);
    for (activity, operator) in trace.activities.iter().zip(operator_of_activity) {
        let time = activity.duration_ns as f64;
        device += time;
        let place = operator.and_then(|index| places.get(index));
        if let Some(node) = place.and_then(|place| node_of(place.outermost)) {
            device_reached += time;
            stacks.add_device(node, time);
        }
    }
    let coverage = if device > 0.0 { device_reached / device } else { host_reached / host };
    HostLines { lines: stacks.finish(), coverage: coverage.is_finite().then_some(coverage) }
}

/// A node of the call tree. Parents come before their children.
#[derive(Clone, Debug)]
struct Node {
    parent: Option<usize>,
    line: usize,
    /// Whether the same line is also further out on the stack (recursion), so its time must count
    /// once.
    repeated: bool,
    times: PhaseTimes,
    device_ns: f64,
}

struct Stacks {
    nodes: Vec<Node>,
    /// Node by index in [`Trace::python_frames`].
    of_frame: Vec<Option<usize>>,
    of_text: HashMap<StringId, Option<usize>>,
    lines: Vec<HostLine>,
    line_ids: HashMap<(String, u32, String), usize>,
    line_of_name: HashMap<StringId, Option<usize>>,
}

impl Stacks {
    fn of_frames(trace: &Trace) -> Stacks {
        let mut stacks = Stacks {
            nodes: Vec::new(),
            of_frame: Vec::with_capacity(trace.python_frames.len()),
            of_text: HashMap::new(),
            lines: Vec::new(),
            line_ids: HashMap::new(),
            line_of_name: HashMap::new(),
        };
        // Frames without a relevant line have the node of the frame around them.
        let mut running: Vec<(&PythonFrame, Option<usize>, Option<usize>)> = Vec::new();
        let mut times_on_stack: Vec<u32> = Vec::new();
        for frame in &trace.python_frames {
            while let Some((outer, _, added)) = running.last()
                && (outer.thread != frame.thread || outer.end_ns() <= frame.start_ns)
            {
                if let Some(count) = added.and_then(|line| times_on_stack.get_mut(line)) {
                    *count = count.saturating_sub(1);
                }
                running.pop();
            }
            let parent = running.last().and_then(|(_, node, _)| *node);
            let line = stacks.line_of_frame(trace, frame.name);
            let node = match line {
                None => parent,
                Some(line) => {
                    if times_on_stack.len() <= line {
                        times_on_stack.resize(line + 1, 0);
                    }
                    let on_stack = times_on_stack.get_mut(line);
                    let repeated = on_stack.as_ref().is_some_and(|count| **count > 0);
                    if let Some(count) = on_stack {
                        *count += 1;
                    }
                    if let Some(line) = stacks.lines.get_mut(line) {
                        line.calls += 1;
                    }
                    Some(stacks.push(parent, line, repeated))
                }
            };
            stacks.of_frame.push(node);
            running.push((frame, node, line));
        }
        stacks
    }

    fn push(&mut self, parent: Option<usize>, line: usize, repeated: bool) -> usize {
        let (times, device_ns) = (PhaseTimes::default(), 0.0);
        self.nodes.push(Node { parent, line, repeated, times, device_ns });
        self.nodes.len() - 1
    }

    fn add_host(&mut self, node: usize, phase: Phase, time_ns: f64) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        *node.times.get_mut(phase) += time_ns;
        if let Some(line) = self.lines.get_mut(node.line) {
            line.self_ns += time_ns;
        }
    }

    fn add_device(&mut self, node: usize, time_ns: f64) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.device_ns += time_ns;
        }
    }

    /// Returns the node of a `Call stack`: places innermost first, joined by `;`.
    fn of_call_stack(&mut self, trace: &Trace, stack: StringId) -> Option<usize> {
        if let Some(node) = self.of_text.get(&stack) {
            return *node;
        }
        let mut node = None;
        let mut seen = HashSet::new();
        for place in trace.text(stack).rsplit(';').take(MAX_PLACES_PER_STACK) {
            if let Some(line) = self.line_of_place(place) {
                let repeated = !seen.insert(line);
                node = Some(self.push(node, line, repeated));
            }
        }
        self.of_text.insert(stack, node);
        node
    }

    fn line_of_frame(&mut self, trace: &Trace, name: StringId) -> Option<usize> {
        if let Some(line) = self.line_of_name.get(&name) {
            return *line;
        }
        let line = self.line_of_place(trace.text(name));
        self.line_of_name.insert(name, line);
        line
    }

    /// Parses the line of `train.py(31): main`; `None` for libraries, built-in functions and
    /// modules.
    fn line_of_place(&mut self, place: &str) -> Option<usize> {
        let (location, scope) = place.split_once("): ")?;
        let (file, line) = location.rsplit_once('(')?;
        let line: u32 = line.parse().ok()?;
        if line == 0 || is_library(file) {
            return None;
        }
        let key = (file.to_owned(), line, scope.to_owned());
        Some(*self.line_ids.entry(key).or_insert_with(|| {
            let (file, scope) = (file.to_owned(), scope.to_owned());
            self.lines.push(HostLine { file, line, scope, ..HostLine::default() });
            self.lines.len() - 1
        }))
    }

    /// Adds each node's time to its lines and its parent.
    fn finish(mut self) -> Vec<HostLine> {
        while let Some(node) = self.nodes.pop() {
            if !node.repeated
                && let Some(line) = self.lines.get_mut(node.line)
            {
                line.total += node.times;
                line.device_ns += node.device_ns;
            }
            if let Some(parent) = node.parent.and_then(|parent| self.nodes.get_mut(parent)) {
                parent.times += node.times;
                parent.device_ns += node.device_ns;
            }
        }
        let mut lines = self.lines;
        lines.retain(|line| line.total.total() > 0.0 || line.device_ns > 0.0);
        lines.sort_by(|a, b| {
            let key = |line: &HostLine| (line.device_ns, line.total.total());
            key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal)
        });
        lines
    }
}

/// Python's own recursion limit is 1000.
const MAX_PLACES_PER_STACK: usize = 1000;

/// Returns for each operator of autograd the forward operator with the same sequence number, the
/// latest that began before it.
fn forward_operators(trace: &Trace) -> HashMap<usize, usize> {
    let is_backward = |thread: Option<u64>| thread.is_some_and(|thread| thread > 0);
    let mut by_time: Vec<usize> = (0..trace.operators.len())
        .filter(|index| trace.operators.get(*index).is_some_and(|op| op.sequence.get().is_some()))
        .collect();
    by_time.sort_by_key(|index| trace.operators.get(*index).map(|operator| operator.start_ns));
    let mut latest: HashMap<u64, usize> = HashMap::new();
    let mut forward = HashMap::new();
    for index in by_time {
        let Some(operator) = trace.operators.get(index) else { continue };
        let Some(sequence) = operator.sequence.get() else { continue };
        if is_backward(operator.forward_thread.get()) {
            forward.extend(latest.get(&sequence).map(|of| (index, *of)));
        } else {
            latest.insert(sequence, index);
        }
    }
    forward
}

/// Whether a file belongs to Python or PyTorch, rather than to the program or the model libraries
/// that it uses. The profiler shortens paths by Python's search path, so `enum.py` may be Python's.
fn is_library(file: &str) -> bool {
    const STANDARD: [&str; 32] = [
        "_weakrefset.py",
        "abc.py",
        "argparse.py",
        "ast.py",
        "asyncio",
        "codecs.py",
        "collections",
        "concurrent",
        "contextlib.py",
        "copy.py",
        "copyreg.py",
        "dataclasses.py",
        "encodings",
        "enum.py",
        "functools.py",
        "importlib",
        "inspect.py",
        "json",
        "logging",
        "multiprocessing",
        "os.py",
        "pathlib.py",
        "pickle.py",
        "queue.py",
        "random.py",
        "re.py",
        "runpy.py",
        "selectors.py",
        "socket.py",
        "threading.py",
        "typing.py",
        "weakref.py",
    ];
    let first = file.split(['/', '\\']).next().unwrap_or_default();
    file.starts_with('<')
        || file.contains("site-packages")
        || file.contains("dist-packages")
        || file.contains("lib/python3")
        || first == "torch"
        || STANDARD.contains(&first)
}
