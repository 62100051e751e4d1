//! The bottleneck of an iteration, as a counterfactual: how much shorter would it be if launches,
//! host code, synchronization, data loading, copies, communication, memory bandwidth or arithmetic
//! were free, one at a time?
//!
//! Each answer is a replay of the iteration's graph in which the tasks and waits of one cause take
//! no time. The GPU's work remains in any case, so causes that are not GPU work save at most the
//! GPU's idle time. That limit also holds for replays of several streams, which could otherwise
//! overlap kernels that shared one GPU.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::kernel_bound::{KernelBounds, LONG_OPERATOR_NS, unexplained};
use ridgeline_graph::critical_path::{Segment, critical_path};
use ridgeline_graph::graph::{Edge, Graph, LONG_DISPATCH_NS, Resource, Task, TaskId, TaskKind};
use ridgeline_graph::recorded::Recorded;
use ridgeline_graph::recorded::TRUSTED_REPLAY;
use ridgeline_graph::simulate::{self, Schedule, SimulationError};
use ridgeline_graph::uploads::is_upload;
use ridgeline_profile::bottleneck::{Bottleneck, Cause, MAX_EVIDENCE, Saving};
use ridgeline_profile::{FileId, Phase, Roof};

/// The maximum nanoseconds from a launch to the start of its kernel on an idle GPU. A later kernel
/// waited for something that was not recorded. The sample traces have 1 to 14 µs.
const LAUNCH_DELAY_NS: f64 = 20_000.0;
/// The maximum time of the waits for uploads as a multiple of the uploads. Longer waits are for the
/// work before the uploads: they would remain without the copies.
const MAX_WAIT_OF_COPY: f64 = 5.0;
/// The smallest reported share; less is within the error of the replay.
const MIN_SAVING_SHARE: f64 = 1e-3;

/// All single causes; which of them apply depends on the device.
const CAUSES: [Cause; 10] = [
    Cause::Compute,
    Cause::MemoryBandwidth,
    Cause::Kernels,
    Cause::Operators,
    Cause::Launches,
    Cause::Synchronization,
    Cause::DataLoading,
    Cause::HostCopies,
    Cause::Communication,
    Cause::HostCode,
];

/// Computes the bottleneck of an iteration; `roof` is that of the GPU that ran it. Returns `None`
/// if the iteration takes no time.
pub fn bottleneck(recorded: &Recorded, roof: Option<&Roof>) -> Option<Bottleneck> {
    let (graph, schedule) = (&recorded.graph, &recorded.schedule);
    let iteration_ns = schedule.iteration_ns;
    if !iteration_ns.is_finite() || iteration_ns <= 0.0 {
        return None;
    }
    let replay_error = recorded.replay_error.abs();
    if replay_error.is_nan() || replay_error > TRUSTED_REPLAY {
        return Some(Bottleneck {
            iteration_ns,
            untrusted: Some(replay_error),
            ..Bottleneck::default()
        });
    }
    let causes = Causes::new(graph, schedule, roof);
    let mut evidence = causes.evidence(graph, schedule);
    let is_of_gpu = |task: &Task, _| !task.kind.is_host();
    let busy_ns = causes.busy_ns(graph, schedule, is_of_gpu);
    let is_earlier = |task: &Task, _| task.kind == TaskKind::EarlierWork;
    let earlier_ns = causes.busy_ns(graph, schedule, is_earlier);
    let mut savings = Vec::new();
    for cause in CAUSES.into_iter().filter(|cause| causes.has(*cause)) {
        let then_ns = causes.without(graph, |it| it == cause).ok()?;
        let max_saving_ns = causes.max_saving_ns(graph, schedule, cause);
        let saved_ns = (iteration_ns - then_ns).min(max_saving_ns).max(0.0);
        savings.push((cause, saved_ns));
    }
    if causes.on_gpu {
        let then_ns = causes.without(graph, Cause::is_of_host).ok()?;
        // Removing more causes never takes longer; only a replay in an unsettled state shows that.
        let min_saving_ns =
            savings.iter().filter(|(cause, _)| cause.is_of_host()).map(|(_, ns)| *ns);
        let min_saving_ns = min_saving_ns.fold(0.0, f64::max);
        let max_saving_ns = (iteration_ns - busy_ns).max(min_saving_ns);
        savings.push((Cause::Host, (iteration_ns - then_ns).clamp(min_saving_ns, max_saving_ns)));
        evidence.add_host();
    }
    savings.retain(|(_, saved_ns)| *saved_ns >= MIN_SAVING_SHARE * iteration_ns);
    savings.sort_by(|a, b| {
        let is_host = |cause: Cause| cause == Cause::Host;
        is_host(a.0).cmp(&is_host(b.0)).then(b.1.total_cmp(&a.1))
    });
    let savings = savings.into_iter();
    let savings = savings.map(|(cause, saved_ns)| evidence.saving(cause, saved_ns, iteration_ns));
    Some(Bottleneck {
        iteration_ns,
        gpu_busy: causes.on_gpu.then(|| (busy_ns / iteration_ns).clamp(0.0, 1.0)),
        earlier_ns,
        savings: savings.collect(),
        untrusted: None,
    })
}

/// The causes of the host's waits for a GPU.
#[derive(Clone, Copy)]
struct Waits {
    /// The cause of waits for uploads. It is the same for all of them: if the host did not wait at
    /// one, it would wait for the same work at the next one.
    for_uploads: Cause,
}

impl Waits {
    fn new(graph: &Graph, schedule: &Schedule) -> Waits {
        let (mut all_ns, mut copies_ns) = (0.0, 0.0);
        for edge in graph.edges().iter().filter(|edge| is_upload_wait(graph, edge)) {
            all_ns += waited_ns(graph, schedule, edge.to).max(0.0);
            copies_ns += graph.task(edge.from).map_or(0.0, |copy| copy.duration_ns);
        }
        let is_for_queue = all_ns > MAX_WAIT_OF_COPY * copies_ns;
        let for_uploads = if is_for_queue { Cause::Synchronization } else { Cause::HostCopies };
        Waits { for_uploads }
    }

    /// Returns the cause of a host wait for a GPU; `None` if the edge is not one.
    fn cause(self, graph: &Graph, edge: &Edge) -> Option<Cause> {
        if is_upload_wait(graph, edge) {
            return Some(self.for_uploads);
        }
        let (from, to) = (graph.task(edge.from)?, graph.task(edge.to)?);
        let is_wait = !from.kind.is_host() && to.kind == TaskKind::Wait;
        is_wait.then_some(Cause::Synchronization)
    }
}

fn is_upload_wait(graph: &Graph, edge: &Edge) -> bool {
    let is_wait = graph.task(edge.to).is_some_and(|task| task.kind == TaskKind::Wait);
    is_wait && graph.task(edge.from).is_some_and(|task| is_upload(graph, task))
}

/// Returns the nanoseconds between the host's previous task and a wait's end.
fn waited_ns(graph: &Graph, schedule: &Schedule, wait: TaskId) -> f64 {
    let time = |times: &[f64], id: TaskId| times.get(id.index()).copied().unwrap_or(0.0);
    let arrived_ns = graph.before(wait).map_or(0.0, |before| time(&schedule.end_ns, before));
    time(&schedule.start_ns, wait) - arrived_ns
}

/// The cause of each task.
struct Causes {
    on_gpu: bool,
    /// By task; `None` if the recording does not explain it.
    of_tasks: Vec<Option<Cause>>,
    waits: Waits,
    /// Whether the host waits for a GPU.
    has_waits: bool,
}

impl Causes {
    fn new(graph: &Graph, schedule: &Schedule, roof: Option<&Roof>) -> Causes {
        let on_gpu = graph.tasks.iter().any(|task| !task.kind.is_host());
        let waits = Waits::new(graph, schedule);
        let kinds = Kinds::new(graph, on_gpu, waits, roof);
        let of_tasks = graph.iter().map(|(id, task)| kinds.of(graph, id, task)).collect();
        let has_waits = graph.edges().iter().any(|edge| waits.cause(graph, edge).is_some());
        Causes { on_gpu, of_tasks, waits, has_waits }
    }

    fn of(&self, task: TaskId) -> Option<Cause> {
        self.of_tasks.get(task.index()).copied().flatten()
    }

    fn has(&self, cause: Cause) -> bool {
        let of_waits = matches!(cause, Cause::Synchronization | Cause::HostCopies);
        (of_waits && self.has_waits) || self.of_tasks.contains(&Some(cause))
    }

    /// Returns the nanoseconds of the iteration if some causes are free.
    fn without(
        &self,
        graph: &Graph,
        is_free: impl Fn(Cause) -> bool,
    ) -> Result<f64, SimulationError> {
        let is_free_task = |id: TaskId| self.of(id).is_some_and(&is_free);
        let mut free = graph.clone();
        for (id, task) in (0_u32..).map(TaskId).zip(free.tasks.iter_mut()) {
            if is_free_task(id) {
                task.duration_ns = 0.0;
            }
            if !task.kind.is_host() && is_free(delay_of(task)) {
                task.after_ns = 0.0;
            }
        }
        free.retain_edges(|edge| !self.waits.cause(graph, edge).is_some_and(&is_free));
        free.change_lags(|tasks, edge| {
            let task = |id: TaskId| tasks.get(id.index());
            let (Some(from), Some(to)) = (task(edge.from), task(edge.to)) else {
                return edge.lag_ns;
            };
            // A kernel that begins while its launch still runs must not begin before the launch.
            let lag_ns = if is_free_task(edge.from) { edge.lag_ns.max(0.0) } else { edge.lag_ns };
            let is_launch = from.kind == TaskKind::Launch && !to.kind.is_host();
            if is_launch && lag_ns > 0.0 && is_free(delay_of(to)) {
                (lag_ns - LAUNCH_DELAY_NS).max(0.0)
            } else {
                lag_ns
            }
        });
        Ok(simulate::steady(&free)?.iteration_ns)
    }

    /// Returns the maximum saving of a cause: the time in which no other GPU work runs, or for GPU
    /// work, the time in which it runs.
    fn max_saving_ns(&self, graph: &Graph, schedule: &Schedule, cause: Cause) -> f64 {
        if !self.on_gpu {
            return schedule.iteration_ns;
        }
        let is_work = |task: &Task| !task.kind.is_host();
        match cause {
            Cause::Compute | Cause::MemoryBandwidth | Cause::Kernels => {
                self.busy_ns(graph, schedule, |task, of| is_work(task) && of == Some(cause))
            }
            _ => {
                let others = |task: &Task, of| is_work(task) && of != Some(cause);
                (schedule.iteration_ns - self.busy_ns(graph, schedule, others)).max(0.0)
            }
        }
    }

    /// Returns the nanoseconds in which at least one of the matching tasks runs.
    fn busy_ns(
        &self,
        graph: &Graph,
        schedule: &Schedule,
        counts: impl Fn(&Task, Option<Cause>) -> bool,
    ) -> f64 {
        let mut intervals: Vec<(f64, f64)> = graph
            .iter()
            .filter(|(id, task)| counts(task, self.of(*id)))
            .filter_map(|(id, _)| {
                let start_ns = *schedule.start_ns.get(id.index())?;
                Some((start_ns, *schedule.end_ns.get(id.index())?))
            })
            .collect();
        intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut sum_ns, mut covered_ns) = (0.0, f64::NEG_INFINITY);
        for (start_ns, end_ns) in intervals {
            sum_ns += (end_ns - start_ns.max(covered_ns)).max(0.0);
            covered_ns = covered_ns.max(end_ns);
        }
        sum_ns.min(schedule.iteration_ns)
    }

    /// Collects the time of each cause on the critical path, because only tasks on it make the
    /// iteration longer.
    fn evidence(&self, graph: &Graph, schedule: &Schedule) -> Evidence {
        let mut evidence = Evidence::default();
        for Segment { task: id, time_ns, is_delay } in critical_path(graph, schedule) {
            let Some(task) = graph.task(id) else { continue };
            let cause = match is_delay && !task.kind.is_host() {
                true => Some(delay_of(task)),
                false => self.of(id),
            };
            if let Some(cause) = cause {
                evidence.add(graph, cause, task, time_ns);
            }
        }
        // While the host waits, the path leads through the GPU.
        for edge in graph.edges() {
            let Some(cause) = self.waits.cause(graph, edge) else { continue };
            let Some(task) = graph.task(edge.to) else { continue };
            let waited_ns = waited_ns(graph, schedule, edge.to);
            if waited_ns > 0.0 {
                evidence.add(graph, cause, task, waited_ns);
            }
        }
        evidence
    }
}

/// Returns the cause of the delay before a GPU task.
fn delay_of(task: &Task) -> Cause {
    if task.kind == TaskKind::HostCopy { Cause::HostCopies } else { Cause::Launches }
}

/// Classifies tasks by cause.
struct Kinds {
    on_gpu: bool,
    kernels: KernelBounds,
    /// Operator calls that launch GPU work.
    launching: HashSet<u32>,
    /// Launches of copies between host and GPU, and waits for uploads.
    copying: HashSet<TaskId>,
}

impl Kinds {
    fn new(graph: &Graph, on_gpu: bool, waits: Waits, roof: Option<&Roof>) -> Kinds {
        let of_host = graph.tasks.iter().filter(|task| task.kind == TaskKind::Launch);
        let launching = of_host.filter_map(|task| task.call).collect();
        let copies = graph.tasks.iter().filter(|task| task.kind == TaskKind::HostCopy);
        let mut copying: HashSet<TaskId> = copies.filter_map(|task| task.launched_by).collect();
        let uploads = graph.edges().iter();
        let uploads = uploads.filter(|edge| waits.cause(graph, edge) == Some(Cause::HostCopies));
        copying.extend(uploads.map(|edge| edge.to));
        Kinds { on_gpu, kernels: KernelBounds::new(graph, on_gpu, roof), launching, copying }
    }

    fn of(&self, graph: &Graph, id: TaskId, task: &Task) -> Option<Cause> {
        let is_own = task.kind.is_host() && task.kind != TaskKind::RankWait;
        if is_own && task.phase == Phase::Data {
            return Some(Cause::DataLoading);
        }
        let cause = match task.kind {
            TaskKind::HostCopy => Cause::HostCopies,
            TaskKind::Communication | TaskKind::RankWait => Cause::Communication,
            TaskKind::DeviceCopy => Cause::MemoryBandwidth,
            TaskKind::EarlierWork => return None,
            TaskKind::Kernel => self.kernels.of(graph, task),
            TaskKind::Launch | TaskKind::Wait if self.copying.contains(&id) => Cause::HostCopies,
            TaskKind::Launch => Cause::Launches,
            TaskKind::Wait => Cause::Synchronization,
            TaskKind::HostOperator if self.on_gpu => {
                let launches = task.call.is_some_and(|call| self.launching.contains(&call));
                // Longer ones must compute on the host.
                let is_short = task.duration_ns < LONG_OPERATOR_NS;
                if launches || is_short { Cause::Launches } else { Cause::HostCode }
            }
            TaskKind::HostOperator => self.kernels.of(graph, task),
            TaskKind::HostGap if task.is_in_operator && self.on_gpu => Cause::Launches,
            TaskKind::HostGap if task.is_in_operator => unexplained(task.duration_ns),
            TaskKind::HostGap => match graph.resources().get(task.resource.0 as usize) {
                // The recording has only the launch times of other threads.
                Some(Resource::OtherThread(_)) => return None,
                _ => Cause::HostCode,
            },
        };
        let is_dispatch = cause == Cause::Launches;
        let is_long = task.duration_ns >= LONG_DISPATCH_NS;
        Some(if is_dispatch && is_long { Cause::HostCode } else { cause })
    }
}

/// The lines and operators of one cause.
#[derive(Clone, Debug, Default)]
struct Contributors {
    time_ns: f64,
    lines: BTreeMap<(FileId, u32), f64>,
    operators: HashMap<String, f64>,
}

/// The lines and operators of each cause.
#[derive(Clone, Debug, Default)]
struct Evidence(BTreeMap<Cause, Contributors>);

impl Evidence {
    fn add(&mut self, graph: &Graph, cause: Cause, task: &Task, time_ns: f64) {
        let found = self.0.entry(cause).or_default();
        found.time_ns += time_ns;
        if let Some(line) = task.line {
            *found.lines.entry(line).or_default() += time_ns;
        }
        let operator = graph.operator_of(task).map(|operator| operator.name.as_str());
        // An operator whose shapes were not recorded has only a name.
        let unshaped = || Some(graph.name_of(task)).filter(|_| task.is_in_operator);
        if let Some(name) = operator.or_else(unshaped).filter(|name| !name.is_empty()) {
            match found.operators.get_mut(name) {
                Some(sum) => *sum += time_ns,
                None => {
                    found.operators.insert(name.to_owned(), time_ns);
                }
            }
        }
    }

    /// Adds the combined host cause.
    fn add_host(&mut self) {
        let mut host = Contributors::default();
        for (_, part) in self.0.iter().filter(|(cause, _)| cause.is_of_host()) {
            host.time_ns += part.time_ns;
            for (line, time_ns) in &part.lines {
                *host.lines.entry(*line).or_default() += time_ns;
            }
            for (operator, time_ns) in &part.operators {
                *host.operators.entry(operator.clone()).or_default() += time_ns;
            }
        }
        self.0.insert(Cause::Host, host);
    }

    /// Returns a saving with the lines and operators that account for most of it.
    fn saving(&self, cause: Cause, saved_ns: f64, iteration_ns: f64) -> Saving {
        let share = saved_ns / iteration_ns;
        let mut saving =
            Saving { cause, share, time_ns: saved_ns, lines: Vec::new(), operators: Vec::new() };
        if let Some(found) = self.0.get(&cause) {
            // The saving is at most the total time: each place gets its share.
            let part = (saved_ns / found.time_ns).min(1.0);
            saving.lines = most(found.lines.iter().map(|(line, ns)| (*line, ns * part)));
            let operators = found.operators.iter();
            saving.operators = most(operators.map(|(name, ns)| (name.clone(), ns * part)));
        }
        saving
    }
}

/// Returns the largest entries, at most [`MAX_EVIDENCE`].
fn most<K: Ord>(times: impl IntoIterator<Item = (K, f64)>) -> Vec<(K, f64)> {
    let times = times.into_iter().filter(|(_, time_ns)| *time_ns > 0.0);
    let mut times: Vec<(K, f64)> = times.collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    times.truncate(MAX_EVIDENCE);
    times
}

#[cfg(test)]
mod tests;
