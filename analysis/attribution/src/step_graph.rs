//! From a recording to the graph of its iteration: tasks of the host and of GPUs, and what each
//! waits for.
//!
//! The host is one resource: the thread of the training loop, and autograd's threads while that one
//! waits for them. What a trace does not say is taken from its times: which kernel a call waited for
//! (the last one that ended while it waited), and for which stream another one waited (where
//! `cudaStreamWaitEvent` was called before the launch).

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
use super::recorded_step::{StepOperators, median_window, waits};
use super::scale::Scale;
use super::steps::Steps;
use super::timeline::{self, Piece};
use own_ranges::{OwnRanges, loader_has_workers};
use rank_waits::RankWaits;
use ridgeline_base::intervals::Interval;
use ridgeline_graph::graph::{Graph, TaskId};
use ridgeline_graph::memory::peak;
use ridgeline_graph::recorded::{NoGraph, Recorded, calibrated};
use ridgeline_graph::simulate;
use ridgeline_profile::Profile;
use ridgeline_recording::Recording;
use ridgeline_recording::line_log::LineLog;
use ridgeline_recording::manifest::Manifest;
use ridgeline_recording::trace::ThreadId;

/// Tasks of one graph; a recording with more is refused.
const MOST_TASKS: usize = 2_000_000;

/// The graph of a recording's iteration: the measured one, or of a trace that was recorded elsewhere
/// the one of median length. `profile` is what [`super::attribute`] made of the same recording.
///
/// # Errors
/// Where the recording has no iteration, nothing ran in it, it holds more than can be replayed, or its
/// times contradict each other.
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
    let joined = Joined {
        recording,
        steps: &steps,
        join: &join,
        pieces: &pieces,
        launches: &launches,
        waits: &waits,
    };
    joined.graph(&mut contexts, profile)
}

/// The window of the iteration, where it can be replayed. The recorder's own wait for the GPU at its end is
/// no part of it: no other iteration has one.
fn check(recording: &Recording, steps: &Steps) -> Result<(i64, i64), NoGraph> {
    let trace = &recording.trace;
    let window = match &recording.manifest {
        Some(_) => steps.measured,
        None => median_window(&steps.windows),
    };
    let window = window.ok_or(NoGraph::NoIteration)?;
    if trace.operators.len() + trace.activities.len() + trace.runtime_calls.len() > MOST_TASKS {
        return Err(NoGraph::TooLarge { most: MOST_TASKS });
    }
    Ok((window.0, program_end(recording, window)))
}

/// When the program had come to the end of a window, behind which only the recorder ran.
fn program_end(recording: &Recording, (start_ns, end_ns): (i64, i64)) -> i64 {
    let threads = recording.lines.iter().flat_map(|lines| &lines.threads);
    let recorder = threads.filter(|thread| thread.main).flat_map(|thread| &thread.recorder);
    let mut at_end =
        recorder.filter(|(from_ns, until_ns)| (*from_ns..=*until_ns).contains(&end_ns));
    at_end.next().map_or(end_ns, |(from_ns, _)| (*from_ns).clamp(start_ns, end_ns))
}

/// What attribution knows of a recording.
pub(super) struct Joined<'a> {
    pub recording: &'a Recording,
    pub steps: &'a Steps,
    pub join: &'a Join<'a>,
    pub pieces: &'a [Piece],
    pub launches: &'a Launches,
    /// Where the loop's thread waits for other ranks.
    pub waits: &'a [Interval],
}

impl<'a> Joined<'a> {
    /// See [`step_graph`].
    pub(crate) fn graph(
        &self,
        contexts: &mut Contexts<'a>,
        profile: &Profile,
    ) -> Result<Recorded, NoGraph> {
        let Joined { recording, steps, join, pieces, launches, waits } = *self;
        let window = check(recording, steps)?;
        let trace = &recording.trace;
        let manifest = recording.manifest.as_ref();
        let asked = StepOperators::new(trace, window);
        let mut graph = Graph::default();
        graph.operators = asked.operators();
        graph.loader_has_workers = loader_has_workers(trace);
        let mut builder = Builder {
            join,
            manifest,
            window,
            asked,
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
        };
        builder.host(contexts);
        builder.other_threads();
        builder.gpu(contexts);
        builder.memory(contexts, recording, profile);
        builder.gradients();
        let Builder { mut graph, busy_until_ns, task_contexts, .. } = builder;
        if graph.tasks.is_empty() {
            return Err(NoGraph::NoIteration);
        }

        let recorded_ns = recorded_end(join, window, &graph, launches);
        let replayed = simulate::once(&graph, &busy_until_ns)?;
        let replay_error = replayed.iteration_ns / recorded_ns - 1.0;
        if graph.memory.is_known {
            let of_blocks = peak(&graph, &replayed).unwrap_or(0.0);
            graph.memory.unexplained = profile.memory.peak_bytes as f64 - of_blocks;
        }
        if trace.activities.is_empty() {
            // On a CPU each context takes what attribution says that it takes without a profiler.
            let whole = steps.are_whole_periods();
            let costs = Costs::new(join, contexts, pieces, launches, waits, whole);
            let scale = steps.scale(&costs, contexts);
            scale_host(&mut graph, &task_contexts, &costs, &scale);
        }
        calibrated(graph, steps.iteration_at_ns(window.0), replay_error)
    }
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
    asked: StepOperators,
    ranges: OwnRanges,
    rank_waits: RankWaits<'a>,
    pieces: &'a [Piece],
    launches: &'a Launches,
    graph: Graph,
    /// The host's tasks with when they began, in order.
    host_starts: Vec<(i64, TaskId)>,
    task_contexts: Vec<(TaskId, ContextId)>,
    /// By runtime call that is a task: which, and when that ended.
    launched_by: Vec<Option<(TaskId, i64)>>,
    /// Calls in the order in which the host made them.
    order: Vec<Call>,
    busy_until_ns: Vec<f64>,
}

/// A call of the runtime that matters.
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
    /// Another stream is to wait.
    StreamWait,
}

impl Builder<'_> {
    /// The task that a runtime call is, and when that ended.
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
