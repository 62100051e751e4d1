//! What bounds an iteration: one verdict, as shares of the iteration that add up to 1.
//!
//! The shares are those of the iteration's critical path ([`critical_path`]): each stretch of it is a
//! task of the host, of a GPU or of a link that everything after it waited for, or the delay before
//! one. Synchronization has no task of its own: it is what the iteration would save if the host waited
//! for no GPU, and the other shares are then those of the iteration that is left.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::kernel_bound::KernelBounds;
use crate::profile::bound::{Bottleneck, Bound, EVIDENCE, Share};
use crate::profile::{FileId, Phase, Roof};
use crate::whatif::critical_path::{Stretch, critical_path};
use crate::whatif::graph::{Edge, Graph, Resource, TaskId, TaskKind};
use crate::whatif::loading::is_upload;
use crate::whatif::recorded::Recorded;
use crate::whatif::simulate::{self, Schedule};

/// An operator that launches nothing is PyTorch's own work around kernels (`view`, `empty`), unless it
/// takes so long that it must compute on the host, in nanoseconds.
const LONG_OPERATOR_NS: f64 = 50_000.0;
/// Synchronization that costs less of an iteration is within what replaying errs.
const LEAST_SYNCHRONIZATION: f64 = 0.005;

/// What bounds an iteration; `roof` is that of the GPU that ran it. Nothing where the iteration takes
/// no time.
pub fn bound(recorded: &Recorded, roof: Option<&Roof>) -> Option<Bound> {
    let (graph, schedule) = (&recorded.graph, &recorded.schedule);
    let iteration_ns = schedule.iteration_ns;
    if !iteration_ns.is_finite() || iteration_ns <= 0.0 {
        return None;
    }
    let kinds = Kinds::new(graph, roof);
    let mut parts = Parts::default();
    let free = without_synchronization(graph, iteration_ns);
    let (path, left_ns) = match &free {
        Some((free, then)) => {
            parts.add_waits(graph, schedule, iteration_ns - then.iteration_ns);
            (critical_path(free, then), then.iteration_ns)
        }
        None => (critical_path(graph, schedule), iteration_ns),
    };
    let mut covered_ns = 0.0;
    for stretch in &path {
        covered_ns += stretch.time_ns;
        parts.add(graph, kinds.of(graph, stretch), stretch);
    }
    parts.part(Bottleneck::Unknown).time_ns += (left_ns - covered_ns).max(0.0);
    Some(Bound { iteration_ns, on_gpu: kinds.on_gpu, shares: parts.finish() })
}

/// The iteration in which the host waits for no GPU but for what it uploads; nothing where that saves
/// nothing.
fn without_synchronization(graph: &Graph, iteration_ns: f64) -> Option<(Graph, Schedule)> {
    if !graph.edges().iter().any(|edge| is_synchronization(graph, edge)) {
        return None;
    }
    let mut free = graph.clone();
    free.retain_edges(|edge| !is_synchronization(graph, edge));
    let then = simulate::steady(&free).ok()?;
    let saved = 1.0 - then.iteration_ns / iteration_ns;
    (saved >= LEAST_SYNCHRONIZATION && then.iteration_ns > 0.0).then_some((free, then))
}

fn is_synchronization(graph: &Graph, edge: &Edge) -> bool {
    let kind = |id: TaskId| graph.task(id).map(|task| task.kind);
    let uploads = graph.task(edge.from).is_some_and(|from| is_upload(graph, from));
    kind(edge.to) == Some(TaskKind::Wait)
        && !uploads
        && kind(edge.from).is_some_and(|kind| !kind.is_host())
}

/// What tells the kinds of tasks.
struct Kinds {
    on_gpu: bool,
    kernels: KernelBounds,
    /// Calls of operators that launch something.
    launching: HashSet<u32>,
    /// Launches and waits of copies between host and GPU.
    copying: HashSet<TaskId>,
}

impl Kinds {
    fn new(graph: &Graph, roof: Option<&Roof>) -> Kinds {
        let on_gpu = graph.tasks.iter().any(|task| !task.kind.is_host());
        let of_host = graph.tasks.iter().filter(|task| task.kind == TaskKind::Launch);
        let launching = of_host.filter_map(|task| task.call).collect();
        let mut copying = HashSet::new();
        for task in graph.tasks.iter().filter(|task| task.kind == TaskKind::HostCopy) {
            copying.extend(task.launched_by);
        }
        for edge in graph.edges() {
            let from = graph.task(edge.from);
            if from.is_some_and(|from| from.kind == TaskKind::HostCopy) {
                copying.insert(edge.to);
            }
        }
        Kinds { on_gpu, kernels: KernelBounds::new(graph, on_gpu, roof), launching, copying }
    }

    fn of(&self, graph: &Graph, stretch: &Stretch) -> Bottleneck {
        let Some(task) = graph.task(stretch.task) else { return Bottleneck::Unknown };
        let is_alone = task.kind.is_host() && task.kind != TaskKind::RankWait;
        if is_alone && task.phase == Phase::Data {
            return Bottleneck::DataLoading;
        }
        let is_copying = self.copying.contains(&stretch.task);
        match task.kind {
            TaskKind::HostCopy => Bottleneck::HostCopies,
            TaskKind::Communication | TaskKind::RankWait => Bottleneck::Communication,
            // Until a kernel begins, it is being started.
            TaskKind::Kernel | TaskKind::DeviceCopy if stretch.is_delay => Bottleneck::Launches,
            TaskKind::DeviceCopy => Bottleneck::MemoryBandwidth,
            TaskKind::Kernel => self.kernels.of(graph, task),
            TaskKind::Launch | TaskKind::Wait if is_copying => Bottleneck::HostCopies,
            TaskKind::Launch => Bottleneck::Launches,
            TaskKind::Wait => Bottleneck::Synchronization,
            TaskKind::HostOperator if self.on_gpu => {
                let launches = task.call.is_some_and(|call| self.launching.contains(&call));
                let is_short = task.duration_ns < LONG_OPERATOR_NS;
                if launches || is_short { Bottleneck::Launches } else { Bottleneck::HostCode }
            }
            TaskKind::HostOperator => self.kernels.of(graph, task),
            TaskKind::HostGap if task.is_in_operator && self.on_gpu => Bottleneck::Launches,
            TaskKind::HostGap if task.is_in_operator => Bottleneck::Operators,
            TaskKind::HostGap => match graph.resources().get(task.resource.0 as usize) {
                // Of other threads the recording tells only when they called.
                Some(Resource::OtherThread(_)) => Bottleneck::Unknown,
                _ => Bottleneck::HostCode,
            },
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Part {
    time_ns: f64,
    lines: BTreeMap<(FileId, u32), f64>,
    operators: HashMap<String, f64>,
}

#[derive(Clone, Debug, Default)]
struct Parts(BTreeMap<Bottleneck, Part>);

impl Parts {
    fn part(&mut self, by: Bottleneck) -> &mut Part {
        self.0.entry(by).or_default()
    }

    fn add(&mut self, graph: &Graph, by: Bottleneck, stretch: &Stretch) {
        let task = graph.task(stretch.task);
        let part = self.part(by);
        part.time_ns += stretch.time_ns;
        if let Some(line) = task.and_then(|task| task.line) {
            *part.lines.entry(line).or_default() += stretch.time_ns;
        }
        if let Some(operator) = task.and_then(|task| graph.operator_of(task)) {
            match part.operators.get_mut(&operator.name) {
                Some(sum) => *sum += stretch.time_ns,
                None => {
                    part.operators.insert(operator.name.clone(), stretch.time_ns);
                }
            }
        }
    }

    /// Synchronization, at the lines at which the host stood and waited, by how long it stood there.
    fn add_waits(&mut self, graph: &Graph, schedule: &Schedule, saved_ns: f64) {
        let mut stood: Vec<((FileId, u32), f64)> = Vec::new();
        for edge in graph.edges().iter().filter(|edge| is_synchronization(graph, edge)) {
            let Some(task) = graph.task(edge.to) else { continue };
            let time = |times: &[f64], id: TaskId| times.get(id.index()).copied().unwrap_or(0.0);
            let before = graph.before(edge.to);
            let free_ns = before.map_or(0.0, |before| time(&schedule.end_ns, before));
            let stood_ns = (time(&schedule.start_ns, edge.to) - free_ns).max(0.0);
            stood.extend(task.line.map(|line| (line, stood_ns)));
        }
        let all_ns: f64 = stood.iter().map(|(_, time_ns)| time_ns).sum();
        let part = self.part(Bottleneck::Synchronization);
        part.time_ns += saved_ns;
        for (line, time_ns) in stood.into_iter().filter(|(_, time_ns)| *time_ns > 0.0) {
            *part.lines.entry(line).or_default() += saved_ns * time_ns / all_ns;
        }
    }

    fn finish(self) -> Vec<Share> {
        let whole_ns: f64 = self.0.values().map(|part| part.time_ns).sum();
        let mut shares: Vec<Share> = self
            .0
            .into_iter()
            .filter(|(_, part)| part.time_ns > 0.0)
            .map(|(by, part)| Share {
                by,
                share: part.time_ns / whole_ns,
                time_ns: part.time_ns,
                lines: most(part.lines),
                operators: most(part.operators),
            })
            .collect();
        shares.sort_by(|a, b| {
            let is_unknown = |share: &Share| share.by == Bottleneck::Unknown;
            is_unknown(a).cmp(&is_unknown(b)).then(b.share.total_cmp(&a.share))
        });
        shares
    }
}

/// The largest, at most [`EVIDENCE`].
fn most<K: Ord>(times: impl IntoIterator<Item = (K, f64)>) -> Vec<(K, f64)> {
    let mut times: Vec<(K, f64)> = times.into_iter().collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    times.truncate(EVIDENCE);
    times
}

#[cfg(test)]
mod tests;
