//! The host overhead per operator besides its computation, from a CPU recording: Python, the
//! dispatcher and autograd. A GPU that is faster than its host waits for this overhead.

use super::correlate;
use super::kernel_bound::LONG_OPERATOR_NS;
use super::recorded_step::{StepOperators, annotated, is_during};
use super::steps::Steps;
use ridgeline_profile::Profile;
use ridgeline_recording::Recording;
use ridgeline_recording::trace::Trace;

/// The minimum number of operators in an iteration for a meaningful mean.
const MIN_OPERATORS: usize = 20;
/// The fastest `1 / QUICKEST` of the operators compute almost nothing: their time is dispatch. If
/// even those take longer than [`MAX_DISPATCH_NS`], they compute.
const QUICKEST: usize = 20;
const MAX_DISPATCH_NS: f64 = 10_000.0;
/// The maximum share of the profiler in the time besides computation: an operator takes a few
/// microseconds of Python and dispatch, and profiling it takes one or two.
const MAX_PROFILER_SHARE: f64 = 0.7;

/// Returns the host nanoseconds per operator of an iteration besides its computation. Returns
/// `None` if a GPU ran it, too few operators were recorded, or operators ran concurrently.
pub fn host_ns_per_operator(recording: &Recording, profile: &Profile) -> Option<f64> {
    let trace = &recording.trace;
    if !trace.activities.is_empty() {
        return None;
    }
    let window = fastest_window(recording)?;
    let operators = StepOperators::new(trace, window);
    let mut durations: Vec<f64> = (0_u32..)
        .zip(&trace.operators)
        .filter(|(index, _)| operators.is_outermost(*index))
        .map(|(_, operator)| operator.duration_ns as f64)
        .collect();
    let loading_ns: f64 = annotated(trace, "enumerate(DataLoader)#")
        .iter()
        .map(|(start, end)| (*end.min(&window.1) - *start.max(&window.0)).max(0) as f64)
        .sum();
    let window_ns = window.1.saturating_sub(window.0) as f64;
    let fastest_ns = profile.iteration.typical_times().into_iter().fold(f64::INFINITY, f64::min);
    let fastest_ns =
        if fastest_ns.is_finite() { fastest_ns } else { profile.iteration.typical_ns() };
    let profiler_ns = (window_ns - fastest_ns).max(0.0);
    let unknown_ns = unknown_cost_ns(trace, window, &operators);
    per_operator(&mut durations, window_ns - loading_ns - unknown_ns, profiler_ns)
}

/// Returns the share of an iteration, 0 to 1, in operators that the cost model cannot estimate,
/// because it does not know them or their arguments were not recorded. Returns 0 if a GPU ran it.
pub fn unknown_cost_share(recording: &Recording) -> f64 {
    let trace = &recording.trace;
    let Some(window) = fastest_window(recording).filter(|_| trace.activities.is_empty()) else {
        return 0.0;
    };
    let unknown_ns = unknown_cost_ns(trace, window, &StepOperators::new(trace, window));
    (unknown_ns / window.1.saturating_sub(window.0).max(1) as f64).min(1.0)
}

/// Other programs only add time, so the fastest iteration shows the machine best.
fn fastest_window(recording: &Recording) -> Option<(i64, i64)> {
    let windows = Steps::new(recording).windows;
    windows.into_iter().min_by_key(|(start, end)| end.saturating_sub(*start))
}

/// Returns the nanoseconds of operators that compute, but are not counted: the long ones, without
/// the operators within them.
fn unknown_cost_ns(trace: &Trace, window: (i64, i64), operators: &StepOperators) -> f64 {
    let mut own_ns: Vec<i64> = trace.operators.iter().map(|one| one.duration_ns).collect();
    for (operator, parent) in trace.operators.iter().zip(correlate::parents(&trace.operators)) {
        if let Some(own_ns) = parent.and_then(|parent| own_ns.get_mut(parent as usize)) {
            *own_ns = own_ns.saturating_sub(operator.duration_ns);
        }
    }
    let loading = annotated(trace, "enumerate(DataLoader)#");
    (0_u32..)
        .zip(trace.operators.iter().zip(own_ns))
        .filter(|(index, (operator, _))| {
            operators.signature(*index).is_none()
                && may_compute(trace.text(operator.name))
                && (window.0..window.1).contains(&operator.start_ns)
                && !is_during(&loading, operator.start_ns)
        })
        .map(|(_, (_, own_ns))| own_ns as f64)
        .filter(|own_ns| *own_ns >= LONG_OPERATOR_NS)
        .sum()
}

/// Ranges that a program names are operators in old traces. They contain Python. Collectives wait.
fn may_compute(name: &str) -> bool {
    name.contains("::") && !name.starts_with("c10d::")
}

fn per_operator(durations: &mut [f64], working_ns: f64, profiler_ns: f64) -> Option<f64> {
    if durations.len() < MIN_OPERATORS {
        return None;
    }
    durations.sort_by(f64::total_cmp);
    let dispatch_ns = durations.get(durations.len() / QUICKEST)?.min(MAX_DISPATCH_NS);
    let computing_ns: f64 = durations.iter().map(|ns| (ns - dispatch_ns).max(0.0)).sum();
    let overhead_ns = working_ns - computing_ns;
    if overhead_ns <= 0.0 {
        return None;
    }
    // The profiler slows down the overhead, not the computation.
    let host_ns = overhead_ns - profiler_ns.min(MAX_PROFILER_SHARE * overhead_ns);
    let per_operator = host_ns / durations.len() as f64;
    per_operator.is_finite().then_some(per_operator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TraceBuilder;
    use ridgeline_profile::bottleneck::Cause;

    /// Twenty multiplications of 1 ms without shapes, each with 10 µs of Python before it.
    fn without_shapes() -> Recording {
        let mut trace = TraceBuilder::new();
        trace.annotation("ProfilerStep#1", 0, 20 * 1_010_000);
        for number in 0..20 {
            trace.op("aten::linear", number * 1_010_000 + 10_000, 1_000_000);
            trace.op("aten::mm", number * 1_010_000 + 10_000, 1_000_000);
        }
        Recording { trace: trace.trace(), ..Recording::default() }
    }

    #[test]
    fn operators_of_unknown_cost_are_no_overhead() {
        let recording = without_shapes();
        let share = unknown_cost_share(&recording);
        assert!((share - 1.0 / 1.01).abs() < 1e-9, "{share}");
        let profile = crate::attribute(&recording).expect("a profile");
        assert_eq!(host_ns_per_operator(&recording, &profile), None);
        let found = profile.bottleneck.as_deref().expect("a bottleneck");
        let [first, ..] = &found.savings[..] else { panic!("{found:?}") };
        assert_eq!((first.cause, (first.share * 100.0).round()), (Cause::Kernels, 99.0));
        assert_eq!(first.operators.first().map(|(name, _)| name.as_str()), Some("aten::linear"));
    }

    #[test]
    fn computation_and_profiler_are_subtracted() {
        // 100 operators with 5 µs of dispatch, half of which compute for 1 ms, each with 10 µs of
        // Python before it and 2 µs of the profiler.
        let mut durations = [[5e3; 50], [1_005e3; 50]].concat();
        let working_ns = 50.0 * 1e6 + 100.0 * 17e3;
        let found = per_operator(&mut durations, working_ns, 100.0 * 2e3).expect("it is known");
        assert!((found - 15e3).abs() < 1.0, "{found}");
    }

    #[test]
    fn inconclusive_recordings_give_none() {
        assert_eq!(per_operator(&mut [5e3; 19], 1e9, 0.0), None);
        // Two concurrent threads.
        assert_eq!(per_operator(&mut [1e6; 100], 50e6, 0.0), None);
    }
}
