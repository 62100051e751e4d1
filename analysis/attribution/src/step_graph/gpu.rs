//! GPUs: kernels and copies on their streams, and their dependencies.

use std::collections::{BTreeMap, HashMap};

use super::{Builder, Call, CallKind};
use crate::contexts::Contexts;
use crate::recorded_step::WorkKinds;
use ridgeline_graph::graph::{Resource, Task, TaskId, TaskKind};
use ridgeline_operators::recorded_step::WorkKind;
use ridgeline_profile::Phase;
use ridgeline_recording::trace::{Activity, Trace};

/// The maximum nanoseconds from the end of a launch to the start of its kernel on an idle GPU. A
/// later kernel waited for something else. The sample traces have 1 to 4 µs.
const LAUNCH_DELAY_NS: i64 = 5_000;
/// The maximum nanoseconds between consecutive kernels of a stream if the second one waited for the
/// first.
const MAX_GAP_NS: i64 = 10_000;
/// Nanoseconds between consecutive kernels of a stream if the recording does not show it: 1 µs.
const DEFAULT_GAP_NS: f64 = 1_000.0;
/// The accuracy of the clocks of host and GPU, in nanoseconds.
const CLOCK_ACCURACY_NS: i64 = 2_000;
/// The maximum nanoseconds of a launch that did not wait for room in the driver's queue.
const MAX_LAUNCH_NS: i64 = 100_000;
/// The number of pending launches from which the queue may be full for a stream. CUDA's queue has
/// room for 1,024.
const FULL_QUEUE: usize = 512;

/// Returns the device and stream of an activity.
fn stream_of(trace: &Trace, activity: &Activity) -> (i64, i64) {
    let details = trace.details(activity);
    (details.device.unwrap_or(0), details.stream.unwrap_or(0))
}

impl Builder<'_> {
    pub(super) fn gpu(&mut self, contexts: &Contexts<'_>) {
        let trace = self.join.trace;
        let mut by_call: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut by_stream: BTreeMap<(i64, i64), Vec<usize>> = BTreeMap::new();
        let mut left_over: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for (index, activity) in trace.activities.iter().enumerate() {
            let stream = stream_of(trace, activity);
            match self.launches.call(index).filter(|call| self.task_of(*call).is_some()) {
                Some(call) => {
                    by_call.entry(call).or_default().push(index);
                    by_stream.entry(stream).or_default().push(index);
                }
                None if activity.start_ns < self.window.0 => {
                    let end = left_over.entry(stream).or_insert(i64::MIN);
                    *end = (*end).max(activity.end_ns());
                }
                None => {}
            }
        }
        // The tasks, in the order of their streams.
        let mut tasks: Vec<Option<TaskId>> = vec![None; trace.activities.len()];
        let mut names: HashMap<_, u32> = HashMap::new();
        let mut kinds = WorkKinds::default();
        for (&(device, stream), members) in &mut by_stream {
            members.sort_unstable_by_key(|index| {
                trace.activities.get(*index).map(|activity| (activity.start_ns, activity.end_ns()))
            });
            let resource = self.graph.resource(&Resource::Stream(device, stream));
            for index in members {
                let Some(activity) = trace.activities.get(*index) else { continue };
                let mut task = Task::new(
                    task_kind(kinds.of(trace, activity)),
                    activity.duration_ns as f64,
                    Phase::Other,
                );
                let name = *names.entry(activity.name).or_insert_with(|| {
                    self.graph.names.push(trace.text(activity.name).to_owned());
                    self.graph.names.len() as u32 - 1
                });
                task.name = Some(name);
                task.bytes = trace.details(activity).bytes;
                let call = self.launches.call(*index).and_then(|call| self.task_of(call));
                if let Some((launch, _)) = call {
                    task.launched_by = Some(launch);
                    if let Some(launch) = self.graph.task(launch) {
                        (task.operator, task.call) = (launch.operator, launch.call);
                    }
                }
                self.describe(&mut task, contexts, self.launches.context(*index));
                if let Some(launch) = task.launched_by.and_then(|launch| self.graph.task(launch))
                    && matches!(launch.phase, Phase::Optimizer | Phase::Data)
                {
                    task.phase = launch.phase;
                }
                let id = self.graph.push(resource, task);
                if let Some(entry) = tasks.get_mut(*index) {
                    *entry = Some(id);
                }
            }
        }
        self.busy_until_ns = vec![0.0; self.graph.resources().len()];
        for ((device, stream), end_ns) in &left_over {
            let resource = self.graph.find(&Resource::Stream(*device, *stream));
            let slot = resource.and_then(|it| self.busy_until_ns.get_mut(it.0 as usize));
            if let Some(slot) = slot {
                *slot = end_ns.saturating_sub(self.window.0).max(0) as f64;
            }
        }
        self.dependencies(&by_call, &by_stream, &left_over, &tasks);
    }

    /// Adds the dependencies, in the order of the host's calls.
    fn dependencies(
        &mut self,
        by_call: &HashMap<usize, Vec<usize>>,
        by_stream: &BTreeMap<(i64, i64), Vec<usize>>,
        left_over: &BTreeMap<(i64, i64), i64>,
        tasks: &[Option<TaskId>],
    ) {
        let trace = self.join.trace;
        // By activity: the end of the previous activity on its stream.
        let mut before: Vec<i64> = vec![i64::MIN; trace.activities.len()];
        for (stream, members) in by_stream {
            let mut end_ns = left_over.get(stream).copied().unwrap_or(i64::MIN);
            for index in members {
                if let Some(entry) = before.get_mut(*index) {
                    *entry = end_ns;
                }
                end_ns = end_ns.max(trace.activities.get(*index).map_or(end_ns, Activity::end_ns));
            }
        }
        // By stream: the activities launched so far, as end and task.
        let mut launched: BTreeMap<(i64, i64), Vec<(i64, TaskId)>> = BTreeMap::new();
        let mut count = 0_usize;
        // The number of activities launched on each stream when another stream was told to wait.
        let mut stream_wait: Option<Vec<((i64, i64), usize)>> = None;
        for call in self.order.clone() {
            match call.what {
                CallKind::StreamWait => {
                    let reached = launched.iter().map(|(stream, list)| (*stream, list.len()));
                    stream_wait = Some(reached.collect());
                }
                CallKind::Wait => {
                    if let Some((task, _)) = self.task_of(call.index) {
                        let until = call.end_ns.saturating_add(CLOCK_ACCURACY_NS);
                        self.add_host_wait(task, call, latest(&launched, until));
                    }
                }
                CallKind::Launch => {
                    let Some((launch, _)) = self.task_of(call.index) else {
                        continue;
                    };
                    let done = launched.values().map(|list| ended_by(list, call.start_ns)).sum();
                    let is_full = count.saturating_sub(done) >= FULL_QUEUE;
                    if is_full && call.end_ns.saturating_sub(call.start_ns) > MAX_LAUNCH_NS {
                        let dependency = latest(&launched, call.end_ns);
                        self.add_host_wait(launch, call, dependency);
                    }
                    for index in by_call.get(&call.index).into_iter().flatten() {
                        let (Some(activity), Some(task)) =
                            (trace.activities.get(*index), tasks.get(*index).copied().flatten())
                        else {
                            continue;
                        };
                        let stream = stream_of(trace, activity);
                        let waits_for = stream_wait.take().and_then(|reached| {
                            let until = activity.start_ns.saturating_add(CLOCK_ACCURACY_NS);
                            latest_of(&launched, &reached, until, stream)
                        });
                        let behind = before.get(*index).copied().unwrap_or(i64::MIN);
                        self.connect(launch, call, task, activity, behind, waits_for);
                        launched.entry(stream).or_default().push((activity.end_ns(), task));
                        count += 1;
                        self.block_host(launch, call, task, activity);
                    }
                }
            }
        }
    }

    /// Adds a host task's wait for a GPU task. The host task's duration is the part after the wait.
    fn add_host_wait(&mut self, task: TaskId, call: Call, dependency: Option<(i64, TaskId)>) {
        let Some((end_ns, from)) = dependency else { return };
        let own_ns = call.end_ns.saturating_sub(call.start_ns.max(end_ns)).max(0) as f64;
        if let Some(task) = self.graph.task_mut(task) {
            task.duration_ns = task.duration_ns.min(own_ns);
        }
        self.graph.wait(from, task, 0.0);
    }

    /// Adds a copy that the host waits for within the call that launches it.
    fn block_host(&mut self, launch: TaskId, call: Call, task: TaskId, activity: &Activity) {
        let is_copy = self.graph.task(task).is_some_and(|task| task.kind == TaskKind::HostCopy);
        if !is_copy || activity.end_ns() > call.end_ns.saturating_add(CLOCK_ACCURACY_NS) {
            return;
        }
        let total_ns = self.graph.task(launch).map_or(0.0, |task| task.duration_ns);
        let asking_ns = activity.start_ns.saturating_sub(call.start_ns).max(0) as f64;
        let after_ns = call.end_ns.saturating_sub(activity.end_ns()).max(0) as f64;
        let asking_ns = asking_ns.min(total_ns).min(LAUNCH_DELAY_NS as f64);
        let Some(mut wait) = self.graph.task(launch).copied() else { return };
        (wait.kind, wait.duration_ns) = (TaskKind::Wait, after_ns.min(total_ns));
        if let Some(launch) = self.graph.task_mut(launch) {
            launch.duration_ns = asking_ns;
        }
        let wait = self.graph.insert_after(launch, wait);
        self.graph.wait(task, wait, 0.0);
        // The activity's delay was measured from the end of the call, which has moved.
        let started = activity.start_ns.saturating_sub(call.start_ns) as f64;
        self.graph.set_last_lag(task, (started - asking_ns).clamp(0.0, LAUNCH_DELAY_NS as f64));
    }

    /// Adds a GPU task's dependencies on its launch, on the previous task of its stream and on
    /// another stream.
    fn connect(
        &mut self,
        launch: TaskId,
        call: Call,
        task: TaskId,
        activity: &Activity,
        behind_ns: i64,
        waits_for: Option<(i64, TaskId)>,
    ) {
        let start_ns = activity.start_ns;
        let since = |time_ns: i64| start_ns.saturating_sub(time_ns);
        let after_launch = since(call.end_ns).max(call.start_ns.saturating_sub(call.end_ns));
        let after_stream = since(behind_ns).max(0);
        // If a call returns after its copy, only its start is known to be before the copy.
        let launched_ns =
            if call.end_ns >= activity.end_ns() { call.start_ns } else { call.end_ns };
        let came_behind = behind_ns >= launched_ns && after_stream <= MAX_GAP_NS;
        let waited = waits_for.filter(|(end_ns, _)| {
            *end_ns > behind_ns && *end_ns > call.end_ns && since(*end_ns) <= MAX_GAP_NS
        });
        if let Some((end_ns, from)) = waits_for {
            let lag = if waited.is_some() { since(end_ns).max(0) as f64 } else { 0.0 };
            self.graph.wait(from, task, lag);
        }
        let is_explained = came_behind || waited.is_some();
        let delay = if is_explained { after_launch.min(LAUNCH_DELAY_NS) } else { after_launch };
        self.graph.wait(launch, task, delay as f64);
        let between = if came_behind { after_stream as f64 } else { DEFAULT_GAP_NS };
        if let Some(task) = self.graph.task_mut(task) {
            task.after_ns = between.min(after_stream as f64);
        }
    }
}

/// Returns the number of a stream's tasks that had ended by a time. Tasks of a stream end in order.
fn ended_by(list: &[(i64, TaskId)], time_ns: i64) -> usize {
    list.partition_point(|(end_ns, _)| *end_ns <= time_ns)
}

/// Returns the task that ended last by a time, among those launched so far.
fn latest(
    launched: &BTreeMap<(i64, i64), Vec<(i64, TaskId)>>,
    until_ns: i64,
) -> Option<(i64, TaskId)> {
    launched
        .values()
        .filter_map(|list| list.get(ended_by(list, until_ns).checked_sub(1)?).copied())
        .max_by_key(|(end_ns, _)| *end_ns)
}

/// Returns the same among the tasks launched on the other streams when one was told to wait.
fn latest_of(
    launched: &BTreeMap<(i64, i64), Vec<(i64, TaskId)>>,
    reached: &[((i64, i64), usize)],
    until_ns: i64,
    but: (i64, i64),
) -> Option<(i64, TaskId)> {
    reached
        .iter()
        .filter(|(stream, _)| *stream != but)
        .filter_map(|(stream, reached)| {
            let list = launched.get(stream)?.get(..*reached)?;
            list.last().copied().filter(|(end_ns, _)| *end_ns <= until_ns)
        })
        .max_by_key(|(end_ns, _)| *end_ns)
}

fn task_kind(kind: WorkKind) -> TaskKind {
    match kind {
        WorkKind::Kernel | WorkKind::Matmul(_) => TaskKind::Kernel,
        WorkKind::Communication => TaskKind::Communication,
        WorkKind::HostCopy => TaskKind::HostCopy,
        WorkKind::DeviceCopy => TaskKind::DeviceCopy,
    }
}
