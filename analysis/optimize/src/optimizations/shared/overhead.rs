//! The overhead of a call on this machine, from the recording.

use crate::facts::Facts;
use ridgeline_graph::calls::Call;
use ridgeline_graph::graph::{Graph, TaskKind};
use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::operator::Operator;

/// Host time of a call of a small operator in nanoseconds, if the recording has none. In the sample
/// traces of V100 to B200, the median is 8 to 20 µs with a profiler.
pub(crate) const SMALL_CALL_NS: f64 = 10_000.0;
/// The maximum speed difference between the machine and the cost model. Beyond it, the difference
/// has another cause.
const MAX_MACHINE_FACTOR: f64 = 4.0;
/// The minimum modeled time of an operator, in nanoseconds, that is dominated by bytes and not by
/// its call.
const MIN_MODELED_NS: f64 = 20_000.0;

/// Returns the median host time of a call of a single-kernel operator, in nanoseconds.
pub(crate) fn small_call_ns(graph: &Graph, calls: &[Call]) -> f64 {
    median(&mut small_calls_ns(graph, calls)).unwrap_or(SMALL_CALL_NS)
}

/// Returns the host time that nine of ten calls of a single-kernel operator exceed, in nanoseconds. On a CPU, that is a call
/// with little work. `None` if there are no such calls.
pub(crate) fn shortest_call_ns(graph: &Graph, calls: &[Call]) -> Option<f64> {
    let mut times = small_calls_ns(graph, calls);
    let place = times.len() / 10;
    (place < times.len()).then(|| *times.select_nth_unstable_by(place, f64::total_cmp).1)
}

/// Returns the host times of calls of single-kernel operators, in nanoseconds.
fn small_calls_ns(graph: &Graph, calls: &[Call]) -> Vec<f64> {
    let moves_bytes = moves_bytes(graph);
    calls
        .iter()
        .filter(|call| {
            call.work.len() == 1 && moves_bytes.get(call.operator as usize) == Some(&true)
        })
        .map(|call| call.host_ns(graph))
        .filter(|time_ns| *time_ns > 0.0)
        .collect()
}

/// Returns the median time of a kernel launch, in nanoseconds.
pub(crate) fn launch_ns(graph: &Graph) -> f64 {
    let launches = graph.tasks.iter().filter(|task| task.kind == TaskKind::Launch);
    let mut times: Vec<f64> = launches
        .filter(|task| !task.is_removed)
        .map(|task| task.duration_ns)
        .filter(|time_ns| *time_ns > 0.0)
        .collect();
    median(&mut times).unwrap_or(0.5 * SMALL_CALL_NS)
}

/// Returns the ratio of measured to modeled time of operators that move many bytes. It also applies
/// to added operators.
pub(crate) fn machine_factor(graph: &Graph, facts: &Facts<'_>, calls: &[Call]) -> f64 {
    let modelled_ns: Vec<Option<f64>> = graph
        .operators
        .iter()
        .zip(moves_bytes(graph))
        .map(|(operator, moves_bytes)| {
            let cost = || op_cost::cost(operator, facts.device, &facts.options);
            moves_bytes.then(|| cost().time_ns.value).filter(|time_ns| *time_ns > MIN_MODELED_NS)
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
        (measured / modelled).clamp(1.0 / MAX_MACHINE_FACTOR, MAX_MACHINE_FACTOR)
    } else {
        1.0
    }
}

/// Returns the time of the work of an operator that was not recorded, in nanoseconds.
/// `machine_factor` is the result of [`machine_factor`].
pub(crate) fn work_ns(facts: &Facts<'_>, operator: &Operator, machine_factor: f64) -> f64 {
    op_cost::cost(operator, facts.device, &facts.options).time_ns.value * machine_factor
}

/// Returns for each operator whether it only moves bytes.
fn moves_bytes(graph: &Graph) -> Vec<bool> {
    let family = |operator: &Operator| op_cost::work(operator).map(|work| work.family);
    let moves_bytes = |family| matches!(family, Some(Family::Elementwise | Family::Copy));
    graph.operators.iter().map(|operator| moves_bytes(family(operator))).collect()
}

fn median(times: &mut [f64]) -> Option<f64> {
    let median = times.len() / 2;
    (median < times.len()).then(|| *times.select_nth_unstable_by(median, f64::total_cmp).1)
}
