//! What the rounds of a loop cost, and what one call for all of them would save.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{BTreeMap, BTreeSet};

use super::evidence::Evidence;
use super::loops::Loop;
use super::reading::lines_of;
use super::tally::{Line, of_line};
use ridgeline_graph::graph::TaskKind;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{Operator, Tensor};
use ridgeline_optimize::rewrite::syntax::statement_of;
use ridgeline_profile::{LineCost, Phase};

/// Tensors of so many elements take no time beside the call.
const SMALL: f64 = 4096.0;
/// The share of a loop's time that has to be of the same operators with the same shapes in each round.
const ALIKE: f64 = 0.7;

/// What could take the place of a loop's rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// One call on all of it.
    OneCall,
    /// `torch._foreach_*`, which on a processor runs one operator after another itself
    /// (`ForeachOpsKernels.cpp` of PyTorch, the slow path): Python is saved, and the operators are not.
    Foreach,
}

/// A loop as it ran.
pub(crate) struct Rounds {
    /// The line of the `for`.
    pub at: Line,
    /// Rounds each time that the loop ran.
    pub trips: f64,
    /// Nanoseconds that one call for all rounds would save.
    pub saved_ns: f64,
}

/// What a loop costs that ran for at least so many rounds each time, and whose own lines do the work:
/// the same in each round. Nothing where it is otherwise, or not known.
pub(crate) fn rounds(
    evidence: &Evidence<'_>,
    one: &Loop<'_>,
    fewest: f64,
    all_alike: bool,
    instead: Instead,
) -> Option<Rounds> {
    if one.is_comprehension() {
        return of_expression(evidence, one, at(evidence, one)?, fewest, instead);
    }
    let lines = lines(evidence, one);
    let (at, trips) = trips(evidence, one)?;
    if trips < fewest || !does_its_own_work(evidence, &lines) {
        return None;
    }
    let is_alike =
        || is_alike(evidence, &lines, trips) && (modules(evidence, &lines) as f64) < trips;
    if all_alike && !is_alike() {
        return None;
    }
    // The line of the `for` itself takes the next round's number or tensor.
    let with_head: BTreeSet<Line> = lines.iter().copied().chain([at]).collect();
    let saved_ns = saved_ns(evidence, &with_head, trips, instead);
    Some(Rounds { at, trips, saved_ns })
}

/// The line of the `for`, as it ran.
fn at(evidence: &Evidence<'_>, one: &Loop<'_>) -> Option<Line> {
    let text = evidence.program.module(one.module);
    evidence.ran(one.module, text.line(one.node.start_byte()))
}

/// The lines of a round, as they ran.
pub(super) fn lines(evidence: &Evidence<'_>, one: &Loop<'_>) -> BTreeSet<Line> {
    let (first, last) = one.lines(evidence.program);
    (first..=last).filter_map(|line| evidence.ran(one.module, line)).collect()
}

/// The line of a `for`, and its rounds each time that it ran.
pub(super) fn trips(evidence: &Evidence<'_>, one: &Loop<'_>) -> Option<(Line, f64)> {
    let text = evidence.program.module(one.module);
    let line_of = |offset: usize| evidence.ran(one.module, text.line(offset));
    let at = at(evidence, one)?;
    let ran = |line: Line| line_cost(evidence, line).map(|cost| cost.calls);
    let mut first = one.body().into_iter().next()?;
    // The head of a `with` is come to twice.
    while let Some(inner) = first.field(Field::Body).filter(|_| first.is(Kind::WithStatement)) {
        first = inner.named_child(0)?;
    }
    let body = line_of(first.start_byte())?;
    let rounds = ran(body)?;
    // How often the loop itself began: its head is reached once more than its body each time. Where that
    // is not known, as often as the statement beside it ran.
    let began = ran(at).map(|head| head - rounds).filter(|began| *began >= 1.0);
    let beside = one.node.prev_named_sibling().or(one.node.next_named_sibling());
    let beside = || beside.and_then(|beside| ran(line_of(beside.start_byte())?));
    Some((at, rounds / began.or_else(beside).unwrap_or(1.0).max(1.0)))
}

/// The same of a comprehension, all of whose rounds run on the lines of one statement: how many there are
/// is told by what most calls of its operators are as many as.
fn of_expression(
    evidence: &Evidence<'_>,
    one: &Loop<'_>,
    at: Line,
    fewest: f64,
    instead: Instead,
) -> Option<Rounds> {
    let (first, last) = lines_of(one.node);
    let lines: BTreeSet<Line> =
        (first..=last).filter_map(|line| evidence.ran(one.module, line)).collect();
    let mut by_calls: BTreeMap<u32, f64> = BTreeMap::new();
    for (key, work) in lines.iter().flat_map(|line| of_line(evidence, *line)) {
        if matches!(key.2, Phase::Forward | Phase::Other) {
            *by_calls.entry(work.calls).or_default() += work.host_ns;
        }
    }
    let (calls, _) = by_calls.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // How often the statement itself ran: as often as the one beside it.
    let beside = statement_of(one.node)
        .and_then(|statement| statement.prev_named_sibling().or(statement.next_named_sibling()));
    let text = evidence.program.module(one.module);
    let beside = beside.and_then(|beside| evidence.ran(one.module, text.line(beside.start_byte())));
    let times = beside.and_then(|line| line_cost(evidence, line)).map_or(1.0, |cost| cost.calls);
    let trips = f64::from(calls) / times.max(1.0);
    let is_one = trips >= fewest
        && does_its_own_work(evidence, &lines)
        && is_alike(evidence, &lines, f64::from(calls))
        && modules(evidence, &lines) < calls as usize;
    is_one.then(|| Rounds { at, trips, saved_ns: saved_ns(evidence, &lines, trips, instead) })
}

fn line_cost<'e>(evidence: &'e Evidence<'_>, (file, line): Line) -> Option<&'e LineCost> {
    let lines = evidence.profile().lines.get(file.0 as usize)?;
    let place = lines.binary_search_by_key(&line, |cost| cost.line).ok()?;
    lines.get(place)
}

/// Whether the time is that of the lines themselves: what they call of the program's own is not looked
/// into, and may need what another round left behind.
fn does_its_own_work(evidence: &Evidence<'_>, lines: &BTreeSet<Line>) -> bool {
    let (mut own, mut whole) = (0.0, 0.0);
    for cost in lines.iter().filter_map(|line| line_cost(evidence, *line)) {
        own += cost.self_time.total();
        whole += cost.total_time.total();
    }
    own >= ALIKE * whole
}

/// Whether most of the forward pass's time is of operators that came in each round with the same shapes.
pub(super) fn is_alike(evidence: &Evidence<'_>, lines: &BTreeSet<Line>, trips: f64) -> bool {
    let (mut alike, mut whole) = (0.0, 0.0);
    for line in lines {
        for (key, work) in of_line(evidence, *line) {
            if matches!(key.2, Phase::Forward | Phase::Other) {
                whole += work.host_ns;
                alike += if f64::from(work.calls) >= 0.9 * trips { work.host_ns } else { 0.0 };
            }
        }
    }
    whole > 0.0 && alike >= ALIKE * whole
}

/// Module instances that lines call: as many as there are rounds are another one in each.
fn modules(evidence: &Evidence<'_>, lines: &BTreeSet<Line>) -> usize {
    let tasks = evidence.graph().tasks.iter();
    let of_loop = tasks.filter(|task| task.line.is_some_and(|line| lines.contains(&line)));
    of_loop.filter_map(|task| task.module).collect::<BTreeSet<u32>>().len()
}

/// With one call instead of many, Python and what each call costs besides its work are left once. Of a
/// call on small tensors that is all but moving them. Where a layer ran in the place of a cell, its line takes
/// what that took.
pub(super) fn saved_ns(
    evidence: &Evidence<'_>,
    lines: &BTreeSet<Line>,
    trips: f64,
    instead: Instead,
) -> f64 {
    let call_ns = small_call_ns(evidence);
    let bandwidth = evidence.device().map_or(0.0, |device| device.bandwidth);
    let overhead_ns = |operator: &Operator, whole: f64| {
        let tensors = || operator.input_tensors().chain(&operator.outputs);
        let bytes: f64 = tensors().filter_map(Tensor::bytes).sum();
        let is_small = bandwidth > 0.0 && tensors().all(|tensor| tensor.elements() <= SMALL);
        if is_small { (whole - 1e9 * bytes / bandwidth).max(0.0) } else { call_ns.min(whole) }
    };
    let left = 1.0 / trips.max(1.0);
    let runs_each = instead == Instead::Foreach && !evidence.on_gpu();
    // By call the nanoseconds of the host, as of the recording.
    let mut calls: BTreeMap<u32, f64> = BTreeMap::new();
    let is_ours = |line: Option<Line>| line.is_some_and(|line| lines.contains(&line));
    let graph = evidence.graph();
    for task in graph.tasks.iter().filter(|task| is_ours(task.line) && task.kind.is_host()) {
        if let Some(call) = task.call {
            *calls.entry(call).or_default() += task.duration_ns;
        }
    }
    let operators = &graph.operators;
    let by_layer = by_layer(evidence, lines);
    evidence.saved(|graph| {
        for task in graph.tasks.iter_mut().filter(|task| is_ours(task.line) && !task.is_removed) {
            if let Some(ratio) = task.line.and_then(|line| by_layer.get(&line)) {
                task.duration_ns *= ratio;
                continue;
            }
            let whole = task.call.and_then(|call| calls.get(&call)).copied().unwrap_or(0.0);
            match task.kind {
                TaskKind::HostGap => task.duration_ns *= left,
                TaskKind::HostOperator | TaskKind::Launch if whole > 0.0 && !runs_each => {
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

/// What lines with a recurrent cell take of their time when a layer takes all steps at once, where it ran by
/// itself.
fn by_layer(evidence: &Evidence<'_>, lines: &BTreeSet<Line>) -> BTreeMap<Line, f64> {
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

/// Nanoseconds of the host for a call that has next to nothing to do: the median over the iteration.
/// 0 where there are none.
pub(crate) fn small_call_ns(evidence: &Evidence<'_>) -> f64 {
    let is_small = |operator: &Operator| {
        let family = work(operator).map(|work| work.family);
        let mut tensors = operator.input_tensors().peekable();
        let counts = matches!(family, Some(Family::Elementwise | Family::Reduction | Family::Copy));
        counts && tensors.peek().is_some() && tensors.all(|tensor| tensor.elements() <= SMALL)
    };
    let mut times: Vec<(f64, u32)> = Vec::new();
    for (key, work) in evidence.work.iter().filter(|(_, work)| work.calls > 0) {
        if evidence.operator(key).is_some_and(is_small) {
            times.push((work.host_ns / f64::from(work.calls), work.calls));
        }
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = times.iter().map(|(_, calls)| u64::from(*calls)).sum::<u64>() / 2;
    let mut seen = 0;
    for (time_ns, calls) in times {
        seen += u64::from(calls);
        if seen > half {
            return time_ns;
        }
    }
    0.0
}
