//! Calls of a model that no backward pass uses: what they hold and what they spend.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use ridgeline_graph::graph::{Resource, TaskId, TaskKind};
use ridgeline_graph::memory::{Moment, peak};
use ridgeline_profile::Phase;
use ridgeline_python::semantics::module::Span;

use super::evidence::Evidence;
use super::reading::first_node;
use super::tally::Line;

/// The tasks of some lines of a function, with all that runs within them: by place on the host.
pub(crate) struct Stretches {
    /// The host's tasks in their order.
    host: Vec<TaskId>,
    /// Places in `host`: from the first task of the lines to the one after them.
    spans: Vec<(usize, usize)>,
}

impl Stretches {
    /// What runs from some lines of one function, one of which ran as `ran` and is `today` in a text of
    /// today's. It ends where the host comes back to another line of this function.
    pub(crate) fn new(
        evidence: &Evidence<'_>,
        ran: Line,
        (module, today): (usize, u32),
        is_at: impl Fn(Line) -> bool,
    ) -> Stretches {
        let text = evidence.program.module(module);
        let lines = |span: &Span| text.line(span.start)..=text.line(span.end.saturating_sub(1));
        let function = first_node(text, today).and_then(|node| text.function_at(node.start_byte()));
        let whole = function.and_then(|at| text.functions.lookup(at)).map(|one| lines(&one.span));
        // What is called may stand within it, or beside it in the same file. It begins at its `def`.
        let inner = text.functions.iter().filter(|one| one.outer == function);
        let inner: Vec<RangeInclusive<u32>> = inner.map(|one| lines(&one.span)).collect();
        // From the lines that ran to today's: the text of the function is the same.
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
            // What is computed backward bears the line that it was computed on, and runs later.
            if is_at(line) && phase != Phase::Backward {
                began.get_or_insert(place);
            } else if began.is_some() && is_own(line) {
                spans.extend(began.take().map(|began| (began, place)));
            }
        }
        spans.extend(began.map(|began| (began, host.len())));
        Stretches { host, spans }
    }

    /// The host's tasks in them.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        let within = self.spans.iter().filter_map(|(from, to)| self.host.get(*from..*to));
        within.flatten().copied()
    }

    /// Whether the iteration has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of the peak that are there because what the calls made outlives them. Without a graph each
    /// such tensor lives until the one after the next is made, as a layer's input and output do, and
    /// the last one is the result. Nothing where the recording does not tell of memory.
    pub(crate) fn held_bytes(&self, evidence: &Evidence<'_>) -> Option<f64> {
        let graph = evidence.graph();
        let schedule = &evidence.subject.recorded.schedule;
        let now = peak(graph, schedule)?;
        let place: HashMap<TaskId, usize> =
            self.host.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let mut without = graph.clone();
        for (from, until) in &self.spans {
            let within = |task: TaskId| place.get(&task).is_some_and(|at| from <= at && at < until);
            let mut held: Vec<(Moment, usize)> = Vec::new();
            for (index, block) in graph.memory.blocks.iter().enumerate() {
                let made = block.allocated.filter(|made| within(made.task));
                let outlives = block.freed.is_none_or(|freed| !within(freed.task));
                held.extend(made.filter(|_| outlives).map(|made| (made, index)));
            }
            held.sort_unstable_by_key(|(made, index)| (made.event, *index));
            for (at, (_, index)) in held.iter().enumerate() {
                let before =
                    |made: &Moment| Moment { event: made.event.saturating_sub(1), ..*made };
                let after = |made: &Moment| Moment { event: made.event.saturating_add(1), ..*made };
                let freed = held.get(at + 2).map(|(made, _)| before(made));
                let freed = freed.or_else(|| held.get(at + 1).map(|(made, _)| after(made)));
                if let (Some(freed), Some(block)) = (freed, without.memory.blocks.get_mut(*index)) {
                    block.freed = Some(freed);
                }
            }
        }
        Some((now - peak(&without, schedule)?).max(0.0))
    }

    /// Nanoseconds of operators in modules of some types within the calls: on the GPU where it runs
    /// them, else on the host.
    pub(crate) fn time_of(&self, evidence: &Evidence<'_>, is_wanted: impl Fn(&str) -> bool) -> f64 {
        let graph = evidence.graph();
        let modules = &evidence.profile().modules;
        let of_module = |module: Option<u32>| {
            let module = module.and_then(|module| modules.get(module as usize));
            module.is_some_and(|module| is_wanted(&module.type_name))
        };
        let here: HashSet<TaskId> = self.tasks().collect();
        let on_gpu = evidence.on_gpu();
        graph
            .iter()
            .filter(|(_, task)| of_module(task.module))
            .filter(|(id, task)| match on_gpu {
                true => task.launched_by.is_some_and(|launch| here.contains(&launch)),
                false => task.kind == TaskKind::HostOperator && here.contains(id),
            })
            .map(|(_, task)| task.duration_ns)
            .sum()
    }
}
