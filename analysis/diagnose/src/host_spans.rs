//! The memory and time of model calls that no backward pass uses.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use ridgeline_graph::graph::{Resource, TaskId, TaskKind};
use ridgeline_graph::memory::{Moment, peak};
use ridgeline_profile::Phase;
use ridgeline_python::semantics::module::Span;

use super::evidence::Evidence;
use super::line_sums::Line;
use super::source_queries::first_node;

/// The host tasks of some lines of a function and of everything that they call, as spans of host
/// tasks.
pub(crate) struct HostSpans {
    /// All tasks of the host, in order.
    host: Vec<TaskId>,
    /// Ranges of indices into `host`: from the first task of the lines to the one after the last.
    spans: Vec<(usize, usize)>,
}

impl HostSpans {
    /// Finds what some lines of one function run. One of them ran as `ran` and is `today` in the
    /// current text. A span ends where the host returns to another line of this function.
    pub(crate) fn new(
        evidence: &Evidence<'_>,
        ran: Line,
        (module, today): (usize, u32),
        is_at: impl Fn(Line) -> bool,
    ) -> HostSpans {
        let text = evidence.program.module(module);
        let lines = |span: &Span| text.line(span.start)..=text.line(span.end.saturating_sub(1));
        let function = first_node(text, today).and_then(|node| text.function_at(node.start_byte()));
        let whole = function.and_then(|at| text.functions.lookup(at)).map(|one| lines(&one.span));
        // The called function may be nested in this one or next to it in the same file. It begins
        // at its `def`.
        let inner = text.functions.iter().filter(|one| one.outer == function);
        let inner: Vec<RangeInclusive<u32>> = inner.map(|one| lines(&one.span)).collect();
        // Offset from the lines that ran to the current text: the text of the function is
        // unchanged.
        let shift = i64::from(today) - i64::from(ran.1);
        let is_own = |line: Line| {
            let today = u32::try_from(i64::from(line.1) + shift).unwrap_or(0);
            line.0 == ran.0
                && whole.as_ref().is_none_or(|whole| whole.contains(&today))
                && !inner.iter().any(|lines| lines.contains(&today))
        };
        let graph = evidence.graph();
        let host = graph.find(&Resource::Host);
        let host: Vec<TaskId> = host.map(|host| graph.on(host).collect()).unwrap_or_default();
        let mut spans = Vec::new();
        let mut began = None;
        for (place, id) in host.iter().enumerate() {
            let task = graph.task(*id);
            let Some((line, phase)) = task.and_then(|task| Some((task.line?, task.phase))) else {
                continue;
            };
            // Backward tasks have the line of their forward operator but run later.
            if is_at(line) && phase != Phase::Backward {
                began.get_or_insert(place);
            } else if began.is_some() && is_own(line) {
                spans.extend(began.take().map(|began| (began, place)));
            }
        }
        spans.extend(began.map(|began| (began, host.len())));
        HostSpans { host, spans }
    }

    /// The host tasks in the spans.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        let within = self.spans.iter().filter_map(|(from, to)| self.host.get(*from..*to));
        within.flatten().copied()
    }

    /// Whether the lines did not run in the iteration.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The part of peak memory that is there because tensors of the calls outlive them, in bytes.
    /// Without an autograd graph each such tensor would live until the one after the next is
    /// allocated, as the input and output of a layer do, and the last one is the result. Returns
    /// `None` if the recording has no memory events.
    pub(crate) fn retained_at_peak_bytes(&self, evidence: &Evidence<'_>) -> Option<f64> {
        let graph = evidence.graph();
        let schedule = &evidence.run.recorded.schedule;
        let now = peak(graph, schedule)?;
        let place: HashMap<TaskId, usize> =
            self.host.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let mut without = graph.clone();
        for (from, until) in &self.spans {
            let within = |task: TaskId| place.get(&task).is_some_and(|at| from <= at && at < until);
            let mut retained: Vec<(Moment, usize)> = Vec::new();
            for (index, block) in graph.memory.blocks.iter().enumerate() {
                let allocated = block.allocated.filter(|allocated| within(allocated.task));
                let outlives = block.freed.is_none_or(|freed| !within(freed.task));
                retained.extend(allocated.filter(|_| outlives).map(|allocated| (allocated, index)));
            }
            retained.sort_unstable_by_key(|(allocated, index)| (allocated.event, *index));
            for (at, (_, index)) in retained.iter().enumerate() {
                let before = |allocated: &Moment| Moment {
                    event: allocated.event.saturating_sub(1),
                    ..*allocated
                };
                let after = |allocated: &Moment| Moment {
                    event: allocated.event.saturating_add(1),
                    ..*allocated
                };
                let freed = retained.get(at + 2).map(|(allocated, _)| before(allocated));
                let freed =
                    freed.or_else(|| retained.get(at + 1).map(|(allocated, _)| after(allocated)));
                if let (Some(freed), Some(block)) = (freed, without.memory.blocks.get_mut(*index)) {
                    block.freed = Some(freed);
                }
            }
        }
        Some((now - peak(&without, schedule)?).max(0.0))
    }

    /// The time of operators within the calls in modules of some types, in nanoseconds: on the GPU
    /// if the iteration ran on one, otherwise on the host.
    pub(crate) fn time_of(&self, evidence: &Evidence<'_>, is_wanted: impl Fn(&str) -> bool) -> f64 {
        let graph = evidence.graph();
        let modules = &evidence.profile().modules;
        let is_in_module = |module: Option<u32>| {
            let module = module.and_then(|module| modules.get(module as usize));
            module.is_some_and(|module| is_wanted(&module.type_name))
        };
        let here: HashSet<TaskId> = self.tasks().collect();
        let on_gpu = evidence.on_gpu();
        graph
            .iter()
            .filter(|(_, task)| is_in_module(task.module))
            .filter(|(id, task)| match on_gpu {
                true => task.launched_by.is_some_and(|launch| here.contains(&launch)),
                false => task.kind == TaskKind::HostOperator && here.contains(id),
            })
            .map(|(_, task)| task.duration_ns)
            .sum()
    }
}
