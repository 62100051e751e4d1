//! `recompilation`: a function that `torch.compile` compiles again and again, because something
//! that it assumed to be constant changes (PyTorch, "Dealing with Recompilations").

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;

/// One or two recompilations are normal: at the second compilation, torch makes the size that
/// changed dynamic.
const MIN_RECOMPILATIONS: u32 = 3;
/// The maximum length of torch's reason in a finding, in characters.
const MAX_REASON_CHARS: usize = 200;

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
        let again =
            manifest.observed.recompilations.iter().filter(|one| one.count >= MIN_RECOMPILATIONS);
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
            // The time of the whole run, divided by the iterations that it had.
            cost: seen
                .filter(|_| one.time_ns > 0)
                .map(|seen| Cost::time(one.time_ns as f64 / f64::from(seen))),
            ..Finding::default()
        });
        found.collect()
    }
}

/// The first line of torch's reason, shortened, as the first sentence of an explanation.
pub(super) fn quoted(reason: &str) -> String {
    let first = reason.lines().map(str::trim).find(|line| !line.is_empty());
    let short: String = first.unwrap_or_default().chars().take(MAX_REASON_CHARS).collect();
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
            .with_manifest(|it| {
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
    fn cost_is_compile_time_per_iteration() {
        let found = example(5, 20_000_000).measured(&Recompilation);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 3);
        assert_eq!(found[0].cost, Some(Cost::time(2e6)));
        let begin = "torch reports: tensor 'x' size mismatch at index 0. One compilation";
        assert!(found[0].why.starts_with(begin), "{}", found[0].why);
    }

    #[test]
    fn few_recompilations_are_normal_and_unknown_time_has_no_cost() {
        assert!(example(1, 20_000_000).measured(&Recompilation).is_empty());
        assert!(example(2, 20_000_000).measured(&Recompilation).is_empty());
        assert_eq!(example(3, 0).measured(&Recompilation)[0].cost, None);
    }
}
