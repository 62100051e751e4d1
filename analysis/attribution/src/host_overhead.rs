//! What the host takes for an operator beside its computation, from a recording on a CPU: Python, the
//! dispatcher and autograd. A GPU waits for just that when it is faster than its host.

use super::recorded_step::{Asked, annotated, median_window};
use super::steps::Steps;
use ridgeline_profile::Profile;
use ridgeline_recording::Recording;

/// Fewer operators in an iteration say nothing about each.
const FEWEST_OPERATORS: usize = 20;
/// The quickest twentieth of the operators has next to nothing to compute: their time is the
/// dispatcher's. Where even those take longer than [`MOST_DISPATCH_NS`], they compute.
const QUICKEST: usize = 20;
const MOST_DISPATCH_NS: f64 = 10_000.0;
/// Of what is left beside the computation the profiler takes at most this share: an operator is a few
/// microseconds of Python and dispatch, and profiling it takes one or two.
const MOST_OF_PROFILER: f64 = 0.7;

/// Nanoseconds of the host for each operator of an iteration beside its computation. `None` where a GPU
/// ran it, too few operators were recorded, or operators ran beside one another.
pub fn host_ns_per_operator(recording: &Recording, profile: &Profile) -> Option<f64> {
    let trace = &recording.trace;
    if !trace.activities.is_empty() {
        return None;
    }
    let window = median_window(&Steps::new(recording).windows)?;
    let asked = Asked::new(trace, window);
    let mut durations: Vec<f64> = (0_u32..)
        .zip(&trace.operators)
        .filter(|(index, _)| asked.is_outermost(*index))
        .map(|(_, operator)| operator.duration_ns as f64)
        .collect();
    let loading_ns: f64 = annotated(trace, "enumerate(DataLoader)#")
        .iter()
        .map(|(start, end)| (*end.min(&window.1) - *start.max(&window.0)).max(0) as f64)
        .sum();
    let window_ns = window.1.saturating_sub(window.0) as f64;
    let profiler_ns = (window_ns - profile.iteration.typical_ns()).max(0.0);
    per_operator(&mut durations, window_ns - loading_ns, profiler_ns)
}

fn per_operator(durations: &mut [f64], working_ns: f64, profiler_ns: f64) -> Option<f64> {
    if durations.len() < FEWEST_OPERATORS {
        return None;
    }
    durations.sort_by(f64::total_cmp);
    let dispatch_ns = durations.get(durations.len() / QUICKEST)?.min(MOST_DISPATCH_NS);
    let computing_ns: f64 = durations.iter().map(|ns| (ns - dispatch_ns).max(0.0)).sum();
    let beside_ns = working_ns - computing_ns;
    if beside_ns <= 0.0 {
        return None;
    }
    // The profiler lengthens what is beside the computation, not the computation.
    let own_ns = beside_ns - profiler_ns.min(MOST_OF_PROFILER * beside_ns);
    let per_operator = own_ns / durations.len() as f64;
    per_operator.is_finite().then_some(per_operator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computation_and_profiler_are_taken_out() {
        // A hundred operators of 5 µs dispatch, half of which compute for 1 ms, with 10 µs of Python
        // before each and 2 µs of the profiler.
        let mut durations = [[5e3; 50], [1_005e3; 50]].concat();
        let working_ns = 50.0 * 1e6 + 100.0 * 17e3;
        let found = per_operator(&mut durations, working_ns, 100.0 * 2e3).expect("it is known");
        assert!((found - 15e3).abs() < 1.0, "{found}");
    }

    #[test]
    fn what_says_nothing_gives_nothing() {
        assert_eq!(per_operator(&mut [5e3; 19], 1e9, 0.0), None);
        // Two threads at once.
        assert_eq!(per_operator(&mut [1e6; 100], 50e6, 0.0), None);
    }
}
