//! The cost of data loading per iteration, and its competition with the computation for CPU cores.

use super::facts::Facts;
use super::optimization::Bound;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_graph::uploads::is_upload;
use ridgeline_operators::range::Range;
use ridgeline_profile::Phase;
use ridgeline_recording::manifest::Manifest;

/// The minimum share of the iteration spent on loading for a what-if.
const MIN_SHARE: f64 = 0.01;
/// The maximum number of workers proposed, which is also the default if the number of cores is
/// unknown.
const MAX_WORKERS: u32 = 4;
/// Time of the main thread to take a batch from a worker: a message, a file descriptor and a
/// mapping per tensor. Measured with torch 2.15 on a busy CPU with two cores.
const HANDOVER_NS: Range = Range { low: 0.3e6, value: 1.0e6, high: 2.5e6 };
/// Rate at which the main thread first touches the bytes of a batch, in bytes per second (same
/// measurement).
const FIRST_TOUCH_RATE: f64 = 12e9;
/// The minimum time of an operator that runs on all threads, in nanoseconds. PyTorch gives each
/// thread at least 32,768 elements, about 20 µs of a simple operator.
const MIN_PARALLEL_NS: f64 = 50_000.0;
/// The maximum ratio of the time by which workers delay an operator that runs on several threads to
/// what they would delay it if its threads did not wait actively, as OpenMP's do. With two workers
/// on two cores, 18 ms of loading delayed an iteration of 12 ms by 20 to 26 ms.
const WAITING_THREADS: f64 = 2.0;

/// The data loading of an iteration.
#[derive(Clone, Debug)]
pub struct Loading {
    /// Host tasks that load data.
    pub tasks: Vec<TaskId>,
    /// Loading time of the main thread, in nanoseconds.
    pub load_ns: f64,
    /// Part of the loading time that needs a core, which waiting for a disk does not. The whole time
    /// if unknown.
    pub on_a_core_ns: f64,
    /// Batches per iteration.
    pub batches: f64,
    /// Size of these batches in bytes.
    pub bytes: f64,
    /// Current number of workers, if recorded.
    pub workers: Option<u32>,
    /// Whether batches are in pinned memory, if recorded.
    pub pinned: Option<bool>,
}

impl Loading {
    /// Reads the data loading from a recording. `iteration_ns` is the iteration time of the graph.
    ///
    /// # Errors
    /// Fails if no loader was recorded, if it already uses workers, or if it takes too little time.
    pub fn new(graph: &Graph, facts: &Facts<'_>, iteration_ns: f64) -> Result<Loading, String> {
        let host = graph.find(&Resource::Host);
        let loads = |task: &Task| task.phase == Phase::Data && Some(task.resource) == host;
        let tasks = graph.select(loads);
        if tasks.is_empty() {
            return Err("no DataLoader was recorded".to_owned());
        }
        let load_ns = graph.time_of(loads);
        let share = load_ns / iteration_ns.max(1.0);
        let workers = facts.manifest.and_then(workers_now);
        if let Some(workers) = workers.filter(|workers| *workers > 0) {
            return Err(match workers {
                1 => "already uses 1 worker".to_owned(),
                _ => format!("already uses {workers} workers"),
            });
        }
        if workers.is_none() && graph.loader_has_workers == Some(true) {
            return Err("already uses workers".to_owned());
        }
        if share < MIN_SHARE {
            return Err(format!("data loading takes {:.1}% of the iteration", share * 100.0));
        }
        let on_a_core = facts.manifest.and_then(on_a_core).unwrap_or(1.0);
        let pinned = facts.manifest.and_then(|manifest| manifest.loaders.first()?.pin_memory);
        Ok(Loading {
            tasks,
            load_ns,
            on_a_core_ns: load_ns * on_a_core,
            batches: batches(facts.manifest),
            bytes: batch_bytes(graph, facts.manifest),
            workers,
            pinned,
        })
    }

    /// Returns the time of the main thread to receive the batches that workers loaded, in
    /// nanoseconds.
    pub fn handover_ns(&self, bound: Bound) -> f64 {
        let own_ns = self.batches * bound.of(HANDOVER_NS) + self.bytes / FIRST_TOUCH_RATE * 1e9;
        own_ns.min(self.load_ns)
    }
}

fn workers_now(manifest: &Manifest) -> Option<u32> {
    manifest.loaders.iter().filter_map(|loader| loader.workers).max()
}

/// Returns the share of the loading time in which the main thread was on a core or waited for one,
/// and not for a disk.
fn on_a_core(manifest: &Manifest) -> Option<f64> {
    let (mut waited_ns, mut on_a_core_ns) = (0.0, 0.0);
    for loader in manifest.loaders.iter().filter(|loader| !loader.fetch_ns.is_empty()) {
        waited_ns += loader.fetch_ns.iter().map(|ns| *ns as f64).sum::<f64>();
        on_a_core_ns += loader.fetch_cpu_ns? as f64;
    }
    let queued = manifest.iterations.waited_share();
    (waited_ns > 0.0).then(|| (on_a_core_ns / waited_ns + queued).min(1.0))
}

/// Batches per iteration: more than one with gradient accumulation.
fn batches(manifest: Option<&Manifest>) -> f64 {
    let Some(manifest) = manifest else { return 1.0 };
    let fetched: usize = manifest.loaders.iter().map(|loader| loader.fetch_ns.len()).sum();
    let iterations = manifest.iterations.timed_ns.len().max(1);
    (fetched as f64 / iterations as f64).round().max(1.0)
}

fn batch_bytes(graph: &Graph, manifest: Option<&Manifest>) -> f64 {
    let recorded =
        manifest.and_then(|manifest| manifest.memory.as_ref()).map(|memory| &memory.batch);
    let recorded: f64 = recorded.into_iter().flatten().map(|block| block.bytes as f64).sum();
    if recorded > 0.0 {
        return recorded;
    }
    let copied = graph.tasks.iter().filter(|task| is_upload(graph, task));
    copied.filter_map(|task| task.bytes).map(|bytes| bytes as f64).sum()
}

/// Returns the number of workers to propose: one per core, at most four.
pub fn workers(manifest: Option<&Manifest>) -> u32 {
    workers_on(manifest.and_then(|manifest| manifest.machine.as_ref()?.cores))
}

/// Returns the number of workers to propose for a number of cores.
pub fn workers_on(cores: Option<u32>) -> u32 {
    cores.map_or(MAX_WORKERS, |cores| cores.clamp(1, MAX_WORKERS))
}

/// The CPU cores, and how the computation uses them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Cores of the machine for each process that trains.
    pub all: f64,
    /// Cores that the computation uses on average, without data loading.
    pub computing: f64,
    /// Threads per operator.
    pub threads: f64,
}

impl Cores {
    /// Reads the cores from a recording. Returns `None` if the number of cores was not recorded.
    pub fn new(graph: &Graph, facts: &Facts<'_>) -> Option<Cores> {
        let manifest = facts.manifest?;
        let processes = f64::from(manifest.child_processes.unwrap_or(1).max(1));
        let all = (f64::from(manifest.machine.as_ref()?.cores?) / processes).max(1.0);
        let threads = if facts.is_gpu() { 1 } else { manifest.device.threads.unwrap_or(1) };
        let threads = f64::from(threads.max(1)).min(all);
        let (mut busy, mut time) = (0.0, 0.0);
        let computes = |task: &&Task| task.kind.is_host() && task.phase != Phase::Data;
        for task in graph.tasks.iter().filter(computes) {
            let is_wide = task.kind == TaskKind::HostOperator && task.duration_ns > MIN_PARALLEL_NS;
            busy += task.duration_ns * if is_wide { threads } else { 1.0 };
            time += task.duration_ns;
        }
        let computing = if time > 0.0 { busy / time } else { 1.0 };
        Some(Cores { all, computing, threads })
    }

    /// Returns the iteration time in nanoseconds if the main thread takes `own_ns` while workers
    /// load for `load_ns` of core time. Loading that finds no idle core competes with the
    /// computation. At best it is spread evenly over all cores. At worst each worker delays one
    /// thread of an operator, and the other threads use up their share of the cores waiting for it.
    pub fn shared_ns(&self, own_ns: f64, load_ns: f64, workers: f64, bound: Bound) -> f64 {
        // At worst every operator runs on all threads: some of less than 50 µs do.
        let computing = if bound == Bound::High { self.threads } else { self.computing };
        let idle = (self.all - computing).max(0.0);
        let least = 1.0 / self.all;
        let most = (WAITING_THREADS / workers.min(self.threads)).clamp(least, 1.0);
        let delayed = match bound {
            Bound::Low => least,
            Bound::Likely => 0.5 * (least + most),
            Bound::High => most,
        };
        // The iteration grows by what does not fit: t = own + delayed * (load - idle * t).
        let total_ns = (own_ns + delayed * load_ns) / (1.0 + delayed * idle);
        total_ns.max(own_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cores: (f64, f64, f64), workers: f64, bound: Bound, expected: f64) {
        let cores = Cores { all: cores.0, computing: cores.1, threads: cores.2 };
        let found = cores.shared_ns(100.0, 40.0, workers, bound);
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn an_idle_core_does_the_loading() {
        check((2.0, 1.0, 1.0), 1.0, Bound::Likely, 100.0);
        check((8.0, 4.0, 4.0), 2.0, Bound::High, 100.0);
    }

    #[test]
    fn without_an_idle_core_loading_competes_with_the_computation() {
        check((2.0, 2.0, 2.0), 2.0, Bound::Low, 120.0);
        check((2.0, 2.0, 2.0), 1.0, Bound::High, 140.0);
        check((2.0, 2.0, 2.0), 1.0, Bound::Likely, 130.0);
        check((1.0, 1.0, 1.0), 4.0, Bound::Likely, 140.0);
        check((2.0, 2.0, 2.0), 2.0, Bound::High, 140.0);
        check((8.0, 8.0, 8.0), 4.0, Bound::High, 120.0);
        // Operators that seem too short for several threads.
        check((2.0, 1.0, 2.0), 2.0, Bound::Likely, 100.0);
        check((2.0, 1.0, 2.0), 2.0, Bound::High, 140.0);
    }
}
