//! One launch for the whole iteration: forward pass, backward pass and update are captured once and
//! replayed (NVIDIA, "CUDA Graphs"; PyTorch, `torch.cuda.graphs`). Their host time is removed.

use std::collections::{HashMap, HashSet};

use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::calls::has_kernels;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_operators::range::Range;
use ridgeline_profile::Phase;

/// Launch time of a graph and of each node in it, in nanoseconds: constant since CUDA 12.6, 200 ns
/// per node before (NVIDIA, "Constant Time Launch for Straight-Line CUDA Graphs").
const LAUNCH_NS: Range = Range { low: 2_500.0, value: 5_000.0, high: 10_000.0 };
const NODE_NS: Range = Range { low: 1.0, value: 20.0, high: 200.0 };
/// The maximum gap between two kernels of a graph, in nanoseconds.
const MAX_GAP_NS: f64 = 1_000.0;
/// The minimum number of kernels per launch that indicates a graph.
const MIN_GRAPH_KERNELS: usize = 8;

pub(super) struct CudaGraphs;

impl Optimization for CudaGraphs {
    fn name(&self) -> &'static str {
        "cuda-graphs"
    }

    fn title(&self) -> &'static str {
        "CUDA graph of the whole iteration"
    }

    fn source(&self) -> &'static str {
        "NVIDIA, \"CUDA Graphs\"; PyTorch, torch.cuda.graphs"
    }

    fn apply(&self, graph: &mut Graph, _: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        if !has_kernels(graph) {
            return Err("not applicable: no GPU launches in a CPU run".to_owned());
        }
        let host = graph.find(&Resource::Host).ok_or("the recording has no CPU activity")?;
        if largest_launch(graph) >= MIN_GRAPH_KERNELS {
            return Err("kernels are already launched as a graph".to_owned());
        }
        let order: Vec<TaskId> = graph.on(host).collect();
        let is_part =
            |task: &Task| matches!(task.phase, Phase::Forward | Phase::Backward | Phase::Optimizer);
        let part: Vec<TaskId> = order
            .into_iter()
            .filter(|id| graph.task(*id).is_some_and(|task| !task.is_removed && is_part(task)))
            .collect();
        let kind = |id: &TaskId| graph.task(*id).map(|task| task.kind);
        // From the first kernel to the last one. The batch is copied before.
        let computes: HashSet<TaskId> = graph
            .tasks
            .iter()
            .filter(|task| task.kind == TaskKind::Kernel && !task.is_removed)
            .filter_map(|task| task.launched_by)
            .collect();
        let first = part.iter().position(|id| computes.contains(id)).unwrap_or(0);
        let last = part.iter().rposition(|id| computes.contains(id));
        let part = part.get(first..).unwrap_or_default();
        let captured = last.and_then(|last| part.get(..=last.checked_sub(first)?));
        let captured = captured.unwrap_or_default();
        if captured.iter().any(|id| kind(id) == Some(TaskKind::Wait)) {
            return Err(
                "the iteration synchronizes with the GPU, which a CUDA graph cannot contain"
                    .to_owned(),
            );
        }
        let Some(first) = captured.first().copied() else {
            return Err("no kernels are launched".to_owned());
        };
        let nodes = graph.select(|task| !task.kind.is_host() && is_part(task));
        for id in part {
            if kind_of(graph, *id) != Some(TaskKind::Wait)
                && let Some(task) = graph.task_mut(*id)
            {
                (task.duration_ns, task.after_ns, task.is_removed) = (0.0, 0.0, true);
            }
        }
        if let Some(launch) = graph.task_mut(first) {
            launch.duration_ns = bound.of(LAUNCH_NS) + bound.of(NODE_NS) * nodes.len() as f64;
            (launch.kind, launch.is_removed) = (TaskKind::Launch, false);
        }
        for id in &nodes {
            if let Some(task) = graph.task_mut(*id) {
                task.after_ns = task.after_ns.min(MAX_GAP_NS);
            }
        }
        // The delay between a kernel and its removed launch is removed too.
        graph.change_lags(|tasks, edge| {
            let launch = tasks.get(edge.from.index());
            let is_gone = launch.is_some_and(|task| task.is_removed && task.kind.is_host());
            if is_gone { edge.lag_ns.min(0.0) } else { edge.lag_ns }
        });
        let notes = vec![
            "every iteration must have the same shapes and operators".to_owned(),
            "inputs are copied to static buffers, and the graph's memory is not shared".to_owned(),
        ];
        Ok(Effect { notes, ..Effect::default() })
    }
}

fn kind_of(graph: &Graph, id: TaskId) -> Option<TaskKind> {
    graph.task(id).map(|task| task.kind)
}

/// Returns the maximum number of kernels per launch.
fn largest_launch(graph: &Graph) -> usize {
    let mut counts: HashMap<TaskId, usize> = HashMap::new();
    for launch in graph.tasks.iter().filter_map(|task| task.launched_by) {
        *counts.entry(launch).or_default() += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, gpu, operator};
    use super::*;
    use crate::facts::Probes;

    fn small(kernels: usize) -> Iteration {
        let sum = || operator("add", &[&[1000], &[1000], &[1000]]);
        let mut iteration = Iteration::on_gpu();
        for _ in 0..kernels {
            iteration = iteration.call(Phase::Forward, sum(), 2.0).gap(Phase::Forward, 20.0);
        }
        iteration
    }

    #[test]
    fn only_kernel_time_remains() {
        let found = small(100).predict(&gpu("8.0"), &Probes::default(), &CudaGraphs).unwrap();
        assert!(found.before_ns > 2_900e3, "{found:?}");
        // Kernels of 2 µs. This graph has no gaps between them.
        assert!((200e3..220e3).contains(&found.time_ns.value), "{found:?}");
    }

    #[test]
    fn graphs_cannot_contain_synchronization() {
        let mut waits = small(2);
        let host = waits.graph.find(&Resource::Host).unwrap();
        waits.graph.push(host, Task::new(TaskKind::Wait, 0.0, Phase::Forward));
        let waits = waits.call(Phase::Backward, operator("neg", &[&[10], &[10]]), 5.0);
        let why = "the iteration synchronizes with the GPU, which a CUDA graph cannot contain";
        assert_eq!(waits.refusal(&gpu("8.0"), &CudaGraphs), why);
        let why = "not applicable: no GPU launches in a CPU run";
        assert_eq!(Iteration::on_cpu().refusal(&cpu(), &CudaGraphs), why);
    }
}
