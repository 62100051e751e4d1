//! Selects a part of a long trace: the iterations around the median one. Attribution needs ten
//! times as much memory per event as the trace, and a few iterations are enough.

use std::collections::HashSet;
use std::ops::Range;

use super::metrics::trace_steps::TraceSteps;
use ridgeline_recording::trace::Trace;

/// The maximum number of events to attribute. They take some 150 MB.
pub const MAX_EVENTS: usize = 200_000;

/// The part of a trace to attribute.
#[derive(Debug)]
pub enum Part {
    /// The whole trace, which is short enough.
    Whole,
    /// Some of its iterations.
    Iterations {
        /// A trace of these iterations only.
        trace: Box<Trace>,
        /// Number of iterations in it.
        count: usize,
        /// Number of iterations in the whole trace.
        of: usize,
    },
    /// A single iteration has more than [`MAX_EVENTS`], or the trace does not name its iterations.
    TooLarge,
}

/// Selects the part of a trace recorded elsewhere to attribute, with at most `max_events` events.
pub fn part(trace: &Trace, max_events: usize) -> Part {
    if size(trace) <= max_events {
        return Part::Whole;
    }
    let Some(steps) = TraceSteps::new(trace) else { return Part::TooLarge };
    let sizes = events_of_windows(trace, &steps.windows);
    let Some(chosen) = around_median(&steps, &sizes, max_events) else {
        return Part::TooLarge;
    };
    let windows = steps.windows;
    let (Some((from, _)), Some((_, to))) =
        (windows.get(chosen.start), windows.get(..chosen.end).and_then(<[_]>::last))
    else {
        return Part::TooLarge;
    };
    let trace = Box::new(between(trace, *from, *to));
    Part::Iterations { trace, count: chosen.len(), of: windows.len() }
}

fn size(trace: &Trace) -> usize {
    trace.operators.len()
        + trace.runtime_calls.len()
        + trace.activities.len()
        + trace.memory.len()
        + trace.annotations.len()
}

/// Returns the number of events that begin in each window.
fn events_of_windows(trace: &Trace, windows: &[(i64, i64)]) -> Vec<usize> {
    let mut sizes = vec![0; windows.len()];
    let starts = (trace.operators.iter().map(|operator| operator.start_ns))
        .chain(trace.runtime_calls.iter().map(|call| call.start_ns))
        .chain(trace.activities.iter().map(|activity| activity.start_ns))
        .chain(trace.memory.iter().map(|event| event.time_ns))
        .chain(trace.annotations.iter().map(|annotation| annotation.start_ns));
    for start_ns in starts {
        let index = windows.partition_point(|(_, end)| *end <= start_ns);
        let within = windows.get(index).is_some_and(|(start, _)| *start <= start_ns);
        if let Some(size) = sizes.get_mut(index).filter(|_| within) {
            *size += 1;
        }
    }
    sizes
}

/// Returns the median window with as many windows around it as fit.
fn around_median(steps: &TraceSteps, sizes: &[usize], max_events: usize) -> Option<Range<usize>> {
    let median = steps.median_index()?;
    let size_of = |index: usize| sizes.get(index).copied().unwrap_or(0);
    let mut total = size_of(median);
    let mut chosen = median..median + 1;
    if total > max_events {
        return None;
    }
    loop {
        let before = chosen.start.checked_sub(1);
        let after = Some(chosen.end).filter(|index| *index < steps.windows.len());
        let fits = |index: &usize| total.saturating_add(size_of(*index)) <= max_events;
        if let Some(index) = after.filter(fits) {
            total += size_of(index);
            chosen.end += 1;
        } else if let Some(index) = before.filter(fits) {
            total += size_of(index);
            chosen.start -= 1;
        } else {
            return Some(chosen);
        }
    }
}

/// Returns the events that began on the host between two moments, and the GPU activities that they
/// launched.
fn between(trace: &Trace, from: i64, to: i64) -> Trace {
    let within = |start_ns: i64| (from..to).contains(&start_ns);
    let runtime_calls: Vec<_> =
        trace.runtime_calls.iter().filter(|call| within(call.start_ns)).copied().collect();
    let launched: HashSet<u64> =
        runtime_calls.iter().filter_map(|call| call.correlation.get()).collect();
    // In a trace of several processes, others may use the same numbers at other times.
    let latest_ns = to.saturating_add(to.saturating_sub(from));
    let earliest_ns = from.saturating_sub(MAX_CLOCK_DIFFERENCE_NS);
    let belongs = |start_ns: i64, correlation: Option<u64>| match correlation {
        Some(number) if launched.contains(&number) => (earliest_ns..latest_ns).contains(&start_ns),
        _ => within(start_ns),
    };
    Trace {
        strings: trace.strings.clone(),
        threads: trace.threads.clone(),
        operators: trace.operators.iter().filter(|it| within(it.start_ns)).copied().collect(),
        annotations: trace.annotations.iter().filter(|it| within(it.start_ns)).copied().collect(),
        runtime_calls,
        activities: (trace.activities.iter())
            .filter(|it| belongs(it.start_ns, it.correlation.get()))
            .copied()
            .collect(),
        details: trace.details.clone(),
        memory: trace.memory.iter().filter(|it| within(it.time_ns)).copied().collect(),
        python_frames: Vec::new(),
        instants: trace.instants.iter().filter(|it| within(it.time_ns)).copied().collect(),
        counters: trace.counters,
        devices: trace.devices.clone(),
        distributed: trace.distributed.clone(),
        process_names: trace.process_names.clone(),
        base_time_ns: trace.base_time_ns,
        truncated_at: trace.truncated_at,
        unusable_events: trace.unusable_events,
        negative_durations: trace.negative_durations,
    }
}

/// The maximum difference between the clocks of host and GPU, in nanoseconds; usually it is some
/// microseconds.
const MAX_CLOCK_DIFFERENCE_NS: i64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute;
    use ridgeline_recording::Recording;
    use ridgeline_recording::chrome_trace::Options;

    /// Creates a trace of steps of 1000 µs, each with two operators, one of which launches a
    /// kernel.
    fn trace(steps: u32, named: bool) -> Trace {
        let mut events = Vec::new();
        for step in 0..steps {
            let at = |offset: u32| step * 1000 + offset;
            let event = |category: &str, name: &str, offset: u32, duration: u32, more: &str| {
                format!(
                    r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": 1,
                        "ts": {}, "dur": {duration}, "args": {{{more}}}}}"#,
                    at(offset)
                )
            };
            let number = format!(r#""correlation": {step}"#);
            let on_gpu = format!(r#""device": 0, "stream": 7, {number}"#);
            if named {
                events.push(event("user_annotation", &format!("ProfilerStep#{step}"), 0, 1000, ""));
            }
            events.push(event("cpu_op", "aten::mm", 10, 500, ""));
            events.push(event("cuda_runtime", "cudaLaunchKernel", 100, 10, &number));
            events.push(event("cpu_op", "aten::add", 600, 100, ""));
            // It continues into the next step.
            events.push(event("kernel", "gemm", 900, 400, &on_gpu));
        }
        let json = format!("[{}]", events.join(","));
        Trace::read(json.as_bytes(), &Options::default()).expect("a trace")
    }

    #[test]
    fn a_short_trace_is_used_completely() {
        assert!(matches!(part(&trace(10, true), 50), Part::Whole));
    }

    #[test]
    fn some_iterations_of_a_long_trace_give_the_same_costs() {
        let whole = trace(100, true);
        let Part::Iterations { trace: part, count, of } = part(&whole, 50) else {
            panic!("not a part")
        };
        assert_eq!((count, of), (10, 100));
        assert_eq!((part.operators.len(), part.activities.len()), (20, 10));
        let profile = |trace: Trace| {
            attribute(&Recording { trace, ..Recording::default() }).expect("a profile")
        };
        let (of_part, of_whole) = (profile(*part), profile(whole));
        assert_eq!(of_part.iteration.time_ns, of_whole.iteration.time_ns);
        let (a, b) = (of_part.bottleneck.expect("one"), of_whole.bottleneck.expect("one"));
        assert_eq!(a.savings.len(), b.savings.len());
    }

    #[test]
    fn an_iteration_can_be_too_large() {
        assert!(matches!(part(&trace(100, false), 50), Part::TooLarge));
        assert!(matches!(part(&trace(100, true), 3), Part::TooLarge));
    }
}
