//! Device utilization of the parts of an iteration: how busy a GPU is, the reached share of its
//! peaks, tensor core use, and what else keeps it from computing.
//!
//! It is computed from the graph of the iteration, whose times are those without the profiler.
//! Operations are those that operators require (`operators::op_cost`), not those that a kernel
//! executes: a Winograd convolution can exceed 100%.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use crate::metrics::tensor_cores::{MatmulUnit, matmul_unit};
use ridgeline_graph::graph::{Graph, LONG_DISPATCH_NS, Resource, Task, TaskKind};
use ridgeline_graph::recorded::Recorded;
use ridgeline_graph::uploads::is_upload;
use ridgeline_operators::matmul_kernel::{MatmulType, matmul_type_of};
use ridgeline_operators::op_cost::{self, Work};
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_profile::utilization::{CopyTotals, MeasuredWork, Metrics, Utilization};
use ridgeline_profile::{FileId, ModuleCost, Profile};

/// The result of [`measure`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UtilizationMetrics {
    /// Utilization of the whole iteration and of phases.
    pub metrics: Metrics,
    /// Utilization of self time, by line.
    pub lines: BTreeMap<(FileId, u32), Utilization>,
    /// Utilization by module, children included: by index in [`Profile::modules`].
    pub modules: Vec<Utilization>,
}

/// Computes the utilization from the graph of an iteration.
pub fn measure(recorded: &Recorded, profile: &Profile) -> UtilizationMetrics {
    let graph = &recorded.graph;
    let calls = Calls::new(graph);
    let names = names(graph, profile);
    let (busy, exposed) = busy_parts(recorded);
    let mut found = UtilizationMetrics {
        modules: vec![Utilization::default(); profile.modules.len()],
        ..UtilizationMetrics::default()
    };
    found.metrics.iteration_ns = recorded.schedule.iteration_ns;
    found.metrics.on_gpu = calls.on_gpu;
    for (at, task) in graph.tasks.iter().enumerate().filter(|(_, task)| !task.is_removed) {
        let mut part = of_task(graph, task, &names);
        // The profiler's overhead is around the call, not within it: use the recorded time.
        part.launch_ns /= recorded.host_factor;
        part.busy_ns = busy.get(at).copied().unwrap_or(0.0);
        part.exposed_communication_ns += exposed.get(at).copied().unwrap_or(0.0);
        calls.add_work(graph, task, &mut part);
        found.metrics.whole.add(&part);
        if let Some(phase) = found.metrics.phases.get_mut(task.phase as usize) {
            phase.add(&part);
        }
        if let Some(line) = task.line {
            found.lines.entry(line).or_default().add(&part);
        }
        if let Some(module) = task.module.and_then(|it| found.modules.get_mut(it as usize)) {
            module.add(&part);
        }
    }
    if let Some(exchange) = profile.exchange.as_deref().filter(|_| !calls.on_gpu) {
        // Collectives of CPU ranks that overlap with operators are not tasks: gloo's threads run
        // them.
        let communication_ns = &mut found.metrics.whole.communication_ns;
        *communication_ns = communication_ns.max(exchange.total_ns);
    }
    add_to_parents(&mut found.modules, &profile.modules);
    found
}

/// Adds the utilization of modules to their parents, which come before their children.
fn add_to_parents(modules: &mut [Utilization], costs: &[ModuleCost]) {
    for (at, cost) in costs.iter().enumerate().rev() {
        let Some(own) = modules.get(at).copied() else { continue };
        let parent = cost.parent.map(|parent| parent.0 as usize).filter(|parent| *parent < at);
        if let Some(parent) = parent.and_then(|parent| modules.get_mut(parent)) {
            parent.add(&own);
        }
    }
}

/// The properties of a kernel name.
#[derive(Clone, Copy, Default)]
struct Name {
    /// The unit of a matrix multiplication.
    unit: Option<MatmulUnit>,
    /// Occupancy, 0 to 1, if the profile has it.
    occupancy: Option<f64>,
}

/// Returns the properties by kernel name of the graph.
fn names(graph: &Graph, profile: &Profile) -> Vec<Name> {
    let occupancies: HashMap<&str, f64> = profile
        .kernels
        .iter()
        .filter_map(|kernel| Some((kernel.name.as_str(), kernel.occupancy?)))
        .collect();
    let of = |name: &String| Name {
        unit: matmul_unit(name),
        occupancy: occupancies.get(name.as_str()).copied(),
    };
    graph.names.iter().map(of).collect()
}

fn of_task(graph: &Graph, task: &Task, names: &[Name]) -> Utilization {
    let time_ns = task.duration_ns;
    let mut part = Utilization::default();
    match task.kind {
        TaskKind::HostOperator => part.operator_ns = time_ns,
        TaskKind::HostGap if task.is_in_operator => part.operator_ns = time_ns,
        TaskKind::HostGap => {}
        TaskKind::Launch => {
            part.launches = 1.0;
            // A longer launch waits for something else: it is not launch overhead.
            if time_ns < LONG_DISPATCH_NS {
                part.launch_ns = time_ns;
            } else {
                part.long_launches = 1.0;
            }
            part.operator_ns = if task.operator.is_some() { time_ns } else { 0.0 };
        }
        TaskKind::Wait => part.wait_ns = time_ns,
        TaskKind::Communication => part.communication_ns = time_ns,
        TaskKind::RankWait => {
            (part.communication_ns, part.exposed_communication_ns) = (time_ns, time_ns);
        }
        // Earlier work is busy time, but not work of this iteration.
        TaskKind::DeviceCopy | TaskKind::EarlierWork => {}
        TaskKind::HostCopy => {
            let copied = CopyTotals { calls: 1.0, bytes: task.bytes.unwrap_or(0) as f64, time_ns };
            let is_upload = is_upload(graph, task);
            *(if is_upload { &mut part.to_device } else { &mut part.to_host }) = copied;
        }
        TaskKind::Kernel => {
            part.kernel_ns = time_ns;
            let name = task.name.and_then(|name| names.get(name as usize).copied());
            let name = name.unwrap_or_default();
            match name.unit {
                Some(MatmulUnit::TensorCores) => part.tensor_core_ns = time_ns,
                Some(MatmulUnit::Other) => part.other_matmul_ns = time_ns,
                Some(MatmulUnit::Unknown) => part.unknown_matmul_ns = time_ns,
                None => {}
            }
            if let Some(occupancy) = name.occupancy {
                part.occupied_ns = occupancy * time_ns;
                part.occupancy_known_ns = time_ns;
            }
        }
    }
    part
}

/// Operator calls with the time of their work: kernels, or on a CPU the host.
struct Calls {
    on_gpu: bool,
    works: Vec<Option<Work>>,
    /// By call: the type of its longest matrix multiplication, and the total nanoseconds of its
    /// work.
    calls: HashMap<u32, Call>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Call {
    matmul: Option<MatmulType>,
    matmul_ns: f64,
    time_ns: f64,
}

impl Calls {
    fn new(graph: &Graph) -> Calls {
        let on_gpu = graph.tasks.iter().any(|task| !task.kind.is_host());
        let mut calls: HashMap<u32, Call> = HashMap::new();
        // By kernel name and operator.
        let mut types: HashMap<(u32, Option<u32>), Option<MatmulType>> = HashMap::new();
        for task in graph.tasks.iter().filter(|task| does_work(task, on_gpu)) {
            let Some(call) = task.call else { continue };
            let call = calls.entry(call).or_default();
            call.time_ns += task.duration_ns;
            let matmul = task.name.and_then(|name| {
                *types
                    .entry((name, task.operator))
                    .or_insert_with(|| matmul_type_of(graph.operator_of(task), graph.name_of(task)))
            });
            if matmul.is_some() && task.duration_ns > call.matmul_ns {
                (call.matmul, call.matmul_ns) = (matmul, task.duration_ns);
            }
        }
        let works = graph.operators.iter().map(op_cost::work).collect();
        Calls { on_gpu, works, calls }
    }

    /// Adds a task's share of its call's work, in proportion to time.
    fn add_work(&self, graph: &Graph, task: &Task, part: &mut Utilization) {
        if !does_work(task, self.on_gpu) {
            return;
        }
        let call = task.call.and_then(|call| self.calls.get(&call));
        let work = task.operator.and_then(|of| self.works.get(of as usize).copied().flatten());
        let (Some(call), Some(work)) = (call.filter(|call| call.time_ns > 0.0), work) else {
            return;
        };
        let time_ns = task.duration_ns;
        let share = time_ns / call.time_ns;
        if let Some(bytes) = work.bytes.filter(|bytes| *bytes > 0.0) {
            part.moved = MeasuredWork { amount: bytes * share, time_ns };
        }
        if work.flops <= 0.0 || has_no_peak(graph, task) {
            return;
        }
        let done = MeasuredWork { amount: work.flops * share, time_ns };
        match call.matmul {
            Some(MatmulType::Half) => part.half = done,
            Some(MatmulType::Tf32) => part.tf32 = done,
            Some(MatmulType::Fp32) | None => part.fp32 = done,
        }
    }
}

/// Whether a task does the work of its operator.
fn does_work(task: &Task, on_gpu: bool) -> bool {
    let works = if on_gpu { TaskKind::Kernel } else { TaskKind::HostOperator };
    task.kind == works && !task.is_removed
}

/// Whether a task's type has no peak rate: FP64 is not in the device table, and FP8 is not in a
/// [`Roof`](ridgeline_profile::Roof).
fn has_no_peak(graph: &Graph, task: &Task) -> bool {
    let element = graph.operator_of(task).and_then(element);
    let without = [ElementType::Float64, ElementType::Complex128, ElementType::Float8];
    element.is_some_and(|element| without.contains(&element))
}

/// Returns the type of an operator's first tensor.
fn element(operator: &Operator) -> Option<ElementType> {
    operator.input_tensors().next()?.element
}

/// Returns by task its equal part of the GPU's busy time, and of the time in which GPUs
/// communicated and none computed, in nanoseconds.
fn busy_parts(recorded: &Recorded) -> (Vec<f64>, Vec<f64>) {
    let graph = &recorded.graph;
    let mut changes: Vec<(f64, bool, usize)> = Vec::new();
    for (at, task) in graph.tasks.iter().enumerate() {
        let on_stream = matches!(
            graph.resources().get(task.resource.0 as usize),
            Some(Resource::Stream(..) | Resource::Added(_))
        );
        let times = recorded.schedule.start_ns.get(at).zip(recorded.schedule.end_ns.get(at));
        if let Some((start, end)) = times.filter(|(start, end)| on_stream && start < end) {
            changes.push((*start, true, at));
            changes.push((*end, false, at));
        }
    }
    // Ends come before starts, so consecutive tasks do not overlap.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut busy = vec![0.0; graph.tasks.len()];
    let mut exposed = vec![0.0; graph.tasks.len()];
    // Integrals over time: one over the number of running tasks, and one over the number of
    // communicating tasks while none computes. A task gets their growth while it runs.
    let (mut of_all, mut of_exposed) = (0.0, 0.0);
    let (mut running, mut computing, mut communicating) = (0_i32, 0_i32, 0_i32);
    let mut now = 0.0;
    for (time, starts, at) in changes {
        if running > 0 {
            of_all += (time - now) / f64::from(running);
        }
        if communicating > 0 && computing == 0 {
            of_exposed += (time - now) / f64::from(communicating);
        }
        now = time;
        let kind = graph.tasks.get(at).map(|task| task.kind);
        let step = if starts { 1 } else { -1 };
        let sign = -f64::from(step);
        running += step;
        if let Some(busy) = busy.get_mut(at) {
            *busy += sign * of_all;
        }
        match kind {
            Some(TaskKind::Kernel) => computing += step,
            Some(TaskKind::Communication) => {
                communicating += step;
                if let Some(exposed) = exposed.get_mut(at) {
                    *exposed += sign * of_exposed;
                }
            }
            _ => {}
        }
    }
    (busy, exposed)
}
