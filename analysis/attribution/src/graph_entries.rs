//! The overhead of entering compiled graphs: Dynamo looks up the compiled code of a function, which
//! runs several wrappers until its first operator (`eval_frame_cpp.cpp`, `convert_frame.py` and
//! `runtime_wrappers.py` of PyTorch, which name these ranges). After a graph break, a region is
//! entered from within another one, and the Python time since that region's last operator counts,
//! too.

use std::collections::BTreeMap;

use super::costs::{typical, window_at};
use super::join::Join;
use super::scale::Scale;
use super::timeline::Piece;
use ridgeline_recording::trace::{Operator, ThreadId};

const LOOKUP: &str = "TorchDynamo Cache Lookup";
/// Name prefix of the range of compiled code: `Torch-Compiled Region: 2/1` has the frame number and
/// the number of the compilation.
const REGION: &str = "Torch-Compiled Region: ";
/// Ranges before the first operator.
const ENTRY_RANGES: [&str; 4] =
    ["Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue", "CompiledFunction", "## Call "];

/// Returns the nanoseconds per iteration by Dynamo's frame number.
pub(super) fn graph_entries(
    join: &Join<'_>,
    pieces: &[Piece],
    scale: &Scale,
) -> BTreeMap<u32, f64> {
    let trace = join.trace;
    let mut found: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut thread = Thread::default();
    // Operators are sorted by thread and start.
    for (at, operator) in trace.operators.iter().enumerate() {
        if thread.number != Some(operator.thread) {
            thread = Thread { number: Some(operator.thread), ..Thread::default() };
        }
        thread.advance_to(operator.start_ns);
        let name = trace.text(operator.name);
        if name.starts_with(LOOKUP) {
            thread.looked_up_since = Some(thread.since(operator.start_ns));
            continue;
        }
        let looked_up_since = thread.looked_up_since.take();
        let region = number(name);
        let window = window_at(join.windows, operator.start_ns);
        if let (Some(region), Some(window)) = (region, window) {
            let from = looked_up_since.unwrap_or_else(|| thread.since(operator.start_ns));
            let later_operators = trace.operators.get(at + 1..).unwrap_or_default().iter();
            let mut within = later_operators
                .take_while(|it| it.thread == operator.thread && it.start_ns < operator.end_ns())
                .filter(|it| {
                    !ENTRY_RANGES.iter().any(|name| trace.text(it.name).starts_with(name))
                });
            let until = within.next().map_or(operator.end_ns(), |first| first.start_ns);
            let by_window = found.entry(region).or_insert_with(|| vec![0.0; join.windows.len()]);
            if let Some(sum) = by_window.get_mut(window) {
                *sum += unprofiled_ns(pieces, scale, from, until);
            }
        }
        thread.enter(operator, region.is_some());
    }
    let sum = |times: Vec<f64>| typical(&times).unwrap_or_else(|| times.iter().sum());
    found.into_iter().map(|(region, times)| (region, sum(times))).collect()
}

/// Returns the nanoseconds that an interval takes in an iteration without the profiler.
fn unprofiled_ns(pieces: &[Piece], scale: &Scale, from: i64, until: i64) -> f64 {
    let first = pieces.partition_point(|piece| piece.end_ns <= from);
    let within = pieces.iter().skip(first).take_while(|piece| piece.start_ns < until);
    let taken = within.map(|piece| {
        let within = piece.end_ns.min(until).saturating_sub(piece.start_ns.max(from));
        let length = piece.end_ns.saturating_sub(piece.start_ns).max(1);
        scale.of_part(piece, within as f64 / length as f64)
    });
    taken.sum()
}

/// The state of a thread.
#[derive(Default)]
struct Thread {
    number: Option<ThreadId>,
    /// The ends of the open ranges, innermost last, and whether each is a region.
    open: Vec<(i64, bool)>,
    /// The end of the last range, or the start of the current region.
    ended: i64,
    /// After a lookup for the next region: the start of the Python time before it.
    looked_up_since: Option<i64>,
}

impl Thread {
    fn advance_to(&mut self, now: i64) {
        while let Some((end, _)) = self.open.pop_if(|(end, _)| *end <= now) {
            self.ended = self.ended.max(end);
        }
    }

    fn enter(&mut self, operator: &Operator, is_region: bool) {
        self.open.push((operator.end_ns(), is_region));
        if is_region {
            self.ended = self.ended.max(operator.start_ns);
        }
    }

    /// Returns the time since which only Python has been running: within a region, since its last
    /// operator.
    fn since(&self, now: i64) -> i64 {
        if self.open.iter().any(|(_, is_region)| *is_region) { self.ended } else { now }
    }
}

fn number(name: &str) -> Option<u32> {
    let (number, _) = name.strip_prefix(REGION)?.split_once('/')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use crate::attribute;
    use crate::fixture::{TraceBuilder, recording};

    #[test]
    fn time_counts_from_the_lookup_to_the_first_operator() {
        const US: i64 = 1_000;
        let mut trace = TraceBuilder::new();
        trace.op("TorchDynamo Cache Lookup", 10 * US, 20 * US);
        trace.op("Torch-Compiled Region: 0/0", 32 * US, 100 * US);
        trace.op("Pregraph bytecode", 35 * US, 5 * US);
        trace.op("CompiledFunction", 45 * US, 80 * US);
        trace.op("## Call CompiledFxGraph f5vc ##", 50 * US, 70 * US);
        trace.op("aten::addmm", 60 * US, 30 * US);
        // A region without operators, and one without its lookup.
        trace.op("Torch-Compiled Region: 1/0", 200 * US, 10 * US);
        trace.op("Torch-Compiled Region: 1/1", 300 * US, 50 * US);
        trace.op("aten::mul", 308 * US, 30 * US);
        trace.op("Torch-Compiled Region", 400 * US, 50 * US);
        let profile = attribute(&recording(trace, &[], 600 * US)).expect("a profile");
        let entries: Vec<_> = profile.graph_entries.into_iter().collect();
        assert_eq!(entries, [(0, 50_000.0), (1, 18_000.0)]);
    }

    #[test]
    fn after_a_break_time_counts_from_the_last_operator() {
        const US: i64 = 1_000;
        let mut trace = TraceBuilder::new();
        trace.op("TorchDynamo Cache Lookup", 10 * US, 20 * US);
        trace.op("Torch-Compiled Region: 0/0", 32 * US, 200 * US);
        trace.op("aten::addmm", 40 * US, 30 * US);
        trace.op("aten::item", 80 * US, 10 * US);
        // Another function is entered without a region: it is not compiled.
        trace.op("TorchDynamo Cache Lookup", 92 * US, US);
        trace.op("aten::max", 95 * US, 5 * US);
        trace.op("TorchDynamo Cache Lookup", 110 * US, 5 * US);
        trace.op("Torch-Compiled Region: 1/0", 120 * US, 100 * US);
        trace.op("aten::mul", 130 * US, 30 * US);
        let profile = attribute(&recording(trace, &[], 600 * US)).expect("a profile");
        let entries: Vec<_> = profile.graph_entries.into_iter().collect();
        assert_eq!(entries, [(0, 30_000.0), (1, 30_000.0)]);
    }
}
