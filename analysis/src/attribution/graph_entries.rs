//! What it takes to get into compiled graphs: Dynamo looks for the code that it made of a function, and that
//! finds its way to the first operator (`eval_frame_cpp.cpp`, `convert_frame.py` and `runtime_wrappers.py`
//! of PyTorch, which name these ranges).

use std::collections::BTreeMap;

use super::join::Join;
use super::steps::Steps;

const LOOKUP: &str = "TorchDynamo Cache Lookup";
/// Of the compiled code of a function: `Torch-Compiled Region: 2/1`, its number and how often it was compiled.
const REGION: &str = "Torch-Compiled Region: ";
/// Ranges on the way to the first operator.
const ON_THE_WAY: [&str; 4] =
    ["Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue", "CompiledFunction", "## Call "];

/// Nanoseconds of an iteration by the number that Dynamo gave a function.
pub(super) fn graph_entries(join: &Join<'_>, steps: &Steps) -> BTreeMap<u32, f64> {
    let trace = join.trace;
    let mut found: BTreeMap<u32, f64> = BTreeMap::new();
    // Operators are sorted by thread and start.
    for (at, region) in trace.operators.iter().enumerate() {
        let Some(number) = number(trace.text(region.name)) else { continue };
        let is_within = |(from, to): &(i64, i64)| (*from..*to).contains(&region.start_ns);
        if !join.windows.iter().any(is_within) {
            continue;
        }
        let before = at.checked_sub(1).and_then(|before| trace.operators.get(before));
        let lookup = before
            .filter(|it| it.thread == region.thread && trace.text(it.name).starts_with(LOOKUP));
        let from = lookup.map_or(region.start_ns, |lookup| lookup.start_ns);
        let behind = trace.operators.get(at + 1..).unwrap_or_default().iter();
        let mut within = behind
            .take_while(|it| it.thread == region.thread && it.start_ns < region.end_ns())
            .filter(|it| !ON_THE_WAY.iter().any(|name| trace.text(it.name).starts_with(name)));
        let until = within.next().map_or(region.end_ns(), |first| first.start_ns);
        *found.entry(number).or_default() += until.saturating_sub(from) as f64;
    }
    let iterations = steps.iterations_in_sum();
    found.values_mut().for_each(|ns| *ns /= iterations);
    found
}

fn number(name: &str) -> Option<u32> {
    let (number, _) = name.strip_prefix(REGION)?.split_once('/')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use crate::attribution::attribute;
    use crate::attribution::fixture::{TraceBuilder, recording};

    #[test]
    fn from_the_lookup_to_the_first_operator() {
        const US: i64 = 1_000;
        let mut trace = TraceBuilder::new();
        trace.op("TorchDynamo Cache Lookup", 10 * US, 20 * US);
        trace.op("Torch-Compiled Region: 0/0", 32 * US, 100 * US);
        trace.op("Pregraph bytecode", 35 * US, 5 * US);
        trace.op("CompiledFunction", 45 * US, 80 * US);
        trace.op("## Call CompiledFxGraph f5vc ##", 50 * US, 70 * US);
        trace.op("aten::addmm", 60 * US, 30 * US);
        // One that runs nothing, and one whose lookup is not there.
        trace.op("Torch-Compiled Region: 1/0", 200 * US, 10 * US);
        trace.op("Torch-Compiled Region: 1/1", 300 * US, 50 * US);
        trace.op("aten::mul", 308 * US, 30 * US);
        trace.op("Torch-Compiled Region", 400 * US, 50 * US);
        let profile = attribute(&recording(trace, &[], 600 * US)).expect("a profile");
        let entries: Vec<_> = profile.graph_entries.into_iter().collect();
        assert_eq!(entries, [(0, 50_000.0), (1, 18_000.0)]);
    }
}
