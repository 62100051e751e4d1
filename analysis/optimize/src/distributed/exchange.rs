//! What data-parallel training adds to an iteration: gradients are copied into buckets, each bucket
//! is summed over all GPUs while the backward pass goes on, and the optimizer waits for all of them.

use std::collections::HashMap;

use super::all_reduce::{self, Topology, transfer_ns};
use super::buckets::{self, Bucket, HostOrder};
use super::links::{self, Link};
use super::single_step;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect};
use ridgeline_graph::graph::{Gradient, Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_graph::memory::{Block, BlockKind};
use ridgeline_profile::Phase;

/// Multiprocessors that a collective over NVLink takes from what else runs: on machines of eight A100s
/// or H100s NCCL logs "24 coll channels", each a block of threads. Over PCIe it has a few.
const CHANNELS: f64 = 24.0;
const CHANNELS_PCIE: f64 = 4.0;
/// The share of a step by which the slowest of the GPUs is behind, fitted on public measurements.
pub const WAITING: f64 = single_step::SHIPPED.waiting;
/// A launch where the graph has none to learn from, in nanoseconds: the sample traces have 3 to 7 µs.
const LAUNCH_NS: f64 = 5_000.0;
/// The shortest kernel, in nanoseconds.
const SHORTEST_KERNEL_NS: f64 = 2_000.0;

/// The link between GPUs, on which exchanges follow one another as on NCCL's stream.
pub fn link() -> Resource {
    Resource::Added("exchange".to_owned())
}

/// What a GPU does with a gradient besides sending it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// How often its bytes are read or written.
    pub passes: f64,
    /// In how many kernels.
    pub kernels: f64,
}

/// A gradient is copied into its bucket, and divided by the number of GPUs on the way
/// (`copy_grad_to_bucket` of PyTorch's `c10d/reducer.cpp`).
const COPY_IN: Work = Work { passes: 2.0, kernels: 1.0 };

/// Who exchanges what over what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The GPUs.
    pub topology: Topology,
    /// Gradients that are exchanged, with their places in [`Graph::gradients`], as they come.
    pub gradients: Vec<(usize, Gradient)>,
    /// The order of the graph before anything was added.
    pub order: HostOrder,
    /// What is to be said with it.
    pub notes: Vec<String>,
    /// Nanoseconds of the host for a launch.
    pub launch_ns: f64,
    /// What becomes of each gradient before it goes.
    pub before_sending: Work,
    multiprocessors: f64,
    bandwidth: f64,
    is_pcie: bool,
}

impl Plan {
    /// What there is to exchange.
    ///
    /// # Errors
    /// Where the recording is not of one GPU, or does not tell its gradients.
    pub fn new(graph: &Graph, facts: &Facts<'_>) -> Result<Plan, String> {
        if !facts.is_gpu() {
            return Err("requires a GPU recording; this was a CPU run".to_owned());
        }
        let talks = |task: &Task| task.kind == TaskKind::Communication && !task.is_removed;
        if graph.tasks.iter().any(talks) {
            return Err("the recorded program already trains on several GPUs".to_owned());
        }
        if facts.cluster.gpus < 2 {
            return Err("requires at least two GPUs".to_owned());
        }
        let all: Vec<(usize, Gradient)> = graph.gradients.iter().copied().enumerate().collect();
        let (topology, mut notes) = links::topology(facts);
        let gradients = of_the_last_pass(&all, facts, &mut notes);
        if gradients.is_empty() {
            return Err("the recording has no shapes of parameter gradients".to_owned());
        }
        Ok(Plan {
            topology,
            gradients,
            order: HostOrder::new(graph),
            notes,
            launch_ns: median_launch(graph).unwrap_or(LAUNCH_NS),
            before_sending: COPY_IN,
            multiprocessors: f64::from(facts.device.multiprocessors.max(1)),
            bandwidth: facts.device.attainable_bandwidth(),
            is_pcie: links::of_device(facts.device).is_pcie,
        })
    }

    /// Bytes of all gradients.
    pub fn bytes(&self) -> f64 {
        self.gradients.iter().map(|(_, gradient)| gradient.bytes).sum()
    }

    /// The topology at one end of what its rates may be.
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

    /// Nanoseconds of so many kernels that read and write so many bytes together.
    fn work_ns(&self, bytes: f64, kernels: f64) -> f64 {
        transfer_ns(bytes, self.bandwidth).max(kernels * SHORTEST_KERNEL_NS)
    }

    /// What the GPU has to have done when a gradient is there.
    pub fn ready(&self, gradient: &Gradient) -> Vec<TaskId> {
        let place = self.order.place(gradient.ready);
        place.map(|place| self.order.launched_by(place).collect()).unwrap_or_default()
    }

    /// The last place of the host at which a gradient of a bucket comes.
    fn ready_at(&self, bucket: &Bucket) -> Option<(u32, TaskId)> {
        let of = |index: &usize| {
            let (_, gradient) = self.gradients.iter().find(|(known, _)| known == index)?;
            Some((self.order.place(gradient.ready)?, gradient.ready))
        };
        bucket.gradients.iter().filter_map(of).max_by_key(|(place, _)| *place)
    }

    /// The place of the host at which the backward pass has its last gradient.
    pub fn last_place(&self) -> Option<u32> {
        self.gradients.iter().filter_map(|(_, one)| self.order.place(one.ready)).max()
    }

    /// What a collective takes from the kernels beside it, as a share of its own time.
    fn stolen(&self, bound: Bound) -> f64 {
        let channels = if self.is_pcie { CHANNELS_PCIE } else { CHANNELS };
        let share = (channels / self.multiprocessors).min(0.5);
        match bound {
            Bound::Low => 0.0,
            Bound::Likely => 0.5 * share,
            Bound::High => share,
        }
    }
}

/// What is exchanged over a link, with what it waits for.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The bucket.
    pub bucket: Bucket,
    /// The exchange; where it goes in stages, the last one.
    pub task: TaskId,
}

/// Adds the exchange of all buckets; `stages` says on which resources a bucket goes one after the
/// other and how long each takes. The optimizer waits for the last one of each.
pub fn add(
    graph: &mut Graph,
    plan: &Plan,
    bound: Bound,
    stages: impl Fn(&Bucket) -> Vec<(Resource, f64)>,
) -> Vec<Sent> {
    let mut anchors = Anchors::default();
    prepare(graph, plan, &mut anchors);
    let all = buckets::of(&plan.gradients);
    let mut sent: Vec<Sent> = Vec::with_capacity(all.len());
    let mut before: Option<(u32, f64)> = None;
    for bucket in all {
        let Some((place, ready)) = plan.ready_at(&bucket) else { continue };
        if let Some((from, exchange_ns)) = before {
            let beside_ns = device_time_between(graph, plan, from, place).min(exchange_ns);
            slow_down(graph, plan, &mut anchors, from, beside_ns * plan.stolen(bound));
        }
        let stages = stages(&bucket);
        before = Some((place, stages.iter().map(|(_, duration_ns)| duration_ns).sum()));
        let launch = anchors.on_host(graph, ready, plan.launch_ns);
        let mut waits_for: Vec<TaskId> = plan.order.launched_by(place).collect();
        waits_for = waits_for.into_iter().map(|task| anchors.last(task)).collect();
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
                    for task in &waits_for {
                        graph.wait(*task, id, 0.0);
                    }
                }
                Some(before) => graph.wait(before, id, 0.0),
            }
            last = Some(id);
        }
        if let Some(task) = last {
            sent.push(Sent { bucket, task });
        }
    }
    wait_for_all(graph, plan, &mut anchors, &sent);
    sent
}

/// Nanoseconds by which the slowest GPU is behind.
pub fn waiting_ns(graph: &Graph) -> f64 {
    let talks = |task: &Task| task.kind == TaskKind::Communication;
    WAITING * graph.time_of(|task| !task.kind.is_host() && !talks(task))
}

/// Lets everything that was launched after the backward pass wait for the exchanges, and copies the
/// sums back.
fn wait_for_all(graph: &mut Graph, plan: &Plan, anchors: &mut Anchors, sent: &[Sent]) {
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

/// What becomes of each gradient as it comes.
fn prepare(graph: &mut Graph, plan: &Plan, anchors: &mut Anchors) {
    let Some(stream) = plan.order.main_stream() else { return };
    let Work { passes, kernels } = plan.before_sending;
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

/// Device time of the main stream between two places of the host.
fn device_time_between(graph: &Graph, plan: &Plan, from: u32, to: u32) -> f64 {
    let in_between = |task: &Task| {
        let place = task.launched_by.and_then(|call| plan.order.place(call));
        place.is_some_and(|place| (from..to).contains(&place)) && !task.kind.is_host()
    };
    graph.time_of(in_between)
}

/// Adds what kernels lose to an exchange beside them.
fn slow_down(graph: &mut Graph, plan: &Plan, anchors: &mut Anchors, place: u32, lost_ns: f64) {
    let on_main = |graph: &Graph, task: TaskId| {
        graph.task(task).map(|one| one.resource) == plan.order.main_stream()
    };
    let after = plan.order.launched_by(place).find(|task| on_main(graph, *task));
    if let Some(after) = after.filter(|_| lost_ns > 0.0) {
        anchors.insert(graph, after, Task::new(TaskKind::Kernel, lost_ns, Phase::Backward));
    }
}

/// What was added after which task, so that the next one comes after that.
#[derive(Debug, Default)]
pub(crate) struct Anchors {
    last: HashMap<TaskId, TaskId>,
}

impl Anchors {
    /// The task, or what was added after it last.
    pub(crate) fn last(&self, task: TaskId) -> TaskId {
        self.last.get(&task).copied().unwrap_or(task)
    }

    /// Adds a task after another one and what was added to that before.
    pub(crate) fn insert(&mut self, graph: &mut Graph, after: TaskId, task: Task) -> TaskId {
        let id = graph.insert_after(self.last(after), task);
        self.last.insert(after, id);
        id
    }

    /// Adds a call of the host.
    pub(crate) fn on_host(&mut self, graph: &mut Graph, after: TaskId, duration_ns: f64) -> TaskId {
        let mut call = Task::new(TaskKind::Launch, duration_ns, Phase::Backward);
        if let Some(like) = graph.task(after) {
            (call.line, call.module) = (like.line, like.module);
        }
        self.insert(graph, after, call)
    }
}

/// Where the program adds up the gradients of several backward passes, those of the last one: the
/// others need no exchange (`no_sync`).
fn of_the_last_pass(
    all: &[(usize, Gradient)],
    facts: &Facts<'_>,
    notes: &mut Vec<String>,
) -> Vec<(usize, Gradient)> {
    let parameters: f64 = facts.manifest.map_or(0.0, |manifest| {
        let owned = manifest.optimizers.iter().flat_map(|one| &one.modules);
        owned.map(|(_, elements)| *elements as f64).sum()
    });
    // FP32 gradients; of half-precision ones the passes are not told apart.
    let passes = all.iter().map(|(_, one)| one.bytes).sum::<f64>() / (4.0 * parameters);
    let passes = if passes.is_finite() { (passes + 0.1).floor() as usize } else { 1 };
    if passes < 2 || !all.len().is_multiple_of(passes) {
        return all.to_vec();
    }
    notes.push(format!(
        "gradients are synchronized only after the last of {passes} backward passes"
    ));
    all.iter().skip(all.len() - all.len() / passes).copied().collect()
}

fn median_launch(graph: &Graph) -> Option<f64> {
    let launches = graph.tasks.iter().filter(|task| task.kind == TaskKind::Launch);
    let mut times: Vec<f64> =
        launches.map(|task| task.duration_ns).filter(|duration_ns| *duration_ns > 0.0).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// The memory of the buckets, which lie beside the gradients.
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

/// What every one of these what-ifs has to say.
pub fn touched(facts: &Facts<'_>, plan: &Plan) -> Effect {
    let mut touched = Effect {
        notes: plan.notes.clone(),
        samples_factor: f64::from(plan.topology.gpus),
        ..Effect::default()
    };
    touched.lines.extend(facts.profile.iteration.loop_line);
    let mebibytes = plan.bytes() / (1024.0 * 1024.0);
    touched.notes.push(format!(
        "{} GPUs, {mebibytes:.0} MiB of gradients per step; each GPU has its own batch",
        plan.topology.gpus
    ));
    touched
}

/// Stages of a bucket that goes in one all-reduce.
pub fn one_all_reduce(topology: &Topology) -> impl Fn(&Bucket) -> Vec<(Resource, f64)> + '_ {
    |bucket| vec![(link(), all_reduce::time_ns(bucket.bytes, topology))]
}
