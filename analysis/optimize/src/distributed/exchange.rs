//! Adds data-parallel training to an iteration: gradients are copied into buckets, each bucket is
//! summed over all GPUs while the backward pass continues, and the optimizer waits for all of them.

use std::collections::HashMap;

use super::all_reduce::{self, Topology, transfer_ns};
use super::buckets::{self, Bucket, HostOrder};
use super::links::{self, Link};
use super::single_step;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect};
use ridgeline_graph::graph::{Gradient, Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_graph::memory::{Block, BlockKind};
use ridgeline_graph::simulate;
use ridgeline_profile::Phase;

/// Multiprocessors that a collective over NVLink occupies: on machines with eight A100s or H100s,
/// NCCL logs "24 coll channels", each a thread block. Over PCIe there are only a few.
const CHANNELS: f64 = 24.0;
const CHANNELS_PCIE: f64 = 4.0;
/// Delay of the slowest GPU as a share of the step, fitted to public measurements.
pub const STRAGGLER_DELAY: f64 = single_step::SHIPPED.waiting;
/// Default launch time in nanoseconds if the graph has none. The sample traces have 3 to 7 µs.
const DEFAULT_LAUNCH_NS: f64 = 5_000.0;
/// The minimum time of a kernel in nanoseconds.
const MIN_KERNEL_NS: f64 = 2_000.0;

/// Returns the link between GPUs. Exchanges on it run one after another, as on NCCL's stream.
pub fn link() -> Resource {
    Resource::Added("exchange".to_owned())
}

/// GPU work on a gradient besides sending it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Number of times that its bytes are read or written.
    pub passes: f64,
    /// Number of kernels.
    pub kernels: f64,
}

/// A gradient is copied into its bucket and divided by the number of GPUs at the same time
/// (`copy_grad_to_bucket` in PyTorch's `c10d/reducer.cpp`).
pub const COPY_IN: Work = Work { passes: 2.0, kernels: 1.0 };

/// The gradients to exchange, and the topology.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The GPUs.
    pub topology: Topology,
    /// Gradients to exchange with their indices into [`Graph::gradients`], in the order in which
    /// they are computed.
    pub gradients: Vec<(usize, Gradient)>,
    /// The host order of the graph before anything was added.
    pub order: HostOrder,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Host time of a launch in nanoseconds.
    pub launch_ns: f64,
    /// Work on each gradient before it is sent.
    pub send_work: Work,
    multiprocessors: f64,
    bandwidth: f64,
    is_pcie: bool,
}

impl Plan {
    /// Plans the exchange for a graph.
    ///
    /// # Errors
    /// Fails if the recording is not of a single GPU, or if it has no gradients.
    pub fn new(graph: &Graph, facts: &Facts<'_>) -> Result<Plan, String> {
        if !facts.is_gpu() {
            return Err("requires a GPU recording; this was a CPU run".to_owned());
        }
        let is_communication =
            |task: &Task| task.kind == TaskKind::Communication && !task.is_removed;
        if graph.tasks.iter().any(is_communication) {
            return Err("the recorded program already trains on several GPUs".to_owned());
        }
        if facts.cluster.gpus < 2 {
            return Err("requires at least two GPUs".to_owned());
        }
        let all: Vec<(usize, Gradient)> = graph.gradients.iter().copied().enumerate().collect();
        let (topology, mut notes) = links::topology(facts);
        let gradients = gradients_of_last_pass(&all, facts, &mut notes);
        if gradients.is_empty() {
            return Err("the recording has no shapes of parameter gradients".to_owned());
        }
        Ok(Plan {
            topology,
            gradients,
            order: HostOrder::new(graph),
            notes,
            launch_ns: median_launch(graph).unwrap_or(DEFAULT_LAUNCH_NS),
            send_work: COPY_IN,
            multiprocessors: f64::from(facts.device.multiprocessors.max(1)),
            bandwidth: facts.device.attainable_bandwidth(),
            is_pcie: links::of_device(facts.device).is_pcie,
        })
    }

    /// Returns the size of all gradients in bytes.
    pub fn bytes(&self) -> f64 {
        self.gradients.iter().map(|(_, gradient)| gradient.bytes).sum()
    }

    /// Returns the topology at one end of the range of its rates.
    pub fn topology_at(&self, bound: Bound) -> Topology {
        let at = |link: &mut Link| {
            link.bandwidth *= match bound {
                Bound::Low => link.rate_factor(),
                Bound::Likely => 1.0,
                Bound::High => 1.0 / link.rate_factor(),
            };
        };
        let mut topology = self.topology;
        at(&mut topology.link);
        at(&mut topology.network);
        topology
    }

    /// Returns the time of kernels that together read and write a number of bytes, in nanoseconds.
    fn work_ns(&self, bytes: f64, kernels: f64) -> f64 {
        transfer_ns(bytes, self.bandwidth).max(kernels * MIN_KERNEL_NS)
    }

    /// Returns the GPU tasks that have to finish before a gradient is ready.
    pub fn ready(&self, gradient: &Gradient) -> Vec<TaskId> {
        let place = self.order.place(gradient.ready);
        place.map(|place| self.order.launched_by(place).collect()).unwrap_or_default()
    }

    /// Returns the latest host position at which a gradient of a bucket is ready, with its task.
    fn ready_at(&self, bucket: &Bucket) -> Option<(u32, TaskId)> {
        let of = |index: &usize| {
            let (_, gradient) = self.gradients.iter().find(|(known, _)| known == index)?;
            Some((self.order.place(gradient.ready)?, gradient.ready))
        };
        bucket.gradients.iter().filter_map(of).max_by_key(|(place, _)| *place)
    }

    /// Returns the host position at which the last gradient is ready.
    pub fn last_place(&self) -> Option<u32> {
        self.gradients.iter().filter_map(|(_, one)| self.order.place(one.ready)).max()
    }

    /// Returns the time that a collective takes from concurrent kernels, as a share of its own
    /// time.
    fn slowdown_share(&self, bound: Bound) -> f64 {
        let channels = if self.is_pcie { CHANNELS_PCIE } else { CHANNELS };
        let share = (channels / self.multiprocessors).min(0.5);
        match bound {
            Bound::Low => 0.0,
            Bound::Likely => 0.5 * share,
            Bound::High => share,
        }
    }
}

/// An exchange of a bucket.
#[derive(Clone, Debug)]
pub struct BucketExchange {
    /// The exchanged bucket.
    pub bucket: Bucket,
    /// The task of the exchange, or of its last stage.
    pub task: TaskId,
}

/// Adds the exchange of all buckets. `stages` returns the resources and times of a bucket's stages,
/// which run one after another. The optimizer waits for the last stage of each bucket.
pub fn add(
    graph: &mut Graph,
    plan: &Plan,
    bound: Bound,
    stages: impl Fn(&Bucket) -> Vec<(Resource, f64)>,
) -> Vec<BucketExchange> {
    let mut anchors = Anchors::default();
    prepare(graph, plan, &mut anchors);
    let all = buckets::of(&plan.gradients);
    let mut sent: Vec<BucketExchange> = Vec::with_capacity(all.len());
    let mut before: Option<(u32, f64)> = None;
    for bucket in all {
        let Some((place, ready)) = plan.ready_at(&bucket) else { continue };
        if let Some((from, exchange_ns)) = before {
            let concurrent_ns = device_time_between(graph, plan, from, place).min(exchange_ns);
            slow_down(graph, plan, &mut anchors, from, concurrent_ns * plan.slowdown_share(bound));
        }
        let stages = stages(&bucket);
        before = Some((place, stages.iter().map(|(_, duration_ns)| duration_ns).sum()));
        let launch = anchors.on_host(graph, ready, plan.launch_ns);
        let mut dependencies: Vec<TaskId> = plan.order.launched_by(place).collect();
        dependencies = dependencies.into_iter().map(|task| anchors.last(task)).collect();
        let mut last = None;
        for (resource, duration_ns) in stages {
            let resource = graph.resource(&resource);
            let mut task = Task::new(TaskKind::Communication, duration_ns, Phase::Backward);
            task.bytes = Some(bucket.bytes as u64);
            (task.line, task.module) =
                graph.task(ready).map_or((None, None), |ready| (ready.line, ready.module));
            let id = graph.push(resource, task);
            match last {
                None => {
                    graph.wait(launch, id, 0.0);
                    for task in &dependencies {
                        graph.wait(*task, id, 0.0);
                    }
                }
                Some(before) => graph.wait(before, id, 0.0),
            }
            last = Some(id);
        }
        if let Some(task) = last {
            sent.push(BucketExchange { bucket, task });
        }
    }
    wait_for_all(graph, plan, &mut anchors, &sent);
    sent
}

/// Returns the delay of the slowest GPU in nanoseconds.
pub fn waiting_ns(graph: &Graph) -> f64 {
    let is_communication = |task: &Task| task.kind == TaskKind::Communication;
    STRAGGLER_DELAY * graph.time_of(|task| !task.kind.is_host() && !is_communication(task))
}

/// Makes everything launched after the backward pass wait for the exchanges, and copies the sums
/// back.
fn wait_for_all(graph: &mut Graph, plan: &Plan, anchors: &mut Anchors, sent: &[BucketExchange]) {
    let Some((last, place)) = plan
        .gradients
        .iter()
        .filter_map(|(_, one)| Some((one.ready, plan.order.place(one.ready)?)))
        .max_by_key(|(_, place)| *place)
    else {
        return;
    };
    let slowest_ns = waiting_ns(graph);
    let link = graph.resource(&link());
    let waiting = Task::new(TaskKind::Communication, slowest_ns, Phase::Backward);
    let slowest = graph.push(link, waiting);
    for one in sent {
        graph.wait(one.task, slowest, 0.0);
    }
    for task in plan.order.launched_by(place) {
        graph.wait(anchors.last(task), slowest, 0.0);
    }
    let tensors = plan.gradients.len() as f64;
    let launch = anchors.on_host(graph, last, plan.launch_ns * tensors);
    let copy_ns = plan.work_ns(2.0 * plan.bytes(), tensors);
    let after: Vec<TaskId> = plan.order.launched_after(place).collect();
    let Some(stream) = plan.order.main_stream() else { return };
    let next = after.iter().find(|task| graph.task(**task).map(|one| one.resource) == Some(stream));
    let mut copy = Task::new(TaskKind::DeviceCopy, copy_ns, Phase::Backward);
    copy.launched_by = Some(launch);
    copy.bytes = Some(plan.bytes() as u64);
    let copy = match next {
        Some(next) => graph.insert_before(*next, copy),
        None => graph.push(stream, copy),
    };
    graph.wait(launch, copy, 0.0);
    graph.wait(slowest, copy, 0.0);
    for task in after {
        if graph.task(task).map(|one| one.resource) != Some(stream) {
            graph.wait(copy, task, 0.0);
        }
    }
}

/// Adds the work on each gradient when it is ready.
fn prepare(graph: &mut Graph, plan: &Plan, anchors: &mut Anchors) {
    let Some(stream) = plan.order.main_stream() else { return };
    let Work { passes, kernels } = plan.send_work;
    for (_, gradient) in &plan.gradients {
        let Some(place) = plan.order.place(gradient.ready) else { continue };
        let on_stream = |task: &TaskId| graph.task(*task).map(|one| one.resource) == Some(stream);
        let Some(after) = plan.order.launched_by(place).find(on_stream) else { continue };
        let launch = anchors.on_host(graph, gradient.ready, plan.launch_ns * kernels);
        let duration_ns = plan.work_ns(passes * gradient.bytes, kernels);
        let mut work = Task::new(TaskKind::DeviceCopy, duration_ns, Phase::Backward);
        (work.launched_by, work.module) = (Some(launch), gradient.module);
        work.bytes = Some(gradient.bytes as u64);
        let work = anchors.insert(graph, after, work);
        graph.wait(launch, work, 0.0);
    }
}

/// Returns the device time between two host positions, in nanoseconds.
fn device_time_between(graph: &Graph, plan: &Plan, from: u32, to: u32) -> f64 {
    let in_between = |task: &Task| {
        let place = task.launched_by.and_then(|call| plan.order.place(call));
        place.is_some_and(|place| (from..to).contains(&place)) && !task.kind.is_host()
    };
    graph.time_of(in_between)
}

/// Adds the time that kernels lose to a concurrent exchange.
fn slow_down(graph: &mut Graph, plan: &Plan, anchors: &mut Anchors, place: u32, lost_ns: f64) {
    let on_main = |graph: &Graph, task: TaskId| {
        graph.task(task).map(|one| one.resource) == plan.order.main_stream()
    };
    let after = plan.order.launched_by(place).find(|task| on_main(graph, *task));
    if let Some(after) = after.filter(|_| lost_ns > 0.0) {
        anchors.insert(graph, after, Task::new(TaskKind::Kernel, lost_ns, Phase::Backward));
    }
}

/// Remembers the last task added after each task. The next one is added after it.
#[derive(Debug, Default)]
pub(crate) struct Anchors {
    last: HashMap<TaskId, TaskId>,
}

impl Anchors {
    /// Returns the last task that was added after a task, or the task itself.
    pub(crate) fn last(&self, task: TaskId) -> TaskId {
        self.last.get(&task).copied().unwrap_or(task)
    }

    /// Adds a task after another one and after those already added to it.
    pub(crate) fn insert(&mut self, graph: &mut Graph, after: TaskId, task: Task) -> TaskId {
        let id = graph.insert_after(self.last(after), task);
        self.last.insert(after, id);
        id
    }

    /// Adds a launch on the host.
    pub(crate) fn on_host(&mut self, graph: &mut Graph, after: TaskId, duration_ns: f64) -> TaskId {
        let mut call = Task::new(TaskKind::Launch, duration_ns, Phase::Backward);
        if let Some(like) = graph.task(after) {
            (call.line, call.module) = (like.line, like.module);
        }
        self.insert(graph, after, call)
    }
}

/// Returns the gradients of the last backward pass if the program accumulates gradients over
/// several. The others need no exchange (`no_sync`).
fn gradients_of_last_pass(
    all: &[(usize, Gradient)],
    facts: &Facts<'_>,
    notes: &mut Vec<String>,
) -> Vec<(usize, Gradient)> {
    // Assumes FP32 gradients. With half precision, the passes are not distinguished.
    let passes = all.iter().map(|(_, one)| one.bytes).sum::<f64>() / (4.0 * parameters(facts));
    let passes = if passes.is_finite() { (passes + 0.1).floor() as usize } else { 1 };
    if passes < 2 || !all.len().is_multiple_of(passes) {
        return all.to_vec();
    }
    notes.push(format!(
        "gradients are synchronized only after the last of {passes} backward passes"
    ));
    all.iter().skip(all.len() - all.len() / passes).copied().collect()
}

/// Returns the number of trained parameters. 0 if it is unknown.
pub fn parameters(facts: &Facts<'_>) -> f64 {
    facts.manifest.map_or(0.0, |manifest| {
        let owned = manifest.optimizers.iter().flat_map(|one| &one.modules);
        owned.map(|(_, elements)| *elements as f64).sum()
    })
}

/// Returns the exchanges of gradients in a recording of several GPUs, in the order of their starts.
pub fn recorded(graph: &Graph) -> Vec<TaskId> {
    let mut found = graph.select(|task| {
        task.kind == TaskKind::Communication && task.phase == Phase::Backward && !task.is_removed
    });
    if found.is_empty() {
        return found;
    }
    let start_ns = simulate::steady(graph).map(|schedule| schedule.start_ns).unwrap_or_default();
    let start_of = |id: &TaskId| start_ns.get(id.index()).copied().unwrap_or_default();
    found.sort_by(|one, other| start_of(one).total_cmp(&start_of(other)));
    found
}

/// Returns the exchanges before the last of several backward passes.
pub fn before_the_last_pass(recorded: &[TaskId], passes: f64) -> &[TaskId] {
    let needed = (recorded.len() as f64 / passes).ceil() as usize;
    recorded.get(..recorded.len().saturating_sub(needed)).unwrap_or_default()
}

/// Whether the recorded program wraps a model in `DistributedDataParallel`. Unknown without a manifest.
pub fn uses_ddp(facts: &Facts<'_>) -> Option<bool> {
    let observed = &facts.manifest?.observed;
    Some(observed.distributed.as_ref().is_some_and(|one| !one.models.is_empty()))
}

fn median_launch(graph: &Graph) -> Option<f64> {
    let launches = graph.tasks.iter().filter(|task| task.kind == TaskKind::Launch);
    let mut times: Vec<f64> =
        launches.map(|task| task.duration_ns).filter(|duration_ns| *duration_ns > 0.0).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Adds the memory of the buckets, which are separate from the gradients.
pub fn add_bucket_memory(graph: &mut Graph, bytes: f64) {
    graph.memory.add(Block {
        bytes,
        kind: BlockKind::Gradients,
        allocated: None,
        freed: None,
        line: None,
        module: None,
        call: None,
    });
}

/// Returns the lines and notes that all data-parallel what-ifs share.
pub fn effect(facts: &Facts<'_>, plan: &Plan) -> Effect {
    let mut effect = Effect {
        notes: plan.notes.clone(),
        samples_factor: f64::from(plan.topology.gpus),
        ..Effect::default()
    };
    effect.lines.extend(facts.profile.iteration.loop_line);
    let mebibytes = plan.bytes() / (1024.0 * 1024.0);
    effect.notes.push(format!(
        "{} GPUs, {mebibytes:.0} MiB of gradients per step; each GPU has its own batch",
        plan.topology.gpus
    ));
    effect
}

/// Returns the stage of a bucket that is exchanged in one all-reduce.
pub fn one_all_reduce(topology: &Topology) -> impl Fn(&Bucket) -> Vec<(Resource, f64)> + '_ {
    |bucket| vec![(link(), all_reduce::time_ns(bucket.bytes, topology))]
}
