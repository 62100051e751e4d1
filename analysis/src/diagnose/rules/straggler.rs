//! A rank that takes longer than the others at the same work, or that does something alone: every
//! exchange waits for it. Per-rank comparison of compute time is how stragglers are found in
//! production (Wu et al., "FALCON", 2024); here it goes down to the line.

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::{Cost, Finding, Place};
use crate::diagnose::rule::Rule;
use crate::ranks::uneven::{Cause, SlowLine, Uneven, uneven};
use crate::units;

/// See the module's page.
pub(crate) struct Straggler;

impl Rule for Straggler {
    fn name(&self) -> &'static str {
        "straggler"
    }

    fn title(&self) -> &'static str {
        "One rank that the others wait for"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(found) = evidence.profile().ranks.as_deref().and_then(uneven) else {
            return Vec::new();
        };
        let rank = found.rank;
        let (message, why) = match found.cause {
            Cause::Alone => (
                format!("only rank {rank} runs this, and the others wait for it"),
                "The other ranks are done earlier and wait in the next exchange. Do it less often, \
                 give every rank a part of it, or do it beside the training: on another thread, or \
                 after the loop.",
            ),
            Cause::Slower if found.lines.is_empty() => (
                format!("rank {rank} is slower than the others on all of its lines"),
                "It does the same work and takes longer for it, so the reason is not in the text: \
                 its processor or GPU may be shared, slowed by heat or power, or fed by another \
                 memory. The other ranks wait for it in every exchange.",
            ),
            Cause::Slower => (
                format!("rank {rank} takes longer here than the others, who wait for it"),
                "The rank does the same work here and takes longer: slower storage or a shared \
                 processor may be the reason. The other ranks wait for it in the next exchange.",
            ),
            Cause::LargerBatch(..) | Cause::MoreCalls(..) | Cause::MoreOperations(..) => {
                return Vec::new();
            }
        };
        finding(evidence, self.name(), &found, message, why).into_iter().collect()
    }
}

/// The finding of an uneven rank, at the line that takes most of the surplus, else at the loop.
/// Nothing where neither is known.
pub(super) fn finding(
    evidence: &Evidence<'_>,
    rule: &'static str,
    found: &Uneven,
    message: String,
    why: &str,
) -> Option<Finding> {
    let mut lines = found.lines.iter();
    let at = match lines.next() {
        Some(first) => place(first),
        None => {
            let (file, line) = evidence.profile().iteration.loop_line?;
            evidence.place(file, line)
        }
    };
    let related = lines.map(|line| {
        let more = units::duration(line.surplus_ns);
        (place(line), format!("{more} longer on rank {}", found.rank))
    });
    Some(Finding {
        rule,
        related: related.collect(),
        at,
        message,
        why: why.to_owned(),
        cost: Some(Cost::time(found.surplus_ns)),
        fix: None,
    })
}

fn place(line: &SlowLine) -> Place {
    Place { path: line.path.clone(), line: line.line }
}
