//! `recompilation`: a function that `torch.compile` compiles again and again, because something that it
//! took for constant changes (PyTorch, "Dealing with Recompilations").

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;

/// Compiled again once or twice is usual: the second time torch makes the size that changed a variable.
const FEWEST: u32 = 3;
/// Characters of torch's reason that are told.
const LONGEST: usize = 200;

pub(super) struct Recompilation;

impl Rule for Recompilation {
    fn name(&self) -> &'static str {
        "recompilation"
    }

    fn title(&self) -> &'static str {
        "Repeated recompilation"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(manifest) = evidence.manifest() else { return Vec::new() };
        let seen = manifest.iterations.seen.filter(|seen| *seen > 0);
        let again = manifest.observed.recompilations.iter().filter(|one| one.count >= FEWEST);
        let found = again.map(|one| Finding {
            rule: "recompilation",
            at: evidence.place(ridgeline_profile::FileId(one.at.file), one.at.line),
            message: format!("torch.compile recompiled this {} times", one.count),
            why: format!(
                "{}One compilation can take longer than thousands of iterations save. Mark varying \
                sizes with `torch._dynamo.mark_dynamic` or `dynamic=True`, and pass varying \
                numbers as tensors.",
                quoted(&one.reason)
            ),
            // Over the whole run, spread over the iterations in which it happened.
            cost: seen
                .filter(|_| one.time_ns > 0)
                .map(|seen| Cost::time(one.time_ns as f64 / f64::from(seen))),
            ..Finding::default()
        });
        found.collect()
    }
}

/// What torch says of it, in front of what is said here: one line, and not a long one.
pub(super) fn quoted(reason: &str) -> String {
    let first = reason.lines().map(str::trim).find(|line| !line.is_empty());
    let short: String = first.unwrap_or_default().chars().take(LONGEST).collect();
    if short.is_empty() {
        short
    } else {
        format!("torch reports: {}. ", short.trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_profile::Phase;
    use ridgeline_recording::manifest::Location;
    use ridgeline_recording::observed;

    const TEXT: &str = "import torch\n\ndef loss(x):\n    return x.sum()\n";

    fn example(count: u32, time_ns: u64) -> Case {
        Case::new(TEXT)
            .told(|it| {
                it.iterations.seen = Some(10);
                it.observed.recompilations = vec![observed::Recompilation {
                    at: Location { file: 0, line: 3 },
                    count,
                    time_ns,
                    reason: "\n tensor 'x' size mismatch at index 0.\n more".to_owned(),
                }];
            })
            .call(4, Phase::Forward, &operator("sum", &[&[8], &[]]), 10.0)
    }

    #[test]
    fn what_is_compiled_again_and_again_costs_its_share_of_the_run() {
        let found = example(5, 20_000_000).measured(&Recompilation);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 3);
        assert_eq!(found[0].cost, Some(Cost::time(2e6)));
        let begin = "torch reports: tensor 'x' size mismatch at index 0. One compilation";
        assert!(found[0].why.starts_with(begin), "{}", found[0].why);
    }

    #[test]
    fn once_again_is_usual_and_an_unknown_time_is_unknown() {
        assert!(example(1, 20_000_000).measured(&Recompilation).is_empty());
        assert!(example(2, 20_000_000).measured(&Recompilation).is_empty());
        assert_eq!(example(3, 0).measured(&Recompilation)[0].cost, None);
    }
}
