//! The host's cost of launching GPU work.

use serde::Serialize;

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
    /// Number of kernels that took less time than the call that launched them.
    pub shorter_kernels: u64,
}

/// Computes the launch statistics of a trace; `None` if there are no launches. `calls` has the
/// runtime call of each activity.
pub fn launch_overhead(trace: &Trace, calls: &[Option<usize>]) -> Option<LaunchOverhead> {
    let mut starting: Vec<usize> = calls.iter().flatten().copied().collect();
    starting.sort_unstable();
    starting.dedup();
    let duration_of = |call: usize| {
        trace.runtime_calls.get(call).map(|call| call.duration_ns.max(0).unsigned_abs())
    };
    let mut durations: Vec<u64> = starting.into_iter().filter_map(duration_of).collect();
    durations.sort_unstable();
    let shorter = trace.activities.iter().zip(calls).filter(|(activity, call)| {
        activity.kind == ActivityKind::Kernel
            && call
                .and_then(duration_of)
                .is_some_and(|launch_ns| activity.duration_ns.max(0).unsigned_abs() < launch_ns)
    });
    Some(LaunchOverhead {
        launches: durations.len() as u64,
        host_ns: durations.iter().copied().fold(0, u64::saturating_add),
        median_ns: *durations.get(durations.len() / 2)?,
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
        // The last call launches nothing.
        let calls = [5, 7, 100].map(|duration| event("cuda_runtime", duration));
        let kernels = [4, 6, 9, 1].map(|duration| event("kernel", duration));
        let events = [calls.join(","), kernels.join(",")].join(",");
        let json = format!(r#"{{"schemaVersion": 1, "traceEvents": [{events}]}}"#);
        let mut trace = Trace::read(json.as_bytes(), &Options::default()).expect("a trace");
        trace.runtime_calls.sort_by_key(|call| call.duration_ns);
        let found = launch_overhead(&trace, &[Some(0), Some(1), Some(1), None]);
        let expected =
            LaunchOverhead { launches: 2, host_ns: 12_000, median_ns: 7_000, shorter_kernels: 2 };
        assert_eq!(found, Some(expected));
        assert_eq!(launch_overhead(&trace, &[None; 4]), None);
    }
}
