//! Copies the next batch to the GPU during the current iteration, from pinned memory and on a
//! separate stream (PyTorch's documentation of CUDA streams; NVIDIA's `data_prefetcher` in the Apex
//! examples).

use super::pinned_memory::{effect, pageable_copies, pin, release};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskKind};
use ridgeline_graph::uploads::is_upload;
use ridgeline_profile::Phase;

pub(super) struct Prefetch;

impl Optimization for Prefetch {
    fn name(&self) -> &'static str {
        "prefetch"
    }

    fn title(&self) -> &'static str {
        "Prefetch the next batch on a side stream"
    }

    fn source(&self) -> &'static str {
        "NVIDIA Apex, examples/imagenet, data_prefetcher"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let pageable = pageable_copies(graph, facts);
        let are_pinned = pageable.is_err();
        // Copies of pinned batches can be prefetched too.
        let copies = match pageable {
            Ok(copies) => copies,
            Err(why) if !facts.is_gpu() => return Err(why),
            Err(why) => {
                let copies = graph.select(|task| {
                    is_upload(graph, task)
                        && !matches!(task.phase, Phase::Backward | Phase::Optimizer)
                });
                let time_ns: f64 =
                    copies.iter().filter_map(|id| graph.task(*id)).map(|one| one.duration_ns).sum();
                let all_ns = graph.time_of(|task| !task.kind.is_host());
                if time_ns < 0.01 * all_ns {
                    return Err(why);
                }
                copies
            }
        };
        let found = effect(graph, facts, &copies);
        let bytes = release(graph, facts, &copies);
        if !are_pinned {
            pin(graph, facts, &copies, bytes, bound);
        }
        let copy_stream = graph.resource(&Resource::Added("copy stream".to_owned()));
        let first = copies
            .first()
            .and_then(|copy| graph.task(*copy))
            .and_then(|copy| graph.on(copy.resource).find(|id| is_forward(graph, *id)));
        for copy in &copies {
            let Some(task) = graph.task(*copy).copied() else { continue };
            let prefetched = graph.push(
                copy_stream,
                Task { kind: TaskKind::HostCopy, launched_by: None, after_ns: 0.0, ..task },
            );
            if let Some(call) = task.launched_by {
                graph.wait(call, prefetched, 0.0);
            }
            // In its old position it takes no time. Its launch stays.
            if let Some(old) = graph.task_mut(*copy) {
                (old.duration_ns, old.after_ns, old.is_removed) = (0.0, 0.0, true);
            }
            if let Some(first) = first {
                graph.wait_across(prefetched, first, 0.0);
            }
        }
        Ok(found)
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::Prefetch)
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !matches!(other.name(), "pinned-memory" | "prefetch")
    }
}

fn is_forward(graph: &Graph, id: ridgeline_graph::graph::TaskId) -> bool {
    graph.task(id).is_some_and(|task| {
        task.phase == Phase::Forward && task.kind == TaskKind::Kernel && !task.is_removed
    })
}

#[cfg(test)]
mod tests {
    use super::super::pinned_memory::tests::step;
    use super::*;
    use crate::distributed::example::ExampleInputs;
    use ridgeline_graph::simulate;

    #[test]
    fn the_copy_overlaps_with_the_kernels() {
        let mut graph = step();
        let known = ExampleInputs::on("NVIDIA A100-SXM4-40GB");
        Prefetch.apply(&mut graph, &known.facts(1, 1, 1.0), Bound::Likely).expect("it applies");
        let found = simulate::steady(&graph).expect("it runs").iteration_ns;
        // Pinning takes 15.75 ms on the host, after 20 ms of other work.
        assert!((found - 35.75e6).abs() < 0.1e6, "{found}");
    }
}
