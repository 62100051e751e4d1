//! What a GPU did at each instant of the iterations, and for which context.
//!
//! An instant at which kernels run belongs to them, in equal parts where several run at once; an
//! instant at which none runs belongs to what the host did then. So the parts add up to the
//! iteration, whoever waits for whom.

use super::contexts::{ContextId, Contexts};
use super::correlate::Places;
use crate::recording::correlation;
use crate::recording::trace::Trace;

/// What launched each activity of a GPU.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// By activity: the runtime call. Nothing for what was launched before the recording began.
    pub calls: Vec<Option<usize>>,
    /// By runtime call: the innermost operator around it.
    pub operators: Vec<Option<usize>>,
    /// By runtime call: to whom its work belongs.
    pub contexts: Vec<ContextId>,
}

impl Launches {
    pub fn new(trace: &Trace, places: &Places<'_>, contexts: &mut Contexts<'_>) -> Launches {
        if trace.activities.is_empty() && trace.runtime_calls.is_empty() {
            return Launches::default();
        }
        let operators = correlation::operator_of_runtime_calls(trace);
        let of_calls = trace
            .runtime_calls
            .iter()
            .zip(&operators)
            .map(|(call, operator)| {
                let operator = operator.map(|operator| operator as u32);
                contexts.of_moment(operator, places.at(call.thread, call.start_ns))
            })
            .collect();
        let calls = correlation::runtime_call_of_activities(trace);
        Launches { calls, operators, contexts: of_calls }
    }

    /// To whom an activity belongs.
    pub fn context(&self, activity: usize) -> Option<ContextId> {
        self.contexts.get((*self.calls.get(activity)?)?).copied()
    }
}

/// The stretches of time at which some GPU activity ran, and each activity's part of them.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// Sorted, without overlaps.
    pub stretches: Vec<(i64, i64)>,
    /// By activity, in nanoseconds: its equal part of the instants at which it ran, within the
    /// windows. The sum is the sum of the stretches.
    pub parts: Vec<f64>,
}

impl Busy {
    /// `windows` are sorted and do not overlap.
    pub fn new(trace: &Trace, windows: &[(i64, i64)]) -> Busy {
        let mut changes: Vec<(i64, bool, usize)> = Vec::new();
        for (index, activity) in trace.activities.iter().enumerate() {
            let (start_ns, end_ns) = (activity.start_ns, activity.end_ns());
            let first = windows.partition_point(|&(_, window_end)| window_end <= start_ns);
            for &(window_start, window_end) in windows.get(first..).unwrap_or_default() {
                if window_start >= end_ns {
                    break;
                }
                let (start_ns, end_ns) = (start_ns.max(window_start), end_ns.min(window_end));
                if start_ns < end_ns {
                    changes.push((start_ns, true, index));
                    changes.push((end_ns, false, index));
                }
            }
        }
        // Ends come before starts, so that what follows at once does not run beside it.
        changes.sort_unstable();
        let mut busy = Busy { stretches: Vec::new(), parts: vec![0.0; trace.activities.len()] };
        // The integral over time of one over the number of running activities: what an activity
        // gets is its growth while the activity runs.
        let mut integral = 0.0;
        let mut running = 0_u32;
        let mut now = i64::MIN;
        for (time_ns, starts, index) in changes {
            if running > 0 && time_ns > now {
                integral += time_ns.saturating_sub(now) as f64 / f64::from(running);
                match busy.stretches.last_mut().filter(|(_, end_ns)| *end_ns == now) {
                    Some((_, end_ns)) => *end_ns = time_ns,
                    None => busy.stretches.push((now, time_ns)),
                }
            }
            now = time_ns;
            let part = busy.parts.get_mut(index);
            if starts {
                running += 1;
                if let Some(part) = part {
                    *part -= integral;
                }
            } else {
                running = running.saturating_sub(1);
                if let Some(part) = part {
                    *part += integral;
                }
            }
        }
        busy
    }
}
