//! GPUs: kernels and copies on their streams, and what each waits for.

use std::collections::{BTreeMap, HashMap};

use super::{Builder, Call, CallKind};
use crate::contexts::Contexts;
use crate::recorded_step::WorkKinds;
use ridgeline_graph::graph::{Resource, Task, TaskId, TaskKind};
use ridgeline_operators::recorded_step::WorkKind;
use ridgeline_profile::Phase;
use ridgeline_recording::trace::{Activity, Trace};

/// From the end of a launch to the start of its kernel on an idle GPU, at most, in nanoseconds. Beyond
/// it the kernel waited for something else. The sample traces have 1 to 4 µs.
const LAUNCH_DELAY_NS: i64 = 5_000;
/// A kernel that starts so soon after the one before on its stream came right behind it.
const BEHIND_NS: i64 = 10_000;
/// From one kernel of a stream to the next where the recording does not tell: 1 µs.
const BETWEEN_NS: f64 = 1_000.0;
/// Clocks of host and GPU agree to this.
const CLOCKS_NS: i64 = 2_000;
/// A launch that took longer waited for room in the driver's queue, if that was full.
const LONGEST_LAUNCH_NS: i64 = 100_000;
/// CUDA's queue holds 1,024 launches; with half of that under way it may be full for a stream.
const FULL_QUEUE: usize = 512;

/// Device and stream of an activity.
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
        // The tasks, each in its place on its stream.
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

    /// What waits for what, in the order of the host's calls.
    fn dependencies(
        &mut self,
        by_call: &HashMap<usize, Vec<usize>>,
        by_stream: &BTreeMap<(i64, i64), Vec<usize>>,
        left_over: &BTreeMap<(i64, i64), i64>,
        tasks: &[Option<TaskId>],
    ) {
        let trace = self.join.trace;
        // By activity: when what ran before on its stream ended.
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
        // By stream: what was launched so far, as when it ended and its task.
        let mut launched: BTreeMap<(i64, i64), Vec<(i64, TaskId)>> = BTreeMap::new();
        let mut count = 0_usize;
        // The streams and how far each had come when another one was told to wait.
        let mut told_to_wait: Option<Vec<((i64, i64), usize)>> = None;
        for call in self.order.clone() {
            match call.what {
                CallKind::StreamWait => {
                    let reached = launched.iter().map(|(stream, list)| (*stream, list.len()));
                    told_to_wait = Some(reached.collect());
                }
                CallKind::Wait => {
                    if let Some((task, _)) = self.task_of(call.index) {
                        let until = call.end_ns.saturating_add(CLOCKS_NS);
                        self.let_host_wait(task, call, latest(&launched, until));
                    }
                }
                CallKind::Launch => {
                    let Some((launch, _)) = self.task_of(call.index) else {
                        continue;
                    };
                    let done = launched.values().map(|list| ended_by(list, call.start_ns)).sum();
                    let is_full = count.saturating_sub(done) >= FULL_QUEUE;
                    if is_full && call.end_ns.saturating_sub(call.start_ns) > LONGEST_LAUNCH_NS {
                        let dependency = latest(&launched, call.end_ns);
                        self.let_host_wait(launch, call, dependency);
                    }
                    for index in by_call.get(&call.index).into_iter().flatten() {
                        let (Some(activity), Some(task)) =
                            (trace.activities.get(*index), tasks.get(*index).copied().flatten())
                        else {
                            continue;
                        };
                        let stream = stream_of(trace, activity);
                        let waits_for = told_to_wait.take().and_then(|reached| {
                            let until = activity.start_ns.saturating_add(CLOCKS_NS);
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

    /// Lets a task of the host wait for one of a GPU; what it takes after that is its own.
    fn let_host_wait(&mut self, task: TaskId, call: Call, dependency: Option<(i64, TaskId)>) {
        let Some((end_ns, from)) = dependency else { return };
        let own_ns = call.end_ns.saturating_sub(call.start_ns.max(end_ns)).max(0) as f64;
        if let Some(task) = self.graph.task_mut(task) {
            task.duration_ns = task.duration_ns.min(own_ns);
        }
        self.graph.wait(from, task, 0.0);
    }

    /// A copy that the host waits for within the very call that asks for it.
    fn block_host(&mut self, launch: TaskId, call: Call, task: TaskId, activity: &Activity) {
        let is_copy = self.graph.task(task).is_some_and(|task| task.kind == TaskKind::HostCopy);
        if !is_copy || activity.end_ns() > call.end_ns.saturating_add(CLOCKS_NS) {
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
        // The kernel's own delay was counted to the end of the call, which is now elsewhere.
        let started = activity.start_ns.saturating_sub(call.start_ns) as f64;
        self.graph.set_last_lag(task, (started - asking_ns).clamp(0.0, LAUNCH_DELAY_NS as f64));
    }

    /// Lets a task of a GPU wait for its launch, for the one before on its stream and for another
    /// stream.
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
        // A call that returns after its copy tells no more than when it began.
        let asked_at = if call.end_ns >= activity.end_ns() { call.start_ns } else { call.end_ns };
        let came_behind = behind_ns >= asked_at && after_stream <= BEHIND_NS;
        let waited = waits_for.filter(|(end_ns, _)| {
            *end_ns > behind_ns && *end_ns > call.end_ns && since(*end_ns) <= BEHIND_NS
        });
        if let Some((end_ns, from)) = waits_for {
            let lag = if waited.is_some() { since(end_ns).max(0) as f64 } else { 0.0 };
            self.graph.wait(from, task, lag);
        }
        let is_explained = came_behind || waited.is_some();
        let delay = if is_explained { after_launch.min(LAUNCH_DELAY_NS) } else { after_launch };
        self.graph.wait(launch, task, delay as f64);
        let between = if came_behind { after_stream as f64 } else { BETWEEN_NS };
        if let Some(task) = self.graph.task_mut(task) {
            task.after_ns = between.min(after_stream as f64);
        }
    }
}

/// How many of a stream's tasks had ended by then. Those of a stream end in order.
fn ended_by(list: &[(i64, TaskId)], time_ns: i64) -> usize {
    list.partition_point(|(end_ns, _)| *end_ns <= time_ns)
}

/// Of what was launched so far, what ended last by then.
fn latest(
    launched: &BTreeMap<(i64, i64), Vec<(i64, TaskId)>>,
    until_ns: i64,
) -> Option<(i64, TaskId)> {
    launched
        .values()
        .filter_map(|list| list.get(ended_by(list, until_ns).checked_sub(1)?).copied())
        .max_by_key(|(end_ns, _)| *end_ns)
}

/// The same among what the other streams had been given when one was told to wait.
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
        WorkKind::Kernel | WorkKind::Product(_) => TaskKind::Kernel,
        WorkKind::Communication => TaskKind::Communication,
        WorkKind::HostCopy => TaskKind::HostCopy,
        WorkKind::DeviceCopy => TaskKind::DeviceCopy,
    }
}
