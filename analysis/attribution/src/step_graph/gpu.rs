//! GPUs: kernels and copies on their streams, and their dependencies.

use std::collections::{BTreeMap, HashMap};

use super::{Builder, Call, CallKind};
use crate::contexts::Contexts;
use crate::recorded_step::{CLOCK_ACCURACY_NS, FULL_QUEUE, WorkKinds};
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
/// The maximum nanoseconds of a launch that did not wait for room in the driver's queue.
const MAX_LAUNCH_NS: i64 = 100_000;

/// The smallest share of the iteration for which earlier work is added to the graph. Less is within
/// the variation from one iteration to the next.
const MIN_EARLIER_SHARE: f64 = 0.01;

/// The activities of the iteration by stream.
type ByStream = BTreeMap<(i64, i64), Vec<usize>>;
/// Start and end of the activities launched before the iteration by stream, in order.
type LeftOver = BTreeMap<(i64, i64), Vec<(i64, i64)>>;

/// Returns the device and stream of an activity.
fn stream_of(trace: &Trace, activity: &Activity) -> (i64, i64) {
    let details = trace.details(activity);
    (details.device.unwrap_or(0), details.stream.unwrap_or(0))
}

impl Builder<'_> {
    pub(super) fn gpu(&mut self, contexts: &Contexts<'_>) {
        let trace = self.join.trace;
        let mut by_call: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut by_stream: ByStream = BTreeMap::new();
        let mut left_over: LeftOver = BTreeMap::new();
        for (index, activity) in trace.activities.iter().enumerate() {
            let stream = stream_of(trace, activity);
            match self.launches.call(index).filter(|call| self.task_of(*call).is_some()) {
                Some(call) => {
                    by_call.entry(call).or_default().push(index);
                    by_stream.entry(stream).or_default().push(index);
                }
                None if self.was_launched_before(index, activity) => {
                    let interval = (activity.start_ns, activity.end_ns());
                    left_over.entry(stream).or_default().push(interval);
                }
                None => {}
            }
        }
        left_over.values_mut().for_each(|intervals| intervals.sort_unstable());
        self.earlier = self.earlier_work(&by_stream, &left_over);
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
        let before = self.ends_before(&by_stream, &left_over);
        self.busy_until_ns = vec![0.0; self.graph.resources().len()];
        for ((device, stream), members) in &by_stream {
            let resource = self.graph.find(&Resource::Stream(*device, *stream));
            let slot = resource.and_then(|it| self.busy_until_ns.get_mut(it.0 as usize));
            let first = members.first().and_then(|first| before.get(*first));
            if let (Some(slot), Some(end_ns)) = (slot, first) {
                *slot = end_ns.saturating_sub(self.window.0).max(0) as f64;
            }
        }
        let pending = self.pending(&left_over);
        self.dependencies(&by_call, &before, &pending, &tasks);
    }

    /// Whether an activity was launched before the iteration: its call is earlier, or was not
    /// recorded.
    fn was_launched_before(&self, index: usize, activity: &Activity) -> bool {
        let call = self.launches.call(index);
        match call.and_then(|call| self.join.trace.runtime_calls.get(call)) {
            Some(call) => call.start_ns < self.window.0,
            None => activity.start_ns < self.window.1,
        }
    }

    /// Returns by stream the nanoseconds of work during the iteration that was launched before it,
    /// in excess of the iteration's own work that ran after its end.
    fn earlier_work(&self, by_stream: &ByStream, left_over: &LeftOver) -> Vec<(Resource, f64)> {
        let (from, to) = self.window;
        let trace = self.join.trace;
        let mut earlier = Vec::new();
        for (stream, intervals) in left_over {
            let within = intervals.iter().map(|(start, end)| {
                (*end).min(to).saturating_sub((*start).max(from)).max(0) as f64
            });
            let own = by_stream.get(stream).into_iter().flatten();
            let own = own.filter_map(|index| trace.activities.get(*index));
            let after = own
                .map(|activity| activity.end_ns().saturating_sub(activity.start_ns.max(to)).max(0));
            let excess_ns = within.sum::<f64>() - after.map(|ns| ns as f64).sum::<f64>();
            if excess_ns > MIN_EARLIER_SHARE * to.saturating_sub(from) as f64 {
                earlier.push((Resource::Stream(stream.0, stream.1), excess_ns));
            }
        }
        earlier
    }

    /// Returns by activity the end of the previous activity on its stream.
    fn ends_before(&self, by_stream: &ByStream, left_over: &LeftOver) -> Vec<i64> {
        let trace = self.join.trace;
        let mut before: Vec<i64> = vec![i64::MIN; trace.activities.len()];
        for (stream, members) in by_stream {
            let mut earlier = left_over.get(stream).into_iter().flatten().peekable();
            let mut end_ns = i64::MIN;
            for index in members {
                let Some(activity) = trace.activities.get(*index) else { continue };
                while let Some((_, end)) = earlier.next_if(|(start, _)| *start <= activity.start_ns)
                {
                    end_ns = end_ns.max(*end);
                }
                if let Some(entry) = before.get_mut(*index) {
                    *entry = end_ns;
                }
                end_ns = end_ns.max(activity.end_ns());
            }
        }
        before
    }

    /// Returns the ends of the activities that were in the driver's queue when the iteration began,
    /// in order.
    fn pending(&self, left_over: &LeftOver) -> Vec<i64> {
        let ends = left_over.values().flatten().map(|(_, end)| *end);
        let mut pending: Vec<i64> = ends.filter(|end| *end > self.window.0).collect();
        pending.sort_unstable();
        pending
    }

    /// Adds the dependencies, in the order of the host's calls. `before` and `pending` are the
    /// results of [`Builder::ends_before`] and [`Builder::pending`].
    fn dependencies(
        &mut self,
        by_call: &HashMap<usize, Vec<usize>>,
        before: &[i64],
        pending: &[i64],
        tasks: &[Option<TaskId>],
    ) {
        let trace = self.join.trace;
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
                    let done: usize =
                        launched.values().map(|list| ended_by(list, call.start_ns)).sum();
                    let done_before = pending.partition_point(|end_ns| *end_ns <= call.start_ns);
                    let queued = (count + pending.len()).saturating_sub(done + done_before);
                    let is_long = call.end_ns.saturating_sub(call.start_ns) > MAX_LAUNCH_NS;
                    if queued >= FULL_QUEUE && is_long {
                        let dependency = latest(&launched, call.end_ns);
                        self.shorten_wait(launch, call, ended_before(pending, call.end_ns));
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
        self.shorten_wait(task, call, Some(end_ns));
        self.graph.wait(from, task, 0.0);
    }

    /// Limits a host task's duration to the part after the end of a wait.
    fn shorten_wait(&mut self, task: TaskId, call: Call, end_ns: Option<i64>) {
        let Some(end_ns) = end_ns else { return };
        let own_ns = call.end_ns.saturating_sub(call.start_ns.max(end_ns)).max(0) as f64;
        if let Some(task) = self.graph.task_mut(task) {
            task.duration_ns = task.duration_ns.min(own_ns);
        }
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

/// Returns the latest of some ends, in order, by a time.
fn ended_before(ends: &[i64], time_ns: i64) -> Option<i64> {
    ends.get(ends.partition_point(|end_ns| *end_ns <= time_ns).checked_sub(1)?).copied()
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
