//! `blocking-copy`: a copy from pinned memory that the host waits for anyway (PyTorch, "CUDA
//! semantics: Use pinned memory buffers").

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use std::collections::BTreeMap;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use crate::source_queries::nodes_of_line;
use crate::waits::saved_without;
use ridgeline_graph::graph::{Graph, TaskId, TaskKind};
use ridgeline_graph::uploads::is_upload;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::syntax::{object_of, written};
use ridgeline_profile::FileId;
use ridgeline_python::semantics::module::Module;

/// The minimum share of the iteration time that a fix saves.
const MIN_SHARE: f64 = 0.005;
/// The maximum number of lines checked; each one is simulated.
const MAX_LINES: usize = 4;

pub(super) struct BlockingCopy;

impl Rule for BlockingCopy {
    fn name(&self) -> &'static str {
        "blocking-copy"
    }

    fn title(&self) -> &'static str {
        "Blocking copy from pinned memory"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        if !evidence.on_gpu() || !evidence.is_replayed() {
            return Vec::new();
        }
        let lines = waits_of_copies(evidence);
        if lines.is_empty() {
            return Vec::new();
        }
        let lines = lines.into_iter().take(MAX_LINES);
        let found = lines.filter_map(|((file, line), waits)| {
            let (module, today) = evidence.current_line(file, line)?;
            if !copies_and_blocks(evidence.program.module(module), today) {
                return None;
            }
            let saved_ns = saved_without(evidence, &waits);
            (saved_ns > 0.0 && saved_ns >= MIN_SHARE * evidence.iteration_ns()).then(|| Finding {
                rule: "blocking-copy",
                at: evidence.place(file, line),
                message: "Blocking copy to the GPU, although the batch is in pinned memory"
                    .to_owned(),
                why: "The batch is in pinned memory, so the GPU can copy it asynchronously. \
                    Without `non_blocking=True` the CPU waits until the copy has finished."
                    .to_owned(),
                cost: Some(Cost::time(saved_ns).predicted()),
                fix: Some(EditKind::NonBlockingCopy),
                ..Finding::default()
            })
        });
        found.collect()
    }
}

/// The waits for copies from pinned memory to a GPU, by line.
fn waits_of_copies(evidence: &Evidence<'_>) -> BTreeMap<(FileId, u32), Vec<TaskId>> {
    let graph = evidence.graph();
    let mut lines: BTreeMap<(FileId, u32), Vec<TaskId>> = BTreeMap::new();
    for edge in graph.edges() {
        let (Some(copy), Some(wait)) = (graph.task(edge.from), graph.task(edge.to)) else {
            continue;
        };
        let is_pinned_upload = wait.kind == TaskKind::Wait
            && is_upload(graph, copy)
            && is_pinned(graph, edge.from)
            && wait.call == copy.call;
        if let Some(line) = wait.line.filter(|_| is_pinned_upload) {
            lines.entry(line).or_default().push(edge.to);
        }
    }
    lines
}

fn is_pinned(graph: &Graph, copy: TaskId) -> bool {
    graph.task(copy).is_some_and(|task| graph.name_of(task).contains("Pinned"))
}

/// Whether a line has a `.to(…)` or `.cuda(…)` without `non_blocking`.
fn copies_and_blocks(text: &Module, line: u32) -> bool {
    nodes_of_line(text, line).into_iter().any(|node| {
        let moves = node.is(Kind::Call)
            && (object_of(text, node, "to").is_some() || object_of(text, node, "cuda").is_some());
        moves && !written(text, node).contains("non_blocking")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_profile::Phase;

    const PROGRAM: &str = "\
for x, y in loader:
    x = x.to(device)  # to
    y = y.to(device, non_blocking=True)  # not blocking
    model(x).backward()
";

    /// A copy of 10 ms that the host waits for, 10 ms on the host and a kernel of 5 ms.
    fn copying(memory: &str, mark: &str) -> Case {
        let mut case = Case::new(PROGRAM).on_gpu();
        let at = case.line(mark);
        let name = format!("Memcpy HtoD ({memory} -> Device)");
        let (_, copy) = case.launch(TaskKind::HostCopy, &name, 10e6, Some(at));
        let wait = case.host(TaskKind::Wait, 0.0, Phase::Other, Some(at));
        let call = case.operator(wait, "aten::copy_");
        case.graph.task_mut(copy).expect("a task").call = Some(call);
        case.graph.wait(copy, wait, 0.0);
        case.host(TaskKind::HostGap, 10e6, Phase::Forward, None);
        case.launch(TaskKind::Kernel, "k", 5e6, None);
        case
    }

    #[test]
    fn cost_is_what_removing_the_wait_saves() {
        let cost = copying("Pinned", "to").finds(&BlockingCopy, "to").cost.expect("a cost");
        // In sequence this takes 25 ms; without the wait, the 15 ms of the GPU determine the time.
        assert!(cost.time_ns > 4e6 && cost.time_ns < 11e6, "{cost:?}");
    }

    #[test]
    fn pageable_and_non_blocking_copies_are_not_reported() {
        copying("Pageable", "to").finds_nothing(&BlockingCopy);
        copying("Pinned", "not blocking").finds_nothing(&BlockingCopy);
    }
}
