//! `graph-break`: a line at which `torch.compile` ends a graph and falls back to Python (PyTorch,
//! "Fixing Graph Breaks").

use std::collections::{BTreeMap, BTreeSet};

use super::recompilation::quoted;
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use ridgeline_profile::FileId;

/// Parts of torch's reason for breaks that the program requested.
const REQUESTED: [&str; 4] =
    ["compiler.disable", "dynamo.disable", "graph_break()", "disallow_in_graph"];

pub(super) struct GraphBreak;

impl Rule for GraphBreak {
    fn name(&self) -> &'static str {
        "graph-break"
    }

    fn title(&self) -> &'static str {
        "Graph breaks in compiled code"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(manifest) = evidence.manifest() else { return Vec::new() };
        let mut by_line: BTreeMap<(u32, u32), (&str, BTreeSet<u32>)> = BTreeMap::new();
        for one in manifest.observed.graph_breaks.iter().filter(|one| one.count > 0) {
            if !REQUESTED.iter().any(|mark| one.reason.contains(mark)) {
                let empty = || (one.reason.as_str(), BTreeSet::new());
                let (_, frames) = by_line.entry((one.at.file, one.at.line)).or_insert_with(empty);
                frames.extend(&one.frames);
            }
        }
        let found = by_line.into_iter().map(|((file, line), (reason, frames))| Finding {
            rule: "graph-break",
            at: evidence.place(FileId(file), line),
            cost: cost(evidence, &frames),
            message: "torch.compile breaks the graph here".to_owned(),
            why: format!(
                "{}The code before and after this line becomes two graphs: nothing is fused across \
                them, and Python runs in between. The cost is the time between their ops. To avoid \
                the break, move this line out of the compiled function or rewrite it with tensor \
                ops.",
                quoted(reason)
            ),
            ..Finding::default()
        });
        found.collect()
    }
}

/// The time to leave the graph and to enter those after it. What fusing across the line would save
/// is unknown.
fn cost(evidence: &Evidence<'_>, frames: &BTreeSet<u32>) -> Option<Cost> {
    let entries = &evidence.profile().graph_entries;
    let time_ns: f64 = frames.iter().filter_map(|frame| entries.get(frame)).sum();
    (time_ns > 0.0).then(|| Cost::time(time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_profile::Phase;
    use ridgeline_recording::manifest::Location;
    use ridgeline_recording::observed;

    const TEXT: &str = "import torch\n\ndef f(x):\n    print(x)\n    return x.item()\n";

    fn example(breaks: &[(u32, u32, &str)]) -> Case {
        let one = |(line, count, reason): &(u32, u32, &str)| observed::GraphBreak {
            at: Location { file: 0, line: *line },
            count: *count,
            reason: (*reason).to_owned(),
            frames: Vec::new(),
        };
        Case::new(TEXT)
            .with_manifest(|it| it.observed.graph_breaks = breaks.iter().map(one).collect())
            .call(5, Phase::Forward, &operator("sum", &[&[8], &[]]), 10.0)
    }

    #[test]
    fn each_line_is_reported_once_with_the_reason() {
        let breaks = [(4, 1, "builtin print"), (4, 2, "again"), (5, 1, "Tensor.item")];
        let found = example(&breaks).measured(&GraphBreak);
        assert_eq!(found.iter().map(|one| one.at.line).collect::<Vec<_>>(), [4, 5]);
        assert!(found[0].why.starts_with("torch reports: builtin print. "), "{}", found[0].why);
    }

    #[test]
    fn cost_is_the_time_between_graphs() {
        let mut case = example(&[(4, 1, "print"), (4, 1, "again"), (5, 1, "Tensor.item")]);
        let frames = [vec![1, 2], vec![2, 3, 7], vec![8]];
        for (one, frames) in case.manifest.observed.graph_breaks.iter_mut().zip(frames) {
            one.frames = frames;
        }
        case.profile.graph_entries = [(0, 100.0), (1, 20.0), (2, 3.0), (3, 4.0)].into();
        let costs: Vec<_> = case.measured(&GraphBreak).iter().map(|one| one.cost).collect();
        assert_eq!(costs, [Some(Cost::time(27.0)), None]);
    }

    #[test]
    fn requested_breaks_are_not_reported() {
        let breaks = [(4, 1, "Skip function `f` decorated by torch.compiler.disable"), (5, 0, "x")];
        assert!(example(&breaks).measured(&GraphBreak).is_empty());
        assert!(example(&[]).measured(&GraphBreak).is_empty());
    }
}
