//! What loading data costs an iteration, and on how many cores it competes with the computation.

use super::facts::Facts;
use super::optimization::Bound;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_graph::uploads::is_upload;
use ridgeline_operators::range::Range;
use ridgeline_profile::Phase;
use ridgeline_recording::manifest::Manifest;

/// Loading that takes less of an iteration is not worth a what-if.
const LEAST_SHARE: f64 = 0.01;
/// Workers that are proposed at most, and where the number of cores is not known.
const MOST_WORKERS: u32 = 4;
/// What taking a batch from a worker costs the program's own thread: a message, a file descriptor and
/// a mapping for each tensor. Measured with torch 2.15 on a busy processor of two cores.
const HANDOVER_NS: Range = Range { low: 0.3e6, value: 1.0e6, high: 2.5e6 };
/// And what its bytes cost there when they are first touched, in bytes per second (the same).
const FIRST_TOUCH: f64 = 12e9;
/// Operators that take longer are run by all threads, in nanoseconds: PyTorch gives each thread 32,768
/// elements at least, some 20 µs of a simple one.
const PARALLEL_NS: f64 = 50_000.0;

/// How an iteration gets its data.
#[derive(Clone, Debug)]
pub struct Loading {
    /// The host's tasks that load.
    pub tasks: Vec<TaskId>,
    /// Nanoseconds that the program's own thread takes for it.
    pub load_ns: f64,
    /// Those of them in which it is on a core, and does not wait for a disk, say; all where that is not
    /// known.
    pub on_a_core_ns: f64,
    /// Batches that an iteration takes.
    pub batches: f64,
    /// Bytes of them.
    pub bytes: f64,
    /// Workers that load already; nothing where the recording does not tell.
    pub workers: Option<u32>,
    /// Whether batches come in page-locked memory; nothing likewise.
    pub pinned: Option<bool>,
}

impl Loading {
    /// What the recording tells.
    ///
    /// # Errors
    /// Where no loader was recorded, or it takes no time worth mention. `iteration_ns` is that of the
    /// graph.
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
        if share < LEAST_SHARE {
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

    /// What the program's own thread does for batches that workers loaded.
    pub fn handover_ns(&self, bound: Bound) -> f64 {
        let own_ns = self.batches * bound.of(HANDOVER_NS) + self.bytes / FIRST_TOUCH * 1e9;
        own_ns.min(self.load_ns)
    }
}

fn workers_now(manifest: &Manifest) -> Option<u32> {
    manifest.loaders.iter().filter_map(|loader| loader.workers).max()
}

/// The share of the waiting for batches in which the program's thread was on a processor.
fn on_a_core(manifest: &Manifest) -> Option<f64> {
    let (mut waited_ns, mut on_a_core_ns) = (0.0, 0.0);
    for loader in manifest.loaders.iter().filter(|loader| !loader.fetch_ns.is_empty()) {
        waited_ns += loader.fetch_ns.iter().map(|ns| *ns as f64).sum::<f64>();
        on_a_core_ns += loader.fetch_cpu_ns? as f64;
    }
    (waited_ns > 0.0).then(|| (on_a_core_ns / waited_ns).min(1.0))
}

/// Batches that an iteration takes: more than one where gradients add up.
fn batches(manifest: Option<&Manifest>) -> f64 {
    let Some(manifest) = manifest else { return 1.0 };
    let fetched: usize = manifest.loaders.iter().map(|loader| loader.fetch_ns.len()).sum();
    let iterations = manifest.iterations.timed_ns.len().max(1);
    (fetched as f64 / iterations as f64).round().max(1.0)
}

fn batch_bytes(graph: &Graph, manifest: Option<&Manifest>) -> f64 {
    let told = manifest.and_then(|manifest| manifest.memory.as_ref()).map(|memory| &memory.batch);
    let told: f64 = told.into_iter().flatten().map(|block| block.bytes as f64).sum();
    if told > 0.0 {
        return told;
    }
    let copied = graph.tasks.iter().filter(|task| is_upload(graph, task));
    copied.filter_map(|task| task.bytes).map(|bytes| bytes as f64).sum()
}

/// The workers that are proposed: one a core, four at most.
pub fn workers(manifest: Option<&Manifest>) -> u32 {
    workers_on(manifest.and_then(|manifest| manifest.machine.as_ref()?.cores))
}

/// The same for a machine of so many cores.
pub fn workers_on(cores: Option<u32>) -> u32 {
    cores.map_or(MOST_WORKERS, |cores| cores.clamp(1, MOST_WORKERS))
}

/// Cores, and how the computation uses them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Of the machine.
    pub all: f64,
    /// That the computation keeps busy, on average.
    pub computing: f64,
    /// Threads of an operator.
    pub threads: f64,
}

impl Cores {
    /// Nothing where the recording does not tell how many there are. Loading is left out.
    pub fn new(graph: &Graph, facts: &Facts<'_>) -> Option<Cores> {
        let manifest = facts.manifest?;
        let all = f64::from(manifest.machine.as_ref()?.cores?.max(1));
        let threads = if facts.is_gpu() { 1 } else { manifest.device.threads.unwrap_or(1) };
        let threads = f64::from(threads.max(1)).min(all);
        let (mut busy, mut time) = (0.0, 0.0);
        let computes = |task: &&Task| task.kind.is_host() && task.phase != Phase::Data;
        for task in graph.tasks.iter().filter(computes) {
            let is_wide = task.kind == TaskKind::HostOperator && task.duration_ns > PARALLEL_NS;
            busy += task.duration_ns * if is_wide { threads } else { 1.0 };
            time += task.duration_ns;
        }
        let computing = if time > 0.0 { busy / time } else { 1.0 };
        Some(Cores { all, computing, threads })
    }

    /// Nanoseconds of an iteration whose own thread takes `own_ns` while workers load for `load_ns`
    /// of a core. What finds no idle core takes turns with the computation: at best on all cores
    /// alike; at worst each worker holds up one thread of an operator, and the others wait for that.
    pub fn shared_ns(&self, own_ns: f64, load_ns: f64, workers: f64, bound: Bound) -> f64 {
        let idle = (self.all - self.computing).max(0.0);
        let least = 1.0 / self.all;
        let most = (1.0 / workers.min(self.threads)).max(least);
        let held_up = match bound {
            Bound::Low => least,
            Bound::Likely => 0.5 * (least + most),
            Bound::High => most,
        };
        // The iteration is longer by what does not fit: t = own + held_up * (load - idle * t).
        let longer_ns = (own_ns + held_up * load_ns) / (1.0 + held_up * idle);
        longer_ns.max(own_ns)
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
    fn an_idle_core_takes_the_loading() {
        check((2.0, 1.0, 1.0), 1.0, Bound::Likely, 100.0);
        check((8.0, 4.0, 4.0), 2.0, Bound::High, 100.0);
    }

    #[test]
    fn without_one_it_takes_turns_with_the_computation() {
        check((2.0, 2.0, 2.0), 2.0, Bound::Low, 120.0);
        check((2.0, 2.0, 2.0), 1.0, Bound::High, 140.0);
        check((2.0, 2.0, 2.0), 1.0, Bound::Likely, 130.0);
        check((1.0, 1.0, 1.0), 4.0, Bound::Likely, 140.0);
    }
}
