//! From a recording to the graph of its iteration: tasks of the host and of GPUs, and what each
//! waits for.
//!
//! The host is one resource: the thread of the training loop, and autograd's threads while that one
//! waits for them. What a trace does not say is taken from its times: which kernel a call waited for
//! (the last one that ended while it waited), and for which stream another one waited (where
//! `cudaStreamWaitEvent` was called before the launch).

use std::collections::{BTreeMap, HashMap};

use super::backward::ENGINE_PREFIX;
use super::contexts::{ContextId, Contexts};
use super::costs::Costs;
use super::device::Launches;
use super::join::Join;
use super::memory;
use super::memory_kinds::{Classifier, Kind};
use super::recorded_step::{Asked, annotated, is_during, kind_of_work, median_window, waits};
use super::scale::Scale;
use super::steps::Steps;
use super::timeline::{self, Piece};
use crate::predict::operator::Operator;
use crate::predict::recorded_step::WorkKind;
use crate::profile::{FileId, Phase, Profile};
use crate::recording::Recording;
use crate::recording::line_log::{LineLog, Marker};
use crate::recording::manifest::Manifest;
use crate::recording::trace::{Activity, MemoryEvent, ThreadId, Trace};
use crate::whatif::graph::{Gradient, Graph, Resource, ResourceId, Task, TaskId, TaskKind};
use crate::whatif::memory::{Block, BlockKind, Moment, peak};
use crate::whatif::recorded::{NoGraph, Recorded, calibrated};
use crate::whatif::simulate;

/// Tasks of one graph; a recording with more is refused.
const MOST_TASKS: usize = 2_000_000;
/// From the end of a launch to the start of its kernel on an idle GPU, at most, in nanoseconds. Beyond
/// it the kernel waited for something else. The sample traces have 1 to 4 µs.
const LAUNCH_DELAY_NS: i64 = 5_000;
/// A kernel that starts so soon after the one before on its stream came right behind it.
const BEHIND_NS: i64 = 10_000;
/// From one kernel of a stream to the next where the recording does not tell: 1 µs.
const BETWEEN_NS: f64 = 1_000.0;
/// Clocks of host and GPU agree to this.
const CLOCKS_NS: i64 = 2_000;
/// A launch that took longer waited for room in the driver's queue, if that was full.
const LONGEST_LAUNCH_NS: i64 = 100_000;
/// What PyTorch calls the range in which a loop takes its next batch; the loader's class follows.
const LOADING: &str = "enumerate(DataLoader)#";
/// The class of loaders with worker processes.
const WITH_WORKERS: &str = "MultiProcessing";
/// CUDA's queue holds 1,024 launches; with half of that under way it may be full for a stream.
const FULL_QUEUE: usize = 512;

/// The graph of a recording's iteration: the measured one, or of a trace that was recorded elsewhere
/// the one of median length. `profile` is what [`super::attribute`] made of the same recording.
///
/// # Errors
/// Where the recording has no iteration, nothing ran in it, it holds more than can be replayed, or its
/// times contradict each other.
pub fn step_graph(recording: &Recording, profile: &Profile) -> Result<Recorded, NoGraph> {
    let trace = &recording.trace;
    let steps = Steps::new(recording);
    let manifest = recording.manifest.as_ref();
    let window = match manifest {
        Some(_) => steps.measured,
        None => median_window(&steps.windows),
    };
    let window = window.ok_or(NoGraph::NoIteration)?;
    if trace.operators.len() + trace.activities.len() + trace.runtime_calls.len() > MOST_TASKS {
        return Err(NoGraph::TooLarge { most: MOST_TASKS });
    }
    let empty_log = LineLog::default();
    let log = recording.lines.as_ref().unwrap_or(&empty_log);
    let join = Join::new(trace, log, &steps.windows);
    let mut contexts = Contexts::new(&join, manifest, recording.lines.is_none());
    let pieces = timeline::pieces(&join, &mut contexts);
    let launches = Launches::new(&join, &mut contexts);
    let asked = Asked::new(trace, window);
    let mut graph = Graph::default();
    graph.operators = asked.operators();
    graph.loader_has_workers = loader_has_workers(trace);
    let mut builder = Builder {
        join: &join,
        manifest,
        window,
        asked,
        ranges: OwnRanges::new(trace),
        pieces: &pieces,
        launches: &launches,
        graph,
        host_starts: Vec::new(),
        task_contexts: HashMap::new(),
        launched_by: HashMap::new(),
        order: Vec::new(),
        busy_until_ns: Vec::new(),
    };
    builder.host(&mut contexts);
    builder.other_threads();
    builder.gpu(&contexts);
    builder.memory(&mut contexts, recording, profile);
    builder.gradients();
    let Builder { mut graph, busy_until_ns, task_contexts, .. } = builder;
    if graph.tasks.is_empty() {
        return Err(NoGraph::NoIteration);
    }

    let recorded_ns = recorded_end(&join, window, &graph, &launches);
    let replayed = simulate::once(&graph, &busy_until_ns)?;
    let replay_error = replayed.iteration_ns / recorded_ns - 1.0;
    if graph.memory.is_known {
        let of_blocks = peak(&graph, &replayed).unwrap_or(0.0);
        graph.memory.unexplained = profile.memory.peak_bytes as f64 - of_blocks;
    }
    if trace.activities.is_empty() {
        // On a CPU each context takes what attribution says that it takes without a profiler.
        let costs = Costs::new(&join, &contexts, &pieces, &launches);
        let rest_ns = costs.leaked_ns + costs.unexplained_ns;
        let time_ns = steps.iteration_ns();
        let scale = Scale::new(&costs.contexts, rest_ns, steps.windows.len(), time_ns);
        scale_host(&mut graph, &task_contexts, &costs, &scale);
    }
    calibrated(graph, steps.iteration_ns(), replay_error)
}

/// Whether the loaders have worker processes; nothing where no loader was seen.
fn loader_has_workers(trace: &Trace) -> Option<bool> {
    let mut names = trace
        .annotations
        .iter()
        .map(|annotation| trace.text(annotation.name))
        .filter(|name| name.starts_with(LOADING))
        .peekable();
    names.peek()?;
    Some(names.any(|name| name.contains(WITH_WORKERS)))
}

/// When the last task of the iteration ended, in nanoseconds since it began.
fn recorded_end(join: &Join<'_>, window: (i64, i64), graph: &Graph, launches: &Launches) -> f64 {
    let mut end_ns = window.1;
    if graph.tasks.iter().any(|task| !task.kind.is_host()) {
        for (index, activity) in join.trace.activities.iter().enumerate() {
            let call = launches.call(index).and_then(|call| join.trace.runtime_calls.get(call));
            if call.is_some_and(|call| (window.0..window.1).contains(&call.start_ns)) {
                end_ns = end_ns.max(activity.end_ns());
            }
        }
    }
    end_ns.saturating_sub(window.0).max(1) as f64
}

/// Gives each context of the host the time that it takes without a profiler.
fn scale_host(
    graph: &mut Graph,
    contexts: &HashMap<TaskId, ContextId>,
    costs: &Costs,
    scale: &Scale,
) {
    let mut in_window = vec![0.0; costs.contexts.len()];
    for (id, context) in contexts {
        let duration_ns = graph.task(*id).map_or(0.0, |task| task.duration_ns);
        if let Some(sum) = in_window.get_mut(context.0 as usize) {
            *sum += duration_ns;
        }
    }
    for (id, context) in contexts {
        let index = context.0 as usize;
        let wanted = costs.contexts.get(index).zip(scale.contexts.get(index));
        let wanted_ns = wanted.map_or(0.0, |(cost, factor)| cost.time_ns * factor);
        let found_ns = in_window.get(index).copied().unwrap_or(0.0);
        if let Some(task) = graph.task_mut(*id).filter(|_| found_ns > 0.0 && wanted_ns > 0.0) {
            task.duration_ns *= wanted_ns / found_ns;
        }
    }
}

struct Builder<'a> {
    join: &'a Join<'a>,
    manifest: Option<&'a Manifest>,
    window: (i64, i64),
    asked: Asked,
    ranges: OwnRanges,
    pieces: &'a [Piece],
    launches: &'a Launches,
    graph: Graph,
    /// The host's tasks with when they began, in order.
    host_starts: Vec<(i64, TaskId)>,
    task_contexts: HashMap<TaskId, ContextId>,
    /// By runtime call that launched something: its task, and when that ended.
    launched_by: HashMap<usize, (TaskId, i64)>,
    /// Calls in the order in which the host made them.
    order: Vec<Call>,
    busy_until_ns: Vec<f64>,
}

/// A call of the runtime that matters.
#[derive(Clone, Copy, Debug)]
struct Call {
    start_ns: i64,
    end_ns: i64,
    /// Index into [`Trace::runtime_calls`](crate::recording::trace::Trace::runtime_calls).
    index: usize,
    what: CallKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    Launch,
    Wait,
    /// Another stream is to wait.
    StreamWait,
}

impl Builder<'_> {
    fn calls_of(&self, wanted: impl Fn(ThreadId) -> bool) -> Vec<Call> {
        let trace = self.join.trace;
        let mut launching = vec![false; trace.runtime_calls.len()];
        for index in 0..trace.activities.len() {
            if let Some(entry) = self.launches.call(index).and_then(|call| launching.get_mut(call))
            {
                *entry = true;
            }
        }
        let mut calls: Vec<Call> = trace
            .runtime_calls
            .iter()
            .enumerate()
            .filter(|(_, call)| {
                wanted(call.thread) && (self.window.0..self.window.1).contains(&call.start_ns)
            })
            .filter_map(|(index, call)| {
                let name = trace.text(call.name);
                let what = if waits(name) && launching.get(index) != Some(&true) {
                    CallKind::Wait
                } else if launching.get(index) == Some(&true) {
                    CallKind::Launch
                } else if name.contains("StreamWaitEvent") {
                    CallKind::StreamWait
                } else {
                    return None;
                };
                Some(Call { start_ns: call.start_ns, end_ns: call.end_ns(), index, what })
            })
            .collect();
        calls.sort_unstable_by_key(|call| (call.start_ns, call.end_ns, call.index));
        calls
    }

    /// The threads that make up the host: the loop's, and those that work for autograd.
    fn host_threads(&self) -> Vec<bool> {
        let mut threads = vec![false; self.join.trace.threads.len()];
        for (index, operator) in (0_u32..).zip(&self.join.trace.operators) {
            if self.join.in_node(index)
                && let Some(entry) = threads.get_mut(operator.thread.index())
            {
                *entry = true;
            }
        }
        if let Some(main) = self.join.main.and_then(|main| threads.get_mut(main.index())) {
            *main = true;
        }
        threads
    }

    fn host(&mut self, contexts: &mut Contexts<'_>) {
        let threads = self.host_threads();
        let is_host = |thread: ThreadId| threads.get(thread.index()) == Some(&true);
        let calls = self.calls_of(is_host);
        let trace = self.join.trace;
        let mut items: Vec<(i64, i64, u32)> = (0_u32..)
            .zip(&trace.operators)
            .filter(|(index, operator)| is_host(operator.thread) && self.asked.is_outermost(*index))
            .map(|(index, operator)| (operator.start_ns, operator.end_ns(), index))
            .collect();
        items.sort_unstable();
        let host = self.graph.resource(&Resource::Host);
        let mut sweep = HostSweep { host, calls: &calls, next_call: 0, next_piece: 0 };
        let mut now = self.window.0;
        for (start_ns, end_ns, operator) in items {
            let (start_ns, end_ns) = (start_ns.max(now), end_ns.min(self.window.1));
            if start_ns >= end_ns {
                continue;
            }
            self.region(&mut sweep, contexts, (now, start_ns), None);
            self.region(&mut sweep, contexts, (start_ns, end_ns), Some(operator));
            now = end_ns;
        }
        self.region(&mut sweep, contexts, (now, self.window.1), None);
        self.order = calls;
    }

    /// The host from one time to another, within one operator or between two.
    fn region(
        &mut self,
        sweep: &mut HostSweep<'_>,
        contexts: &mut Contexts<'_>,
        (from, to): (i64, i64),
        operator: Option<u32>,
    ) {
        let mut now = from;
        while let Some(call) = sweep.calls.get(sweep.next_call).filter(|call| call.start_ns < to) {
            sweep.next_call += 1;
            let start_ns = call.start_ns.max(now);
            let end_ns = call.end_ns.min(to).max(start_ns);
            self.stretch(sweep, contexts, (now, start_ns), operator);
            let context = match operator {
                Some(operator) => Some(contexts.of_operator(operator)),
                None => self.launches.contexts.get(call.index).copied(),
            };
            let kind = if call.what == CallKind::Wait { TaskKind::Wait } else { TaskKind::Launch };
            let id =
                self.add_host(sweep.host, contexts, (start_ns, end_ns), kind, operator, context);
            self.launched_by.insert(call.index, (id, end_ns));
            now = end_ns;
        }
        self.stretch(sweep, contexts, (now, to), operator);
    }

    /// The same without calls: a piece of an operator, or gaps of one context each.
    fn stretch(
        &mut self,
        sweep: &mut HostSweep<'_>,
        contexts: &mut Contexts<'_>,
        (from, to): (i64, i64),
        operator: Option<u32>,
    ) {
        if from >= to {
            return;
        }
        if let Some(operator) = operator {
            let context = Some(contexts.of_operator(operator));
            let kind = TaskKind::HostOperator;
            self.add_host(sweep.host, contexts, (from, to), kind, Some(operator), context);
            return;
        }
        let mut now = from;
        while self.pieces.get(sweep.next_piece).is_some_and(|piece| piece.end_ns <= from) {
            sweep.next_piece += 1;
        }
        let pieces = self.pieces.get(sweep.next_piece..).unwrap_or_default();
        for piece in pieces.iter().take_while(|piece| piece.start_ns < to) {
            let (start_ns, end_ns) = (piece.start_ns.max(now), piece.end_ns.min(to));
            if now < start_ns {
                self.add_host(sweep.host, contexts, (now, start_ns), TaskKind::HostGap, None, None);
            }
            let context = Some(piece.context);
            let mut part_ns = start_ns;
            while part_ns < end_ns {
                let until = self.ranges.next_border(part_ns).map_or(end_ns, |at| at.min(end_ns));
                let gap = TaskKind::HostGap;
                self.add_host(sweep.host, contexts, (part_ns, until), gap, None, context);
                part_ns = until;
            }
            now = now.max(end_ns);
        }
        if now < to {
            self.add_host(sweep.host, contexts, (now, to), TaskKind::HostGap, None, None);
        }
    }

    fn add_host(
        &mut self,
        host: ResourceId,
        contexts: &Contexts<'_>,
        (start_ns, end_ns): (i64, i64),
        kind: TaskKind,
        operator: Option<u32>,
        context: Option<ContextId>,
    ) -> TaskId {
        let mut task = Task::new(kind, end_ns.saturating_sub(start_ns) as f64, Phase::Other);
        task.operator = operator.and_then(|operator| self.asked.signature(operator));
        task.call = operator;
        self.describe(&mut task, contexts, context);
        task.phase = self.ranges.phase_at(start_ns).unwrap_or(task.phase);
        let id = self.graph.push(host, task);
        self.host_starts.push((start_ns, id));
        if let Some(context) = context {
            self.task_contexts.insert(id, context);
        }
        id
    }

    /// Phase, line and module of a context.
    fn describe(&self, task: &mut Task, contexts: &Contexts<'_>, context: Option<ContextId>) {
        let Some(context) = context.and_then(|context| contexts.get(context)) else { return };
        let log = self.join.places.log;
        task.phase = context.phase;
        task.line = log.stacks.top(context.line).and_then(|frame| {
            let code = self.manifest?.codes.get(frame.code as usize)?;
            Some((FileId(code.file), frame.line))
        });
        let markers = context.markers().into_iter().flat_map(|marker| log.markers.walk(marker));
        task.module = markers
            .filter_map(|marker| match marker {
                Marker::Module(module) => Some(module),
                Marker::Phase(_) => None,
            })
            .next();
    }

    /// Threads beside the host that launch something: when each call came, and no more.
    fn other_threads(&mut self) {
        let threads = self.host_threads();
        let trace = self.join.trace;
        for (number, _) in trace.threads.iter().enumerate() {
            let thread = ThreadId(number as u32);
            if threads.get(number) == Some(&true) {
                continue;
            }
            let calls = self.calls_of(|of| of == thread);
            if calls.is_empty() {
                continue;
            }
            let resource = self.graph.resource(&Resource::OtherThread(number as u32));
            let mut now = self.window.0;
            for call in &calls {
                let start_ns = call.start_ns.max(now);
                let end_ns = call.end_ns.max(start_ns);
                let gap = start_ns.saturating_sub(now) as f64;
                self.graph.push(resource, Task::new(TaskKind::HostGap, gap, Phase::Other));
                let kind =
                    if call.what == CallKind::Wait { TaskKind::Wait } else { TaskKind::Launch };
                let duration_ns = end_ns.saturating_sub(start_ns) as f64;
                let id = self.graph.push(resource, Task::new(kind, duration_ns, Phase::Other));
                self.launched_by.insert(call.index, (id, end_ns));
                now = end_ns;
            }
            self.order.extend(calls);
        }
        self.order.sort_unstable_by_key(|call| (call.start_ns, call.end_ns, call.index));
    }

    fn gpu(&mut self, contexts: &Contexts<'_>) {
        let trace = self.join.trace;
        let mut by_call: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut by_stream: BTreeMap<(i64, i64), Vec<usize>> = BTreeMap::new();
        let mut left_over: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for (index, activity) in trace.activities.iter().enumerate() {
            let stream = (activity.device.unwrap_or(0), activity.stream.unwrap_or(0));
            match self.launches.call(index).filter(|call| self.launched_by.contains_key(call)) {
                Some(call) => {
                    by_call.entry(call).or_default().push(index);
                    by_stream.entry(stream).or_default().push(index);
                }
                None if activity.start_ns < self.window.0 => {
                    let end = left_over.entry(stream).or_insert(i64::MIN);
                    *end = (*end).max(activity.end_ns());
                }
                None => {}
            }
        }
        // The tasks, each in its place on its stream.
        let mut tasks: HashMap<usize, TaskId> = HashMap::new();
        let mut names: HashMap<_, u32> = HashMap::new();
        for (&(device, stream), members) in &mut by_stream {
            members.sort_unstable_by_key(|index| {
                trace.activities.get(*index).map(|activity| (activity.start_ns, activity.end_ns()))
            });
            let resource = self.graph.resource(&Resource::Stream(device, stream));
            for index in members {
                let Some(activity) = trace.activities.get(*index) else { continue };
                let mut task = Task::new(
                    task_kind(trace.text(activity.name), activity),
                    activity.duration_ns as f64,
                    Phase::Other,
                );
                let name = *names.entry(activity.name).or_insert_with(|| {
                    self.graph.names.push(trace.text(activity.name).to_owned());
                    self.graph.names.len() as u32 - 1
                });
                task.name = Some(name);
                task.bytes = activity.bytes;
                let call = self.launches.call(*index).and_then(|call| self.launched_by.get(&call));
                if let Some((launch, _)) = call {
                    task.launched_by = Some(*launch);
                    if let Some(launch) = self.graph.task(*launch) {
                        (task.operator, task.call) = (launch.operator, launch.call);
                    }
                }
                self.describe(&mut task, contexts, self.launches.context(*index));
                if let Some(launch) = task.launched_by.and_then(|launch| self.graph.task(launch))
                    && matches!(launch.phase, Phase::Optimizer | Phase::Data)
                {
                    task.phase = launch.phase;
                }
                tasks.insert(*index, self.graph.push(resource, task));
            }
        }
        self.busy_until_ns = vec![0.0; self.graph.resources().len()];
        for ((device, stream), end_ns) in &left_over {
            let resource = self.graph.find(&Resource::Stream(*device, *stream));
            let slot = resource.and_then(|it| self.busy_until_ns.get_mut(it.0 as usize));
            if let Some(slot) = slot {
                *slot = end_ns.saturating_sub(self.window.0).max(0) as f64;
            }
        }
        self.dependencies(&by_call, &by_stream, &left_over, &tasks);
    }

    /// What waits for what, in the order of the host's calls.
    fn dependencies(
        &mut self,
        by_call: &HashMap<usize, Vec<usize>>,
        by_stream: &BTreeMap<(i64, i64), Vec<usize>>,
        left_over: &BTreeMap<(i64, i64), i64>,
        tasks: &HashMap<usize, TaskId>,
    ) {
        let trace = self.join.trace;
        let mut before: HashMap<usize, i64> = HashMap::new();
        for (stream, members) in by_stream {
            let mut end_ns = left_over.get(stream).copied().unwrap_or(i64::MIN);
            for index in members {
                before.insert(*index, end_ns);
                end_ns = end_ns.max(trace.activities.get(*index).map_or(end_ns, Activity::end_ns));
            }
        }
        // By stream: what was launched so far, as when it ended and its task.
        let mut launched: BTreeMap<(i64, i64), Vec<(i64, TaskId)>> = BTreeMap::new();
        let mut count = 0_usize;
        // The streams and how far each had come when another one was told to wait.
        let mut told_to_wait: Option<Vec<((i64, i64), usize)>> = None;
        for call in self.order.clone() {
            match call.what {
                CallKind::StreamWait => {
                    let reached = launched.iter().map(|(stream, list)| (*stream, list.len()));
                    told_to_wait = Some(reached.collect());
                }
                CallKind::Wait => {
                    if let Some((task, _)) = self.launched_by.get(&call.index).copied() {
                        let until = call.end_ns.saturating_add(CLOCKS_NS);
                        self.let_host_wait(task, call, latest(&launched, until, None));
                    }
                }
                CallKind::Launch => {
                    let Some((launch, _)) = self.launched_by.get(&call.index).copied() else {
                        continue;
                    };
                    let done = launched.values().map(|list| ended_by(list, call.start_ns)).sum();
                    let is_full = count.saturating_sub(done) >= FULL_QUEUE;
                    if is_full && call.end_ns.saturating_sub(call.start_ns) > LONGEST_LAUNCH_NS {
                        let dependency = latest(&launched, call.end_ns, None);
                        self.let_host_wait(launch, call, dependency);
                    }
                    for index in by_call.get(&call.index).into_iter().flatten() {
                        let (Some(activity), Some(task)) =
                            (trace.activities.get(*index), tasks.get(index).copied())
                        else {
                            continue;
                        };
                        let stream = (activity.device.unwrap_or(0), activity.stream.unwrap_or(0));
                        let waits_for = told_to_wait.take().and_then(|reached| {
                            let until = activity.start_ns.saturating_add(CLOCKS_NS);
                            latest_of(&launched, &reached, until, stream)
                        });
                        let behind = before.get(index).copied().unwrap_or(i64::MIN);
                        self.connect(launch, call, task, activity, behind, waits_for);
                        launched.entry(stream).or_default().push((activity.end_ns(), task));
                        count += 1;
                        self.block_host(launch, call, task, activity);
                    }
                }
            }
        }
    }

    /// Lets a task of the host wait for one of a GPU; what it takes after that is its own.
    fn let_host_wait(&mut self, task: TaskId, call: Call, dependency: Option<(i64, TaskId)>) {
        let Some((end_ns, from)) = dependency else { return };
        let own_ns = call.end_ns.saturating_sub(call.start_ns.max(end_ns)).max(0) as f64;
        if let Some(task) = self.graph.task_mut(task) {
            task.duration_ns = task.duration_ns.min(own_ns);
        }
        self.graph.wait(from, task, 0.0);
    }

    /// A copy that the host waits for within the very call that asks for it.
    fn block_host(&mut self, launch: TaskId, call: Call, task: TaskId, activity: &Activity) {
        let is_copy = self.graph.task(task).is_some_and(|task| task.kind == TaskKind::HostCopy);
        if !is_copy || activity.end_ns() > call.end_ns.saturating_add(CLOCKS_NS) {
            return;
        }
        let total_ns = self.graph.task(launch).map_or(0.0, |task| task.duration_ns);
        let asking_ns = activity.start_ns.saturating_sub(call.start_ns).max(0) as f64;
        let after_ns = call.end_ns.saturating_sub(activity.end_ns()).max(0) as f64;
        let asking_ns = asking_ns.min(total_ns).min(LAUNCH_DELAY_NS as f64);
        let Some(mut wait) = self.graph.task(launch).copied() else { return };
        (wait.kind, wait.duration_ns) = (TaskKind::Wait, after_ns.min(total_ns));
        if let Some(launch) = self.graph.task_mut(launch) {
            launch.duration_ns = asking_ns;
        }
        let wait = self.graph.insert_after(launch, wait);
        self.graph.wait(task, wait, 0.0);
        // The kernel's own delay was counted to the end of the call, which is now elsewhere.
        if let Some(edge) = self.graph.edges.iter_mut().rev().find(|edge| edge.to == task) {
            let started = activity.start_ns.saturating_sub(call.start_ns) as f64;
            edge.lag_ns = (started - asking_ns).clamp(0.0, LAUNCH_DELAY_NS as f64);
        }
    }

    /// Lets a task of a GPU wait for its launch, for the one before on its stream and for another
    /// stream.
    fn connect(
        &mut self,
        launch: TaskId,
        call: Call,
        task: TaskId,
        activity: &Activity,
        behind_ns: i64,
        waits_for: Option<(i64, TaskId)>,
    ) {
        let start_ns = activity.start_ns;
        let since = |time_ns: i64| start_ns.saturating_sub(time_ns);
        let after_launch = since(call.end_ns).max(call.start_ns.saturating_sub(call.end_ns));
        let after_stream = since(behind_ns).max(0);
        // A call that returns after its copy tells no more than when it began.
        let asked_at = if call.end_ns >= activity.end_ns() { call.start_ns } else { call.end_ns };
        let came_behind = behind_ns >= asked_at && after_stream <= BEHIND_NS;
        let waited = waits_for.filter(|(end_ns, _)| {
            *end_ns > behind_ns && *end_ns > call.end_ns && since(*end_ns) <= BEHIND_NS
        });
        if let Some((end_ns, from)) = waits_for {
            let lag = if waited.is_some() { since(end_ns).max(0) as f64 } else { 0.0 };
            self.graph.wait(from, task, lag);
        }
        let is_explained = came_behind || waited.is_some();
        let delay = if is_explained { after_launch.min(LAUNCH_DELAY_NS) } else { after_launch };
        self.graph.wait(launch, task, delay as f64);
        let between = if came_behind { after_stream as f64 } else { BETWEEN_NS };
        if let Some(task) = self.graph.task_mut(task) {
            task.after_ns = between.min(after_stream as f64);
        }
    }

    /// The task of the host that ran at a time, or the last one before it.
    fn host_task_at(&self, time_ns: i64) -> Option<TaskId> {
        let next = self.host_starts.partition_point(|(start_ns, _)| *start_ns <= time_ns);
        self.host_starts.get(next.saturating_sub(1)).map(|(_, task)| *task)
    }

    /// What autograd adds to the parameters, with its shape: the node `AccumulateGrad` takes it.
    fn gradients(&mut self) {
        let trace = self.join.trace;
        let mut sizes: HashMap<_, Option<f64>> = HashMap::new();
        let mut found = Vec::new();
        for operator in &trace.operators {
            if !(self.window.0..self.window.1).contains(&operator.start_ns) {
                continue;
            }
            let key = (operator.name, operator.input_dims, operator.input_types);
            let bytes = *sizes.entry(key).or_insert_with(|| {
                let name = trace.text(operator.name);
                if !name.ends_with("AccumulateGrad") || name.starts_with(ENGINE_PREFIX) {
                    return None;
                }
                let text = |id| trace.text_or_empty(id);
                let (dims, types) = (text(operator.input_dims), text(operator.input_types));
                let node = Operator::from_trace(name, dims, types, "")?;
                node.input_tensors().next()?.bytes()
            });
            let ready = bytes.and_then(|_| self.host_task_at(operator.end_ns()));
            if let (Some(bytes), Some(ready)) = (bytes, ready) {
                let module = self.graph.task(ready).and_then(|task| task.module);
                found.push((operator.end_ns(), Gradient { bytes, ready, module }));
            }
        }
        found.sort_by_key(|(end_ns, _)| *end_ns);
        self.graph.gradients = found.into_iter().map(|(_, gradient)| gradient).collect();
    }

    fn memory(&mut self, contexts: &mut Contexts<'_>, recording: &Recording, profile: &Profile) {
        let replay = memory::replay(&recording.trace, self.manifest, Some(self.window));
        let has_addresses = replay.events.iter().all(|event| event.address.is_some());
        // A trace of a GPU may tell of the host's memory alone.
        let of_device = |event: &MemoryEvent| event.device_type.is_some_and(|kind| kind != 0);
        let tells = self.join.trace.activities.is_empty() || replay.events.iter().any(of_device);
        self.graph.memory.is_known =
            profile.memory.peak_bytes > 0 && !replay.events.is_empty() && has_addresses && tells;
        if !self.graph.memory.is_known {
            return;
        }
        let classifier = Classifier::new(self.join, contexts, self.manifest, &replay);
        let moment = |event: Option<usize>| {
            let index = event?;
            let time_ns = replay.events.get(index)?.time_ns;
            let task = self.host_task_at(time_ns)?;
            Some(Moment { task, event: u32::try_from(index).ok()? })
        };
        let mut blocks = Vec::with_capacity(replay.blocks.len());
        for block in &replay.blocks {
            let allocated = moment(block.allocated);
            let made_by = allocated.and_then(|moment| self.graph.task(moment.task));
            blocks.push(Block {
                bytes: block.bytes as f64,
                kind: block_kind(classifier.kind(block)),
                allocated,
                freed: moment(block.freed),
                line: made_by.and_then(|task| task.line),
                module: block.module.or_else(|| made_by.and_then(|task| task.module)),
                call: made_by.and_then(|task| task.call),
            });
        }
        self.graph.memory.blocks = blocks;
    }
}

/// PyTorch's own ranges, which tell phases where the recording has no marks of ours.
struct OwnRanges {
    updates: Vec<(i64, i64)>,
    loading: Vec<(i64, i64)>,
    /// Where one of them begins or ends, in order.
    borders: Vec<i64>,
}

impl OwnRanges {
    fn new(trace: &Trace) -> OwnRanges {
        let updates = annotated(trace, "Optimizer.");
        let mut loading = annotated(trace, LOADING);
        if loading.is_empty() {
            loading = loading_of_2021(trace);
        }
        let both = updates.iter().chain(&loading);
        let mut borders: Vec<i64> = both.flat_map(|(start, end)| [*start, *end]).collect();
        borders.sort_unstable();
        OwnRanges { updates, loading, borders }
    }

    fn phase_at(&self, time_ns: i64) -> Option<Phase> {
        if is_during(&self.loading, time_ns) {
            Some(Phase::Data)
        } else {
            is_during(&self.updates, time_ns).then_some(Phase::Optimizer)
        }
    }

    fn next_border(&self, after_ns: i64) -> Option<i64> {
        self.borders.get(self.borders.partition_point(|border| *border <= after_ns)).copied()
    }
}

/// Traces of 2021 have the ranges of loaders among operators.
fn loading_of_2021(trace: &Trace) -> Vec<(i64, i64)> {
    let mut is_loading: HashMap<_, bool> = HashMap::new();
    let ranges = trace.operators.iter().filter(|operator| {
        *is_loading
            .entry(operator.name)
            .or_insert_with(|| trace.text(operator.name).starts_with(LOADING))
    });
    let mut ranges: Vec<_> = ranges.map(|one| (one.start_ns, one.end_ns())).collect();
    ranges.sort_unstable();
    ranges
}

struct HostSweep<'a> {
    host: ResourceId,
    calls: &'a [Call],
    next_call: usize,
    next_piece: usize,
}

/// How many of a stream's tasks had ended by then. Those of a stream end in order.
fn ended_by(list: &[(i64, TaskId)], time_ns: i64) -> usize {
    list.partition_point(|(end_ns, _)| *end_ns <= time_ns)
}

/// Of what was launched so far, what ended last by then; of all streams but one.
fn latest(
    launched: &BTreeMap<(i64, i64), Vec<(i64, TaskId)>>,
    until_ns: i64,
    but: Option<(i64, i64)>,
) -> Option<(i64, TaskId)> {
    launched
        .iter()
        .filter(|(stream, _)| Some(**stream) != but)
        .filter_map(|(_, list)| list.get(ended_by(list, until_ns).checked_sub(1)?).copied())
        .max_by_key(|(end_ns, _)| *end_ns)
}

/// The same among what streams had been given when one was told to wait.
fn latest_of(
    launched: &BTreeMap<(i64, i64), Vec<(i64, TaskId)>>,
    reached: &[((i64, i64), usize)],
    until_ns: i64,
    but: (i64, i64),
) -> Option<(i64, TaskId)> {
    reached
        .iter()
        .filter(|(stream, _)| *stream != but)
        .filter_map(|(stream, reached)| {
            let list = launched.get(stream)?.get(..*reached)?;
            list.last().copied().filter(|(end_ns, _)| *end_ns <= until_ns)
        })
        .max_by_key(|(end_ns, _)| *end_ns)
}

fn task_kind(name: &str, activity: &Activity) -> TaskKind {
    match kind_of_work(name, activity) {
        WorkKind::Kernel | WorkKind::Product(_) => TaskKind::Kernel,
        WorkKind::Communication => TaskKind::Communication,
        WorkKind::HostCopy => TaskKind::HostCopy,
        WorkKind::DeviceCopy => TaskKind::DeviceCopy,
    }
}

fn block_kind(kind: Kind) -> BlockKind {
    match kind {
        Kind::Weights => BlockKind::Weights,
        Kind::Gradients => BlockKind::Gradients,
        Kind::OptimizerState => BlockKind::OptimizerState,
        Kind::Activations => BlockKind::Activations,
        Kind::Batch => BlockKind::Batch,
        Kind::Temporaries => BlockKind::Temporaries,
        Kind::Other => BlockKind::Other,
    }
}

#[cfg(test)]
mod tests;
