//! `imbalance`: ranks with different amounts of work: larger batches, longer sequences, more loop
//! iterations. The rank with the most sets the pace.

use super::straggler::finding;
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use ridgeline_attribution::ranks::uneven::{Cause, uneven};
use ridgeline_base::units;

pub(crate) struct Imbalance;

/// Formats a count per iteration. As a mean over several iterations it may not be a whole number.
fn times(calls: f64) -> String {
    let whole = (calls - calls.round()).abs() < 0.05;
    if whole { format!("{calls:.0}") } else { format!("{calls:.1}") }
}

impl Rule for Imbalance {
    fn name(&self) -> &'static str {
        "imbalance"
    }

    fn title(&self) -> &'static str {
        "Uneven work across ranks"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(mut found) = evidence.profile().ranks.as_deref().and_then(uneven) else {
            return Vec::new();
        };
        let rank = found.rank;
        let message = match found.cause {
            Cause::LargerBatch(own, theirs) => {
                format!("Rank {rank} gets batches of {own} samples, the others {theirs}")
            }
            Cause::MoreCalls(own, theirs) => format!(
                "Rank {rank} runs this {} times per iteration, the others {} times",
                times(own),
                times(theirs)
            ),
            Cause::MoreOperations(own, theirs) => format!(
                "Rank {rank} computes {} more than the others",
                units::percent(own / theirs - 1.0)
            ),
            Cause::Alone | Cause::Slower => return Vec::new(),
        };
        if !matches!(found.cause, Cause::MoreCalls(..)) {
            // Uneven data comes from the loop, not from the lines that process it.
            let at_loop = evidence.profile().iteration.loop_line.map(|(file, line)| {
                let place = evidence.place(file, line);
                ridgeline_attribution::ranks::uneven::SlowLine {
                    path: place.path,
                    line: place.line,
                    surplus_ns: 0.0,
                }
            });
            found.lines.splice(0..0, at_loop);
        }
        let why = "Ranks with less work wait for this one in every collective. Split the data \
            evenly: the same number of samples per rank, and the same number of tokens if sequence \
            lengths differ (sort or pack by length before splitting).";
        let cost = Cost::time(found.beyond_mean_ns);
        finding(evidence, self.name(), &found, cost, message, why).into_iter().collect()
    }
}
