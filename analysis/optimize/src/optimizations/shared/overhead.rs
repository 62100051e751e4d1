//! What a call costs besides its work, on this machine, as the recording has it.

use crate::facts::Facts;
use ridgeline_graph::calls::Call;
use ridgeline_graph::graph::{Graph, TaskKind};
use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::operator::Operator;

/// The host's time for a call of a small operator where the recording has none: in the sample traces
/// of V100 to B200 the median is 8 to 20 µs with a profiler.
const SMALL_CALL_NS: f64 = 10_000.0;
/// What a machine does better or worse than the cost model, at most: beyond it something else than
/// the machine differs.
const MOST_OFF: f64 = 4.0;
/// Operators that take less by the model, in nanoseconds, tell of their call rather than of bytes.
const LONG_NS: f64 = 20_000.0;

/// Nanoseconds of the host for a call of an operator of one kernel, the median.
pub(crate) fn small_call_ns(graph: &Graph, calls: &[Call]) -> f64 {
    let moves_bytes = moves_bytes(graph);
    let mut times: Vec<f64> = calls
        .iter()
        .filter(|call| {
            call.work.len() == 1 && moves_bytes.get(call.operator as usize) == Some(&true)
        })
        .map(|call| call.host_ns(graph))
        .filter(|time_ns| *time_ns > 0.0)
        .collect();
    middle(&mut times).unwrap_or(SMALL_CALL_NS)
}

/// Nanoseconds of the host's call that launches a kernel, the median.
pub(crate) fn launch_ns(graph: &Graph) -> f64 {
    let launches = graph.tasks.iter().filter(|task| task.kind == TaskKind::Launch);
    let mut times: Vec<f64> = launches
        .filter(|task| !task.is_removed)
        .map(|task| task.duration_ns)
        .filter(|time_ns| *time_ns > 0.0)
        .collect();
    middle(&mut times).unwrap_or(0.5 * SMALL_CALL_NS)
}

/// How many times as long as modelled this machine takes for operators that move many bytes. What is
/// added takes so much longer too.
pub(crate) fn of_machine(graph: &Graph, facts: &Facts<'_>, calls: &[Call]) -> f64 {
    let modelled_ns: Vec<Option<f64>> = graph
        .operators
        .iter()
        .zip(moves_bytes(graph))
        .map(|(operator, moves_bytes)| {
            let cost = || op_cost::cost(operator, facts.device, &facts.options);
            moves_bytes.then(|| cost().time_ns.value).filter(|time_ns| *time_ns > LONG_NS)
        })
        .collect();
    let (mut measured, mut modelled) = (0.0, 0.0);
    for call in calls {
        if let Some(Some(modelled_ns)) = modelled_ns.get(call.operator as usize) {
            measured += call.work_ns(graph);
            modelled += modelled_ns;
        }
    }
    if measured > 0.0 && modelled > 0.0 {
        (measured / modelled).clamp(1.0 / MOST_OFF, MOST_OFF)
    } else {
        1.0
    }
}

/// Nanoseconds of the work of an operator that was not recorded. `of_machine` is
/// [what the machine does](of_machine).
pub(crate) fn work_ns(facts: &Facts<'_>, operator: &Operator, of_machine: f64) -> f64 {
    op_cost::cost(operator, facts.device, &facts.options).time_ns.value * of_machine
}

/// By operator: whether it does nothing but move bytes.
fn moves_bytes(graph: &Graph) -> Vec<bool> {
    let family = |operator: &Operator| op_cost::work(operator).map(|work| work.family);
    let moves_bytes = |family| matches!(family, Some(Family::Elementwise | Family::Copy));
    graph.operators.iter().map(|operator| moves_bytes(family(operator))).collect()
}

fn middle(times: &mut [f64]) -> Option<f64> {
    let middle = times.len() / 2;
    (middle < times.len()).then(|| *times.select_nth_unstable_by(middle, f64::total_cmp).1)
}
