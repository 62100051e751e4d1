//! Calls of a model that no backward pass uses: what they hold and what they spend.

use std::collections::{HashMap, HashSet};

use crate::profile::FileId;
use crate::whatif::graph::{Graph, Resource, TaskId, TaskKind};
use crate::whatif::memory::{Moment, peak};

use super::evidence::Evidence;

/// The tasks of one line's calls, with all that runs within them: by place on the host.
pub(crate) struct Stretches {
    /// The host's tasks in their order.
    host: Vec<TaskId>,
    /// Places in `host`: from the first task of the line to the one after its call.
    spans: Vec<(usize, usize)>,
}

impl Stretches {
    /// The calls from one line. A call ends where the host comes back to another line of the function
    /// that the line is in: `function` has its lines.
    pub fn new(graph: &Graph, at: (FileId, u32), function: (u32, u32)) -> Stretches {
        let host = graph.find(&Resource::Host);
        let host: Vec<TaskId> = host.map(|host| graph.on(host).collect()).unwrap_or_default();
        let mut spans = Vec::new();
        let mut began = None;
        for (place, id) in host.iter().enumerate() {
            let Some(line) = graph.task(*id).and_then(|task| task.line) else { continue };
            if line == at {
                began.get_or_insert(place);
            } else if line.0 == at.0 && (function.0..=function.1).contains(&line.1) {
                spans.extend(began.take().map(|began| (began, place)));
            }
        }
        spans.extend(began.map(|began| (began, host.len())));
        Stretches { host, spans }
    }

    /// Whether the iteration has none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of the peak that are there because what the calls made outlives them. Without a graph each
    /// such tensor lives until the one after the next is made, as a layer's input and output do, and
    /// the last one is the result. Nothing where the recording does not tell of memory.
    pub fn held_bytes(&self, evidence: &Evidence<'_>) -> Option<f64> {
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
    pub fn time_of(&self, evidence: &Evidence<'_>, is_wanted: impl Fn(&str) -> bool) -> f64 {
        let graph = evidence.graph();
        let modules = &evidence.profile().modules;
        let of_module = |module: Option<u32>| {
            let module = module.and_then(|module| modules.get(module as usize));
            module.is_some_and(|module| is_wanted(&module.type_name))
        };
        let inside =
            |place: usize| self.spans.iter().any(|(from, to)| (*from..*to).contains(&place));
        let here: HashSet<TaskId> = (self.host.iter().enumerate())
            .filter(|(place, _)| inside(*place))
            .map(|(_, id)| *id)
            .collect();
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
