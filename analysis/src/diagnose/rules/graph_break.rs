//! `graph-break`: a line at which `torch.compile` gives up a graph and goes back to Python (PyTorch,
//! "Fixing Graph Breaks").

use std::collections::BTreeMap;

use super::recompilation::quoted;
use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::{Cost, Finding};
use crate::diagnose::rule::Rule;
use crate::profile::FileId;

/// In torch's reason where the program asked for it.
const WANTED: [&str; 4] =
    ["compiler.disable", "dynamo.disable", "graph_break()", "disallow_in_graph"];

/// How Dynamo calls what follows such a line (`torch/_dynamo/resume_execution.py`).
const RESUMES: &str = "torch_dynamo_resume_in_";

pub(super) struct GraphBreak;

impl Rule for GraphBreak {
    fn name(&self) -> &'static str {
        "graph-break"
    }

    fn title(&self) -> &'static str {
        "Lines that break a compiled graph"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(manifest) = evidence.manifest() else { return Vec::new() };
        let mut by_line: BTreeMap<(u32, u32), &str> = BTreeMap::new();
        for one in manifest.observed.graph_breaks.iter().filter(|one| one.count > 0) {
            if !WANTED.iter().any(|mark| one.reason.contains(mark)) {
                by_line.entry((one.at.file, one.at.line)).or_insert(&one.reason);
            }
        }
        let found = by_line.into_iter().map(|((file, line), reason)| Finding {
            rule: "graph-break",
            at: evidence.place(FileId(file), line),
            cost: cost(evidence, FileId(file), line),
            message: "torch.compile gives up the graph here and goes back to Python".to_owned(),
            why: format!(
                "{}What stands before and after becomes two graphs, between which nothing is fused and \
                 Python runs. The cost is that of getting into the second one alone. Moved out of the compiled function, or written in tensor operations, the \
                 line leaves one graph.",
                quoted(reason)
            ),
            ..Finding::default()
        });
        found.collect()
    }
}

/// What getting into the graphs behind the line takes. What fusing across it would save, nobody knows.
fn cost(evidence: &Evidence<'_>, file: FileId, line: u32) -> Option<Cost> {
    let end = format!("_at_{line}");
    let compiled = evidence.manifest()?.compiled.iter();
    let behind = compiled.filter(|region| {
        FileId(region.file) == file && region.name.contains(RESUMES) && region.name.ends_with(&end)
    });
    let entries = &evidence.profile().graph_entries;
    let time_ns: f64 =
        behind.filter_map(|region| entries.get(&region.frame?)).fold(0.0, |sum, ns| sum + ns);
    (time_ns > 0.0).then(|| Cost::time(time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::harness::{Case, operator};
    use crate::profile::Phase;
    use crate::recording::manifest::{Location, Region};
    use crate::recording::observed;

    const TEXT: &str = "import torch\n\ndef f(x):\n    print(x)\n    return x.item()\n";

    fn example(breaks: &[(u32, u32, &str)]) -> Case {
        let one = |(line, count, reason): &(u32, u32, &str)| observed::GraphBreak {
            at: Location { file: 0, line: *line },
            count: *count,
            reason: (*reason).to_owned(),
        };
        Case::new(TEXT).told(|it| it.observed.graph_breaks = breaks.iter().map(one).collect()).call(
            5,
            Phase::Forward,
            &operator("sum", &[&[8], &[]]),
            10.0,
        )
    }

    #[test]
    fn each_line_once_with_what_torch_says() {
        let breaks = [(4, 1, "builtin print"), (4, 2, "again"), (5, 1, "Tensor.item")];
        let found = example(&breaks).measured(&GraphBreak);
        assert_eq!(found.iter().map(|one| one.at.line).collect::<Vec<_>>(), [4, 5]);
        assert!(found[0].why.starts_with("torch says: builtin print. "), "{}", found[0].why);
    }

    #[test]
    fn getting_into_the_graph_behind_it_is_the_cost() {
        let region =
            |name: &str, frame| Region { name: name.to_owned(), frame, ..Region::default() };
        let mut case = example(&[(4, 1, "print"), (5, 1, "Tensor.item")]).told(|it| {
            it.compiled = vec![
                region("f", Some(0)),
                region("torch_dynamo_resume_in_f_at_4", Some(1)),
                region("torch_dynamo_resume_in_g_at_4", Some(2)),
                region("torch_dynamo_resume_in_f_at_5", None),
            ];
        });
        case.profile.graph_entries = [(0, 100.0), (1, 20.0), (2, 3.0)].into();
        let costs: Vec<_> = case.measured(&GraphBreak).iter().map(|one| one.cost).collect();
        assert_eq!(costs, [Some(Cost::time(23.0)), None]);
    }

    #[test]
    fn what_the_program_asked_for_is_no_fault() {
        let breaks = [(4, 1, "Skip function `f` decorated by torch.compiler.disable"), (5, 0, "x")];
        assert!(example(&breaks).measured(&GraphBreak).is_empty());
        assert!(example(&[]).measured(&GraphBreak).is_empty());
    }
}
