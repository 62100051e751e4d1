//! The host's cost of launching GPU work.

use std::collections::BTreeMap;

use serde::Serialize;

use ridgeline_graph::graph::LONG_DISPATCH_NS;
use ridgeline_recording::trace::{ActivityKind, Trace};

/// The runtime calls that launched GPU work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LaunchOverhead {
    /// Number of calls.
    pub launches: u64,
    /// Total host nanoseconds.
    pub host_ns: u64,
    /// Median nanoseconds.
    pub median_ns: u64,
    /// Number of calls of a millisecond or more, which wait or load kernel code.
    pub long_launches: u64,
    /// Host nanoseconds of these.
    pub long_ns: u64,
    /// Number of kernels that took less time than the call that launched only them.
    pub shorter_kernels: u64,
}

/// Computes the launch statistics of a trace; `None` if there are no launches. `calls` has the
/// runtime call of each activity.
pub fn launch_overhead(trace: &Trace, calls: &[Option<usize>]) -> Option<LaunchOverhead> {
    let mut activities_of: BTreeMap<usize, u64> = BTreeMap::new();
    for call in calls.iter().flatten() {
        *activities_of.entry(*call).or_default() += 1;
    }
    let duration_of = |call: usize| {
        trace.runtime_calls.get(call).map(|call| call.duration_ns.max(0).unsigned_abs())
    };
    let mut durations: Vec<u64> = activities_of.keys().copied().filter_map(duration_of).collect();
    durations.sort_unstable();
    // The launch of a graph pays for all its kernels.
    let launches_one = |call: &usize| activities_of.get(call) == Some(&1);
    let shorter = trace.activities.iter().zip(calls).filter(|(activity, call)| {
        activity.kind == ActivityKind::Kernel
            && call
                .filter(launches_one)
                .and_then(duration_of)
                .is_some_and(|launch_ns| activity.duration_ns.max(0).unsigned_abs() < launch_ns)
    });
    let long = || durations.iter().copied().filter(|ns| *ns as f64 >= LONG_DISPATCH_NS);
    Some(LaunchOverhead {
        launches: durations.len() as u64,
        host_ns: durations.iter().copied().fold(0, u64::saturating_add),
        median_ns: *durations.get(durations.len() / 2)?,
        long_launches: long().count() as u64,
        long_ns: long().fold(0, u64::saturating_add),
        shorter_kernels: shorter.count() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_recording::chrome_trace::Options;

    #[test]
    fn calls_count_once_whatever_they_launch() {
        let event = |category: &str, duration: u32| {
            format!(
                r#"{{"ph": "X", "cat": "{category}", "name": "n", "pid": 1, "tid": 1, "ts": 1, "dur": {duration}}}"#
            )
        };
        // The third call launches nothing, and the second one two kernels.
        let calls = [5, 7, 100, 2_000].map(|duration| event("cuda_runtime", duration));
        let kernels = [4, 6, 9, 1, 3_000].map(|duration| event("kernel", duration));
        let events = [calls.join(","), kernels.join(",")].join(",");
        let json = format!(r#"{{"schemaVersion": 1, "traceEvents": [{events}]}}"#);
        let mut trace = Trace::read(json.as_bytes(), &Options::default()).expect("a trace");
        trace.runtime_calls.sort_by_key(|call| call.duration_ns);
        let found = launch_overhead(&trace, &[Some(0), Some(1), Some(1), None, Some(3)]);
        let expected = LaunchOverhead {
            launches: 3,
            host_ns: 2_012_000,
            median_ns: 7_000,
            long_launches: 1,
            long_ns: 2_000_000,
            shorter_kernels: 1,
        };
        assert_eq!(found, Some(expected));
        assert_eq!(launch_overhead(&trace, &[None; 5]), None);
    }
}
