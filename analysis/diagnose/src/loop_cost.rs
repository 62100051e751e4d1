//! The cost of a Python loop, and what a single call in its place would save.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{BTreeMap, BTreeSet};

use super::evidence::Evidence;
use super::finding::SourceLine;
use super::line_sums::{Line, work_of_line};
use super::loops::Loop;
use super::source_queries::lines_of;
use ridgeline_graph::graph::TaskKind;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{Operator, Tensor};
use ridgeline_optimize::rewrite::syntax::statement_of;
use ridgeline_profile::{LineCost, Phase};

/// Processing tensors of up to this many elements takes no time compared with the call itself.
const SMALL_TENSOR: f64 = 4096.0;
/// The minimum share of a loop's time in operators that run with the same shapes in each iteration.
const MIN_ALIKE: f64 = 0.7;

/// What could replace a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// One call for all iterations.
    OneCall,
    /// `torch._foreach_*`. On a CPU it runs one operator after another itself
    /// (`ForeachOpsKernels.cpp` of PyTorch, the slow path): that saves the Python overhead, but not
    /// the operators.
    Foreach,
}

/// A loop as it ran.
pub(crate) struct LoopCost {
    /// The line of the `for`.
    pub at: Line,
    /// The lines that run in it, with that of the `for`.
    pub lines: BTreeSet<Line>,
    /// Iterations per execution of the loop.
    pub trips: f64,
    /// Time that a single call for all iterations would save, in nanoseconds per training
    /// iteration.
    pub saved_ns: f64,
}

impl LoopCost {
    /// The lines of the finding about it.
    pub(crate) fn places(&self, evidence: &Evidence<'_>) -> Vec<SourceLine> {
        self.lines.iter().map(|(file, line)| evidence.place(*file, *line)).collect()
    }
}

/// Returns the cost of a loop with at least `min_trips` iterations per execution whose own lines do
/// the work, the same in each iteration. Returns `None` otherwise, or if that is unknown.
pub(crate) fn loop_cost(
    evidence: &Evidence<'_>,
    one: &Loop<'_>,
    min_trips: f64,
    must_be_alike: bool,
    replacement: Replacement,
) -> Option<LoopCost> {
    if one.is_comprehension() {
        return comprehension_cost(evidence, one, at(evidence, one)?, min_trips, replacement);
    }
    let lines = lines(evidence, one);
    let (at, trips) = trips(evidence, one)?;
    if trips < min_trips || !is_mostly_self_time(evidence, &lines) {
        return None;
    }
    let is_alike =
        || is_alike(evidence, &lines, trips) && (modules(evidence, &lines) as f64) < trips;
    if must_be_alike && !is_alike() {
        return None;
    }
    // The line of the `for` itself takes the next number or tensor.
    let with_head: BTreeSet<Line> = lines.iter().copied().chain([at]).collect();
    let saved_ns = saved_ns(evidence, &with_head, trips, replacement);
    Some(LoopCost { at, lines: with_head, trips, saved_ns })
}

/// The line of the `for`, as it ran.
fn at(evidence: &Evidence<'_>, one: &Loop<'_>) -> Option<Line> {
    let text = evidence.program.module(one.module);
    evidence.recorded_line(one.module, text.line(one.node.start_byte()))
}

/// The lines of the loop body, as they ran.
pub(super) fn lines(evidence: &Evidence<'_>, one: &Loop<'_>) -> BTreeSet<Line> {
    let (first, last) = one.lines(evidence.program);
    (first..=last).filter_map(|line| evidence.recorded_line(one.module, line)).collect()
}

/// The line of a `for`, and its iterations per execution.
pub(super) fn trips(evidence: &Evidence<'_>, one: &Loop<'_>) -> Option<(Line, f64)> {
    let text = evidence.program.module(one.module);
    let line_of = |offset: usize| evidence.recorded_line(one.module, text.line(offset));
    let at = at(evidence, one)?;
    let ran = |line: Line| line_cost(evidence, line).map(|cost| cost.calls);
    let mut first = one.body().into_iter().next()?;
    // The header of a `with` is reached twice.
    while let Some(inner) = first.field(Field::Body).filter(|_| first.is(Kind::WithStatement)) {
        first = inner.named_child(0)?;
    }
    let body = line_of(first.start_byte())?;
    let passes = ran(body)?;
    // How often the loop started: its header is reached once more than its body each time. If that
    // is unknown, use the count of the adjacent statement.
    let starts = ran(at).map(|head| head - passes).filter(|starts| *starts >= 1.0);
    let adjacent = one.node.prev_named_sibling().or(one.node.next_named_sibling());
    let adjacent = || adjacent.and_then(|adjacent| ran(line_of(adjacent.start_byte())?));
    Some((at, passes / starts.or_else(adjacent).unwrap_or(1.0).max(1.0)))
}

/// Like [`loop_cost`] for a comprehension, whose iterations all run on the lines of one statement. The
/// number of iterations is the call count in which its operators spend most time.
fn comprehension_cost(
    evidence: &Evidence<'_>,
    one: &Loop<'_>,
    at: Line,
    min_trips: f64,
    replacement: Replacement,
) -> Option<LoopCost> {
    let (first, last) = lines_of(one.node);
    let lines: BTreeSet<Line> =
        (first..=last).filter_map(|line| evidence.recorded_line(one.module, line)).collect();
    let mut by_calls: BTreeMap<u32, f64> = BTreeMap::new();
    for (key, work) in lines.iter().flat_map(|line| work_of_line(evidence, *line)) {
        if matches!(key.2, Phase::Forward | Phase::Other) {
            *by_calls.entry(work.calls).or_default() += work.host_ns;
        }
    }
    let (calls, _) = by_calls.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // How often the statement itself ran: as often as the adjacent one.
    let adjacent = statement_of(one.node)
        .and_then(|statement| statement.prev_named_sibling().or(statement.next_named_sibling()));
    let text = evidence.program.module(one.module);
    let adjacent = adjacent
        .and_then(|adjacent| evidence.recorded_line(one.module, text.line(adjacent.start_byte())));
    let times = adjacent.and_then(|line| line_cost(evidence, line)).map_or(1.0, |cost| cost.calls);
    let trips = f64::from(calls) / times.max(1.0);
    let is_candidate = trips >= min_trips
        && is_mostly_self_time(evidence, &lines)
        && is_alike(evidence, &lines, f64::from(calls))
        && modules(evidence, &lines) < calls as usize;
    is_candidate.then(|| LoopCost {
        at,
        trips,
        saved_ns: saved_ns(evidence, &lines, trips, replacement),
        lines,
    })
}

fn line_cost<'e>(evidence: &'e Evidence<'_>, (file, line): Line) -> Option<&'e LineCost> {
    let lines = evidence.profile().lines.get(file.0 as usize)?;
    let place = lines.binary_search_by_key(&line, |cost| cost.line).ok()?;
    lines.get(place)
}

/// Whether most of the time is self time of the lines: the program's functions that they call are
/// not analyzed, and may need state of another iteration.
fn is_mostly_self_time(evidence: &Evidence<'_>, lines: &BTreeSet<Line>) -> bool {
    let (mut own, mut whole) = (0.0, 0.0);
    for cost in lines.iter().filter_map(|line| line_cost(evidence, *line)) {
        own += cost.self_time.total();
        whole += cost.total_time.total();
    }
    own >= MIN_ALIKE * whole
}

/// Whether most of the forward time is in operators that ran in each iteration with the same
/// shapes.
pub(super) fn is_alike(evidence: &Evidence<'_>, lines: &BTreeSet<Line>, trips: f64) -> bool {
    let (mut alike, mut whole) = (0.0, 0.0);
    for line in lines {
        for (key, work) in work_of_line(evidence, *line) {
            if matches!(key.2, Phase::Forward | Phase::Other) {
                whole += work.host_ns;
                alike += if f64::from(work.calls) >= 0.9 * trips { work.host_ns } else { 0.0 };
            }
        }
    }
    whole > 0.0 && alike >= MIN_ALIKE * whole
}

/// The number of module instances that the lines call. If it equals the number of iterations, each
/// iteration calls another one.
fn modules(evidence: &Evidence<'_>, lines: &BTreeSet<Line>) -> usize {
    let tasks = evidence.graph().tasks.iter();
    let loop_tasks = tasks.filter(|task| task.line.is_some_and(|line| lines.contains(&line)));
    loop_tasks.filter_map(|task| task.module).collect::<BTreeSet<u32>>().len()
}

/// The time that the replacement saves. With one call instead of many, the Python code and the
/// overhead of a call remain only once. For a call on small tensors, everything except memory
/// traffic is overhead. Where a probe ran a layer instead of a cell, its line takes the time of the
/// layer.
pub(super) fn saved_ns(
    evidence: &Evidence<'_>,
    lines: &BTreeSet<Line>,
    trips: f64,
    replacement: Replacement,
) -> f64 {
    let call_ns = small_call_ns(evidence);
    let bandwidth = evidence.device().map_or(0.0, |device| device.bandwidth);
    let overhead_ns = |operator: &Operator, whole: f64| {
        let tensors = || operator.input_tensors().chain(&operator.outputs);
        let bytes: f64 = tensors().filter_map(Tensor::bytes).sum();
        let is_small = bandwidth > 0.0 && tensors().all(|tensor| tensor.elements() <= SMALL_TENSOR);
        if is_small { (whole - 1e9 * bytes / bandwidth).max(0.0) } else { call_ns.min(whole) }
    };
    let left = 1.0 / trips.max(1.0);
    let runs_each_operator = replacement == Replacement::Foreach && !evidence.on_gpu();
    // Recorded host time by call, in nanoseconds.
    let mut calls: BTreeMap<u32, f64> = BTreeMap::new();
    let is_in_loop = |line: Option<Line>| line.is_some_and(|line| lines.contains(&line));
    let graph = evidence.graph();
    for task in graph.tasks.iter().filter(|task| is_in_loop(task.line) && task.kind.is_host()) {
        if let Some(call) = task.call {
            *calls.entry(call).or_default() += task.duration_ns;
        }
    }
    let operators = &graph.operators;
    let layer_ratios = layer_ratios(evidence, lines);
    evidence.saved(|graph| {
        for task in graph.tasks.iter_mut().filter(|task| is_in_loop(task.line) && !task.is_removed)
        {
            if let Some(ratio) = task.line.and_then(|line| layer_ratios.get(&line)) {
                task.duration_ns *= ratio;
                continue;
            }
            let whole = task.call.and_then(|call| calls.get(&call)).copied().unwrap_or(0.0);
            match task.kind {
                TaskKind::HostGap => task.duration_ns *= left,
                TaskKind::HostOperator | TaskKind::Launch if whole > 0.0 && !runs_each_operator => {
                    let operator = task.operator.and_then(|at| operators.get(at as usize));
                    let overhead = operator.map_or(call_ns.min(whole), |it| overhead_ns(it, whole));
                    let overhead = overhead / whole;
                    task.duration_ns *= 1.0 - overhead * (1.0 - left);
                }
                _ => {}
            }
        }
    })
}

/// For lines with a recurrent cell: the fraction of their time that remains if a layer runs all
/// steps at once, where a probe measured that.
fn layer_ratios(evidence: &Evidence<'_>, lines: &BTreeSet<Line>) -> BTreeMap<Line, f64> {
    let mut found: BTreeMap<Line, (f64, f64)> = BTreeMap::new();
    if evidence.probes.cells.is_empty() {
        return BTreeMap::new();
    }
    for task in evidence.graph().tasks.iter() {
        let ratio = task.module.and_then(|module| evidence.probes.cells.get(&module));
        let line = task.line.filter(|line| lines.contains(line));
        if let Some((line, ratio)) = line.zip(ratio) {
            let (then, now) = found.entry(line).or_default();
            *then += ratio * task.duration_ns;
            *now += task.duration_ns;
        }
    }
    let ratios = found.into_iter().filter(|(_, (_, now))| *now > 0.0);
    ratios.map(|(line, (then, now))| (line, then / now)).collect()
}

/// The host time of a call with next to no work, in nanoseconds: the median over the iteration, or
/// 0 if there is none.
pub(crate) fn small_call_ns(evidence: &Evidence<'_>) -> f64 {
    let is_small = |operator: &Operator| {
        let family = work(operator).map(|work| work.family);
        let mut tensors = operator.input_tensors().peekable();
        let counts = matches!(family, Some(Family::Elementwise | Family::Reduction | Family::Copy));
        counts
            && tensors.peek().is_some()
            && tensors.all(|tensor| tensor.elements() <= SMALL_TENSOR)
    };
    let mut times: Vec<(f64, u32)> = Vec::new();
    for (key, work) in evidence.work.iter().filter(|(_, work)| work.calls > 0) {
        if evidence.operator(key).is_some_and(is_small) {
            times.push((work.host_ns / f64::from(work.calls), work.calls));
        }
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = times.iter().map(|(_, calls)| u64::from(*calls)).sum::<u64>() / 2;
    let mut cumulative = 0;
    for (time_ns, calls) in times {
        cumulative += u64::from(calls);
        if cumulative > half {
            return time_ns;
        }
    }
    0.0
}
