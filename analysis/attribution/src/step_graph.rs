//! Builds the graph of a recorded iteration: tasks of the host and of GPUs, and their dependencies.
//!
//! The host is one resource: the thread of the training loop, and autograd's threads while the
//! former waits for them. Dependencies that a trace does not contain are inferred from times: the
//! kernel that a call waited for (the last one that ended during the wait), and the stream that
//! another one waited for (if `cudaStreamWaitEvent` was called before the launch).

mod gpu;
mod held;
mod host;
mod own_ranges;
mod rank_waits;

use super::communication::Communication;
use super::contexts::{ContextId, Contexts};
use super::costs::Costs;
use super::device::Launches;
use super::join::Join;
use super::recorded_step::{StepOperators, waits};
use super::scale::Scale;
use super::steps::Steps;
use super::timeline::{self, Piece};
use own_ranges::{OwnRanges, loader_has_workers};
use rank_waits::RankWaits;
use ridgeline_base::intervals::Interval;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_graph::memory::peak;
use ridgeline_graph::recorded::{Measurement, NoGraph, Recorded, calibrated};
use ridgeline_graph::simulate;
use ridgeline_profile::{Phase, Profile};
use ridgeline_recording::Recording;
use ridgeline_recording::line_log::LineLog;
use ridgeline_recording::manifest::Manifest;
use ridgeline_recording::trace::ThreadId;

/// The maximum number of tasks of a graph; a recording with more is rejected.
const MAX_TASKS: usize = 2_000_000;

/// Builds the graph of a recording's iteration: the measured one, or for a trace recorded
/// elsewhere, the one of median length. `profile` is the result of [`super::attribute`] for the
/// same recording.
///
/// # Errors
/// If the recording has no iteration, nothing ran in it, it has more tasks than can be simulated,
/// or its times contradict each other.
pub fn step_graph(recording: &Recording, profile: &Profile) -> Result<Recorded, NoGraph> {
    let steps = Steps::new(recording);
    check(recording, &steps)?;
    let manifest = recording.manifest.as_ref();
    let empty_log = LineLog::default();
    let log = recording.lines.as_ref().unwrap_or(&empty_log);
    let join = Join::new(&recording.trace, log, &steps.windows);
    let mut contexts = Contexts::new(&join, manifest, recording.lines.is_none());
    let pieces = timeline::pieces(&join, &mut contexts);
    let launches = Launches::new(&join, &mut contexts, recording.manifest.as_ref());
    let waits = Communication::new(&join, &pieces, &launches).host_waits();
    let joined = AttributionResults {
        recording,
        steps: &steps,
        join: &join,
        pieces: &pieces,
        launches: &launches,
        waits: &waits,
    };
    joined.graph(&mut contexts, profile)
}

/// Returns the window of the iteration, if it can be replayed. The recorder's wait for the GPU at
/// the end is excluded, because other iterations do not have it.
fn check(recording: &Recording, steps: &Steps) -> Result<(i64, i64), NoGraph> {
    let trace = &recording.trace;
    let window = match &recording.manifest {
        Some(_) => steps.measured,
        None => steps.median_window(),
    };
    let window = window.ok_or(NoGraph::NoIteration)?;
    if trace.operators.len() + trace.activities.len() + trace.runtime_calls.len() > MAX_TASKS {
        return Err(NoGraph::TooLarge { most: MAX_TASKS });
    }
    Ok((window.0, program_end(recording, window)))
}

/// Returns the time at which the program reached the end of a window, after which only the recorder
/// ran.
fn program_end(recording: &Recording, (start_ns, end_ns): (i64, i64)) -> i64 {
    let threads = recording.lines.iter().flat_map(|lines| &lines.threads);
    let recorder = threads.filter(|thread| thread.main).flat_map(|thread| &thread.recorder);
    let mut at_end =
        recorder.filter(|(from_ns, until_ns)| (*from_ns..=*until_ns).contains(&end_ns));
    at_end.next().map_or(end_ns, |(from_ns, _)| (*from_ns).clamp(start_ns, end_ns))
}

/// The results of attribution for a recording.
pub(super) struct AttributionResults<'a> {
    pub recording: &'a Recording,
    pub steps: &'a Steps,
    pub join: &'a Join<'a>,
    pub pieces: &'a [Piece],
    pub launches: &'a Launches,
    /// Intervals in which the loop's thread waits for other ranks.
    pub waits: &'a [Interval],
}

impl<'a> AttributionResults<'a> {
    /// See [`step_graph`].
    pub(crate) fn graph(
        &self,
        contexts: &mut Contexts<'a>,
        profile: &Profile,
    ) -> Result<Recorded, NoGraph> {
        let AttributionResults { recording, steps, join, pieces, launches, waits } = *self;
        let window = check(recording, steps)?;
        let trace = &recording.trace;
        let manifest = recording.manifest.as_ref();
        let operators = StepOperators::new(trace, window);
        let mut graph = Graph::default();
        graph.operators = operators.operators();
        graph.loader_has_workers = loader_has_workers(trace);
        let mut builder = Builder {
            join,
            manifest,
            window,
            operators,
            ranges: OwnRanges::new(trace, recording.lines.is_some()),
            rank_waits: RankWaits(waits),
            pieces,
            launches,
            graph,
            host_starts: Vec::new(),
            task_contexts: Vec::new(),
            launched_by: vec![None; trace.runtime_calls.len()],
            order: Vec::new(),
            busy_until_ns: Vec::new(),
            earlier: Vec::new(),
        };
        builder.host(contexts);
        builder.other_threads();
        builder.gpu(contexts);
        builder.memory(contexts, recording, profile);
        builder.gradients();
        let Builder { mut graph, busy_until_ns, task_contexts, earlier, .. } = builder;
        if graph.tasks.is_empty() {
            return Err(NoGraph::NoIteration);
        }

        let recorded_ns = recorded_end(join, window, &graph, launches);
        let replayed = simulate::once(&graph, &busy_until_ns)?;
        let replay_error = replayed.iteration_ns / recorded_ns - 1.0;
        if graph.memory.is_known {
            let block_peak = peak(&graph, &replayed).unwrap_or(0.0);
            graph.memory.unexplained = profile.memory.peak_bytes as f64 - block_peak;
        }
        if trace.activities.is_empty() {
            // On a CPU each context takes its attributed time without the profiler.
            let are_whole_periods = steps.are_whole_periods();
            let costs = Costs::new(join, contexts, pieces, launches, waits, are_whole_periods);
            let scale = steps.scale(recording, &costs, contexts);
            scale_host(&mut graph, &task_contexts, &costs, &scale);
        }
        add_earlier_work(&mut graph, &earlier);
        let time_ns = steps.iteration_at_ns(window.0);
        let measured = Measurement { time_ns, is_unprofiled: steps.has_unprofiled_time() };
        calibrated(graph, measured, replay_error)
    }
}

/// Adds work that was launched before the iteration at the start of its stream. In a steady state,
/// the end of an iteration's own work runs during the next one, so this is only the work in excess
/// of that.
fn add_earlier_work(graph: &mut Graph, earlier: &[(Resource, f64)]) {
    for (stream, time_ns) in earlier {
        let task = Task::new(TaskKind::EarlierWork, *time_ns, Phase::Other);
        let stream = graph.resource(stream);
        let id = match graph.first(stream) {
            Some(first) => graph.insert_before(first, task),
            None => graph.push(stream, task),
        };
        // It ran during the iteration, so not during the previous one.
        let host = graph.find(&Resource::Host);
        if let Some(last) = host.and_then(|host| graph.last(host)) {
            graph.wait_across(last, id, 0.0);
        }
    }
}

/// Returns the end of the iteration's last task, in nanoseconds since the iteration began.
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

/// Scales each host context to its time without the profiler.
fn scale_host(graph: &mut Graph, contexts: &[(TaskId, ContextId)], costs: &Costs, scale: &Scale) {
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
    operators: StepOperators,
    ranges: OwnRanges,
    rank_waits: RankWaits<'a>,
    pieces: &'a [Piece],
    launches: &'a Launches,
    graph: Graph,
    /// The host's tasks with their start times, in order.
    host_starts: Vec<(i64, TaskId)>,
    task_contexts: Vec<(TaskId, ContextId)>,
    /// By runtime call: its task and end, if it is a task.
    launched_by: Vec<Option<(TaskId, i64)>>,
    /// Runtime calls in the host's order.
    order: Vec<Call>,
    busy_until_ns: Vec<f64>,
    /// By stream: nanoseconds of work launched before the iteration, see [`add_earlier_work`].
    earlier: Vec<(Resource, f64)>,
}

/// A relevant runtime call.
#[derive(Clone, Copy, Debug)]
struct Call {
    start_ns: i64,
    end_ns: i64,
    /// Index into [`Trace::runtime_calls`](ridgeline_recording::trace::Trace::runtime_calls).
    index: usize,
    what: CallKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    Launch,
    Wait,
    /// Another stream has to wait.
    StreamWait,
}

impl Builder<'_> {
    /// Returns the task and end of a runtime call.
    fn task_of(&self, call: usize) -> Option<(TaskId, i64)> {
        self.launched_by.get(call).copied().flatten()
    }

    fn set_task_of(&mut self, call: usize, task: TaskId, end_ns: i64) {
        if let Some(entry) = self.launched_by.get_mut(call) {
            *entry = Some((task, end_ns));
        }
    }

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
}

#[cfg(test)]
mod tests;
