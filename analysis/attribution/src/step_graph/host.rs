//! The host: operators, gaps, launches and waits, in the order in which they ran.

use super::{Builder, Call, CallKind};
use crate::contexts::{ContextId, Contexts};
use crate::kernel_bound::LONG_OPERATOR_NS;
use ridgeline_graph::graph::{Resource, ResourceId, Task, TaskId, TaskKind};
use ridgeline_profile::{FileId, Phase};
use ridgeline_recording::line_log::Marker;
use ridgeline_recording::trace::ThreadId;

struct HostSweep<'a> {
    host: ResourceId,
    calls: &'a [Call],
    next_call: usize,
    next_piece: usize,
}

impl Builder<'_> {
    /// Returns the threads that make up the host: the loop's, and those that work for autograd.
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

    pub(super) fn host(&mut self, contexts: &mut Contexts<'_>) {
        let threads = self.host_threads();
        let is_host = |thread: ThreadId| threads.get(thread.index()) == Some(&true);
        let calls = self.calls_of(is_host);
        let trace = self.join.trace;
        let mut items: Vec<(i64, i64, u32)> = (0_u32..)
            .zip(&trace.operators)
            .filter(|(index, operator)| {
                is_host(operator.thread) && self.operators.is_outermost(*index)
            })
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

    /// Adds the host's tasks in an interval, within one operator or between two.
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
            self.add_interval(sweep, contexts, (now, start_ns), operator);
            let context = match operator {
                Some(operator) => Some(contexts.of_operator(operator)),
                None => self.launches.contexts.get(call.index).copied(),
            };
            let kind = match call.what {
                CallKind::Launch => TaskKind::Launch,
                CallKind::Wait => TaskKind::Wait,
                CallKind::StreamWait if operator.is_some() => TaskKind::HostOperator,
                CallKind::StreamWait => TaskKind::HostGap,
            };
            let id =
                self.add_host(sweep.host, contexts, (start_ns, end_ns), kind, operator, context);
            self.set_task_of(call.index, id, end_ns);
            now = end_ns;
        }
        self.add_interval(sweep, contexts, (now, to), operator);
    }

    /// Adds an interval without calls: a part of an operator, or gaps of one context each.
    fn add_interval(
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
            let mut now = from;
            while now < to {
                let (kind, until) = self.rank_waits.part((now, to), TaskKind::HostOperator);
                self.add_host(sweep.host, contexts, (now, until), kind, Some(operator), context);
                now = until;
            }
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
                let (kind, until) = self.rank_waits.part((part_ns, until), TaskKind::HostGap);
                let id = self.add_host(sweep.host, contexts, (part_ns, until), kind, None, context);
                let name = self.name_of_gap(piece.operator, until.saturating_sub(part_ns));
                if let Some(task) = self.graph.task_mut(id) {
                    (task.is_in_operator, task.name) = (piece.operator.is_some(), name);
                }
                part_ns = until;
            }
            now = now.max(end_ns);
        }
        if now < to {
            self.add_host(sweep.host, contexts, (now, to), TaskKind::HostGap, None, None);
        }
    }

    /// Returns the name of the operator around a gap, if it takes long enough to be evidence.
    fn name_of_gap(&mut self, operator: Option<u32>, duration_ns: i64) -> Option<u32> {
        if (duration_ns as f64) < LONG_OPERATOR_NS {
            return None;
        }
        let trace = self.join.trace;
        // With a GPU, a gap in an operator is dispatch.
        if !trace.activities.is_empty() {
            return None;
        }
        let name = trace.text(trace.operators.get(operator? as usize)?.name);
        let name = name.strip_prefix("autograd::engine::evaluate_function: ").unwrap_or(name);
        Some(self.graph.name(name))
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
        task.operator = operator.and_then(|operator| self.operators.signature(operator));
        task.call = operator;
        self.describe(&mut task, contexts, context);
        task.phase = self.ranges.phase_at(start_ns, task.phase);
        let id = self.graph.push(host, task);
        self.host_starts.push((start_ns, id));
        if let Some(context) = context {
            self.task_contexts.push((id, context));
        }
        id
    }

    /// Sets the phase, line and module of a context.
    pub(super) fn describe(
        &self,
        task: &mut Task,
        contexts: &Contexts<'_>,
        context: Option<ContextId>,
    ) {
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

    /// Adds the launches of other threads, with only their start times.
    pub(super) fn other_threads(&mut self) {
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
                let kind = match call.what {
                    CallKind::Launch => TaskKind::Launch,
                    CallKind::Wait => TaskKind::Wait,
                    CallKind::StreamWait => TaskKind::HostGap,
                };
                let duration_ns = end_ns.saturating_sub(start_ns) as f64;
                let id = self.graph.push(resource, Task::new(kind, duration_ns, Phase::Other));
                self.set_task_of(call.index, id, end_ns);
                now = end_ns;
            }
            self.order.extend(calls);
        }
        self.order.sort_unstable_by_key(|call| (call.start_ns, call.end_ns, call.index));
    }
}
