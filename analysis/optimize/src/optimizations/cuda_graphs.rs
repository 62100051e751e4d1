//! CUDA graphs of the model: its forward pass and its backward pass are compiled, captured once and replayed with one
//! launch each (PyTorch, "CUDAGraph Trees"; NVIDIA, "CUDA Graphs"). The host time within them is removed. The loss and
//! the optimizer stay as they are.

use std::collections::{HashMap, HashSet};

use super::compile::{self, ENTER_NS};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
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
        "CUDA graphs of the compiled model"
    }

    fn source(&self) -> &'static str {
        "PyTorch, torch.compile(mode=\"reduce-overhead\"); NVIDIA, \"CUDA Graphs\""
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        if !has_kernels(graph) {
            return Err("not applicable: no GPU launches in a CPU run".to_owned());
        }
        if largest_launch(graph) >= MIN_GRAPH_KERNELS {
            return Err("kernels are already launched as a graph".to_owned());
        }
        let mut effect = Effect::default();
        // The rates of a GPU that is not in the table are unknown.
        if !compile::is_compiled(graph, facts) && facts.device.bandwidth > 0.0 {
            match compile::compile_model(graph, facts, bound) {
                Ok(lines) => effect.lines = lines,
                Err(why) => effect.notes.push(format!("without the effect of compilation: {why}")),
            }
        }
        let knows_modules = graph.tasks.iter().any(|task| task.module.is_some());
        let passes = [Phase::Forward, Phase::Backward].map(|phase| {
            let is_part =
                move |task: &Task| task.phase == phase && (task.module.is_some() || !knows_modules);
            let found = pass(graph, is_part);
            // Backward passes that are not matched to their modules.
            if found.is_empty() { pass(graph, |task| task.phase == phase) } else { found }
        });
        if passes.iter().all(Vec::is_empty) {
            return Err("no kernels are launched".to_owned());
        }
        let kind = |id: &TaskId| graph.task(*id).map(|task| task.kind);
        if passes.iter().flatten().any(|id| kind(id) == Some(TaskKind::Wait)) {
            return Err(
                "the model synchronizes with the GPU, which a CUDA graph cannot contain".to_owned()
            );
        }
        for pass in passes {
            launch_at_once(graph, &pass, bound);
        }
        // The delay between a kernel and its removed launch is removed too.
        graph.change_lags(|tasks, edge| {
            let launch = tasks.get(edge.from.index());
            let is_gone = launch.is_some_and(|task| task.is_removed && task.kind.is_host());
            if is_gone { edge.lag_ns.min(0.0) } else { edge.lag_ns }
        });
        effect.notes.extend([
            "every iteration must have the same shapes and operators; the first ones compile and capture them".to_owned(),
            "inputs are copied to static buffers, and the graphs' memory is not shared".to_owned(),
        ]);
        effect.memory_is_unknown = true;
        Ok(effect)
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::CudaGraphs)
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["batch-norm", "layer-fusion", "compile", "cuda-graphs"].contains(&other.name())
    }
}

/// Returns the host tasks from the first to the last one that launches a kernel of a pass.
fn pass(graph: &Graph, is_part: impl Fn(&Task) -> bool) -> Vec<TaskId> {
    let Some(host) = graph.find(&Resource::Host) else { return Vec::new() };
    let launches: HashSet<TaskId> = graph
        .tasks
        .iter()
        .filter(|task| task.kind == TaskKind::Kernel && !task.is_removed && is_part(task))
        .filter_map(|task| task.launched_by)
        .collect();
    let order: Vec<TaskId> = graph.on(host).collect();
    let phase = order
        .iter()
        .find(|id| launches.contains(id))
        .and_then(|id| graph.task(*id))
        .map(|task| task.phase);
    let first = order.iter().position(|id| launches.contains(id));
    let last = order.iter().rposition(|id| launches.contains(id));
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    let between = order.get(first..=last).unwrap_or_default().iter().copied();
    let of_pass = |id: &TaskId| {
        graph.task(*id).is_some_and(|task| !task.is_removed && Some(task.phase) == phase)
    };
    between.filter(of_pass).collect()
}

/// Replaces the host tasks of a pass by one launch of all its kernels.
fn launch_at_once(graph: &mut Graph, pass: &[TaskId], bound: Bound) {
    let Some(first) = pass.first().copied() else { return };
    let removed: HashSet<TaskId> = pass.iter().copied().collect();
    let nodes = graph.select(|task| {
        !task.kind.is_host()
            && !task.is_removed
            && task.launched_by.is_some_and(|id| removed.contains(&id))
    });
    for id in pass {
        if let Some(task) = graph.task_mut(*id) {
            (task.duration_ns, task.after_ns, task.is_removed) = (0.0, 0.0, true);
        }
    }
    if let Some(launch) = graph.task_mut(first) {
        launch.duration_ns =
            bound.of(ENTER_NS) + bound.of(LAUNCH_NS) + bound.of(NODE_NS) * nodes.len() as f64;
        (launch.kind, launch.is_removed) = (TaskKind::Launch, false);
    }
    for id in &nodes {
        if let Some(task) = graph.task_mut(*id) {
            task.after_ns = task.after_ns.min(MAX_GAP_NS);
        }
    }
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

    const SIZE: &[u64] = &[1000, 1000];

    fn small(phase: Phase, kernels: usize) -> Iteration {
        let product = || operator("mm", &[SIZE, SIZE, SIZE]);
        let mut iteration = Iteration::on_gpu();
        for _ in 0..kernels {
            iteration = iteration.call(phase, product(), 2.0).gap(phase, 20.0);
        }
        iteration
    }

    #[test]
    fn only_kernel_time_remains() {
        let found = small(Phase::Forward, 100)
            .predict(&gpu("8.0"), &Probes::default(), &CudaGraphs)
            .unwrap();
        assert!(found.before_ns > 2_900e3, "{found:?}");
        // Kernels of 2 µs. The launch of the graph overlaps with the previous iteration.
        assert!((200e3..260e3).contains(&found.time_ns.value), "{found:?}");
    }

    #[test]
    fn the_optimizer_stays() {
        let found = small(Phase::Optimizer, 100).refusal(&gpu("8.0"), &CudaGraphs);
        assert_eq!(found, "no kernels are launched");
        let mut both = small(Phase::Forward, 100);
        for _ in 0..100 {
            both = both
                .call(Phase::Optimizer, operator("mm", &[SIZE, SIZE, SIZE]), 2.0)
                .gap(Phase::Optimizer, 20.0);
        }
        let found = both.predict(&gpu("8.0"), &Probes::default(), &CudaGraphs).unwrap();
        assert!(found.time_ns.value > 2_900e3, "{found:?}");
    }

    #[test]
    fn compilation_is_included() {
        let mut iteration = Iteration::on_gpu();
        for name in ["mul", "gelu", "add", "relu"] {
            iteration = iteration.call(Phase::Forward, operator(name, &[SIZE, SIZE]), 20.0);
        }
        let graph = iteration.changed(&gpu("8.0"), &CudaGraphs);
        let kernels = graph.select(|task| task.kind == TaskKind::Kernel && !task.is_removed);
        assert_eq!(kernels.len(), 1);
    }

    #[test]
    fn graphs_cannot_contain_synchronization() {
        let mut waits = small(Phase::Forward, 2);
        let host = waits.graph.find(&Resource::Host).unwrap();
        waits.graph.push(host, Task::new(TaskKind::Wait, 0.0, Phase::Forward));
        // After the last kernel it is not part of the graph.
        assert!(waits.predict(&gpu("8.0"), &Probes::default(), &CudaGraphs).is_ok());
        let waits = waits.call(Phase::Forward, operator("neg", &[&[10], &[10]]), 5.0);
        let why = "the model synchronizes with the GPU, which a CUDA graph cannot contain";
        assert_eq!(waits.refusal(&gpu("8.0"), &CudaGraphs), why);
        let why = "not applicable: no GPU launches in a CPU run";
        assert_eq!(Iteration::on_cpu().refusal(&cpu(), &CudaGraphs), why);
    }
}
