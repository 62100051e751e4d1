//! Extracts the iteration that predictions start from.

use std::collections::HashMap;

use super::correlate;
use super::device::{self, Busy};
use super::steps::Steps;
use crate::gradients;
use crate::metrics::activity::is_communication;
use ridgeline_operators::matmul_kernel::matmul_type;
use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::operator::{Arg, Operator};
use ridgeline_operators::recorded_step::{
    CountedOperator, GpuWork, HostEvent, HostEventKind, RecordedStep, WorkKind,
};
use ridgeline_profile::Profile;
use ridgeline_recording::copies::{self, Direction};
use ridgeline_recording::correlation;
use ridgeline_recording::manifest::{Manifest, Optimizer};
use ridgeline_recording::trace::{Activity, ActivityDetails, ActivityKind, Trace};
use ridgeline_recording::{Recording, StringId};

/// The maximum number of launches and waits of an iteration that are replayed individually. For
/// more, only sums are stored.
const MAX_EVENTS: usize = 200_000;
/// The maximum number of distinct operators. Further operators are not counted, and a note says so.
const MAX_OPERATORS: usize = 20_000;

/// The number of pending launches from which the driver's queue may be full for a stream. CUDA's
/// queue has room for 1,024.
pub(super) const FULL_QUEUE: usize = 512;
/// The maximum nanoseconds of a launch that waited neither for room in the queue nor for the GPU.
const MAX_LAUNCH_NS: f64 = 100_000.0;

/// The accuracy of the clocks of host and GPU, in nanoseconds.
pub(super) const CLOCK_ACCURACY_NS: i64 = 2_000;

/// Returns the iteration that predictions start from: the profiled one of median length. `profile`
/// is the result of [`super::attribute`] for the same recording.
pub fn recorded_step(recording: &Recording, profile: &Profile) -> RecordedStep {
    let trace = &recording.trace;
    let steps = Steps::new(recording);
    let manifest = recording.manifest.as_ref();
    let mut step = RecordedStep {
        device: profile.device.clone(),
        time_ns: profile.iteration.typical_ns(),
        timed_ns: profile.iteration.typical_times(),
        data_ns: profile.iteration.phases.data,
        batch_size: profile.iteration.batch_size,
        samples_per_epoch: manifest.and_then(|manifest| manifest.batch.as_ref()?.samples_per_epoch),
        joules: manifest
            .and_then(|manifest| manifest.iterations.joules)
            .filter(|joules| joules.is_finite() && *joules > 0.0),
        peak_bytes: Some(profile.memory.peak_bytes).filter(|bytes| *bytes > 0),
        ..RecordedStep::default()
    };
    let Some(window) = steps.median_window() else { return step };
    let operators = StepOperators::new(trace, window);
    step.operators = operators.counted(manifest.is_some_and(runs_for_each_parameter));
    if operators.left_out {
        step.notes.push(format!(
            "more than {MAX_OPERATORS} different operators ran; the rest are not counted"
        ));
    }
    if !trace.activities.is_empty() {
        add_gpu(&mut step, trace, window, &operators);
    }
    let is_distributed = manifest.is_some_and(|manifest| manifest.observed.distributed.is_some())
        || step.activities.iter().any(|work| work.kind == WorkKind::Communication);
    if !is_distributed {
        let gradients = gradients::accumulated(trace, window);
        step.gradient_bytes = gradients.iter().map(|gradient| gradient.bytes).sum();
    }
    step
}

/// Whether the optimizers loop over parameters because of the device: if the program does not
/// choose, PyTorch updates many parameters at once on a GPU, but each one separately on a CPU.
fn runs_for_each_parameter(manifest: &Manifest) -> bool {
    let on_cpu = manifest.device.kind.as_deref() == Some("cpu");
    let chosen =
        |optimizer: &Optimizer| optimizer.foreach.is_some() || optimizer.fused == Some(true);
    on_cpu && !manifest.optimizers.iter().any(chosen)
}

/// The operators of one window. Each known operator is counted once, and the operators within it
/// are not.
pub(super) struct StepOperators {
    /// By operator of the trace: index in `distinct` of the operator that it is or runs within.
    of_operator: Vec<Option<u32>>,
    /// By operator of the trace: whether it is counted itself.
    outermost: Vec<bool>,
    distinct: Vec<(Operator, Part, f64)>,
    left_out: bool,
}

/// The part of the iteration, as far as a GPU would run it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Optimizer,
    Rest,
}

impl StepOperators {
    pub(crate) fn new(trace: &Trace, (start_ns, end_ns): (i64, i64)) -> StepOperators {
        let parents = correlate::parents(&trace.operators);
        let mut has_children = vec![false; trace.operators.len()];
        for parent in parents.iter().flatten() {
            if let Some(entry) = has_children.get_mut(*parent as usize) {
                *entry = true;
            }
        }
        let updates = annotated(trace, "Optimizer.step");
        // A loader in the program's own process prepares data on the host, wherever the model runs.
        let loading = annotated(trace, "enumerate(DataLoader)#");
        let mut seen: HashMap<([Option<StringId>; 4], Part), Option<u32>> = HashMap::new();
        let mut operators = StepOperators {
            of_operator: Vec::with_capacity(trace.operators.len()),
            outermost: vec![false; trace.operators.len()],
            distinct: Vec::new(),
            left_out: false,
        };
        for (index, operator) in trace.operators.iter().enumerate() {
            let around = parents.get(index).copied().flatten();
            let counted = around
                .and_then(|parent| operators.of_operator.get(parent as usize).copied().flatten());
            let within = (start_ns..end_ns).contains(&operator.start_ns)
                && !is_during(&loading, operator.start_ns);
            if counted.is_some() || !within {
                operators.of_operator.push(counted);
                continue;
            }
            let in_update = is_during(&updates, operator.start_ns);
            let part = if in_update { Part::Optimizer } else { Part::Rest };
            let key = [
                Some(operator.name),
                operator.input_dims,
                operator.input_types,
                operator.concrete_inputs,
            ];
            let is_leaf = has_children.get(index) == Some(&false);
            let found = match seen.get(&(key, part)) {
                Some(found) => *found,
                None => {
                    let found = read(trace, key, is_leaf).and_then(|operator| {
                        if operators.distinct.len() >= MAX_OPERATORS {
                            operators.left_out = true;
                            return None;
                        }
                        operators.distinct.push((operator, part, 0.0));
                        u32::try_from(operators.distinct.len() - 1).ok()
                    });
                    seen.insert((key, part), found);
                    found
                }
            };
            if let Some((_, _, calls)) =
                found.and_then(|found| operators.distinct.get_mut(found as usize))
            {
                *calls += 1.0;
            }
            operators.of_operator.push(found);
            if let Some(outermost) = operators.outermost.get_mut(index) {
                *outermost = found.is_some();
            }
        }
        operators
    }

    /// Whether an operator of the trace is counted itself, rather than an operator around it.
    pub(crate) fn is_outermost(&self, operator: u32) -> bool {
        self.outermost.get(operator as usize) == Some(&true)
    }

    /// Returns the distinct operator that an operator of the trace is or runs within: index into
    /// [`operators`](StepOperators::operators).
    pub(crate) fn signature(&self, operator: u32) -> Option<u32> {
        self.of_operator.get(operator as usize).copied().flatten()
    }

    /// Returns the distinct operators.
    pub(crate) fn operators(&self) -> Vec<Operator> {
        self.distinct.iter().map(|(operator, ..)| operator.clone()).collect()
    }

    /// Returns the operators as a GPU would run them: if the optimizer updated each parameter
    /// separately because it ran on a CPU, a GPU updates many at once.
    fn counted(&self, merge_updates: bool) -> Vec<CountedOperator> {
        let is_merged = |part: Part| merge_updates && part == Part::Optimizer;
        let of_part = |merged: bool| {
            self.distinct.iter().filter(move |(_, part, _)| is_merged(*part) == merged)
        };
        let unmerged = of_part(false).map(|(operator, _, calls)| CountedOperator {
            operator: operator.clone(),
            calls: *calls,
        });
        unmerged
            .chain(merged(of_part(true).map(|(operator, _, calls)| (operator, *calls))))
            .collect()
    }
}

/// Returns the ranges of PyTorch's annotations whose names start with `name`, in order.
pub(super) fn annotated(trace: &Trace, name: &str) -> Vec<(i64, i64)> {
    let mut ranges: Vec<(i64, i64)> = trace
        .annotations
        .iter()
        .filter(|annotation| trace.text(annotation.name).starts_with(name))
        .map(|annotation| (annotation.start_ns, annotation.end_ns()))
        .collect();
    ranges.sort_unstable();
    ranges
}

/// Whether a time is within the last range that began before it. Ranges of one name do not overlap,
/// since they are on one thread.
pub(super) fn is_during(ranges: &[(i64, i64)], time_ns: i64) -> bool {
    let begun = ranges.partition_point(|(start, _)| *start <= time_ns);
    let last = begun.checked_sub(1).and_then(|index| ranges.get(index));
    last.is_some_and(|(_, end)| time_ns < *end)
}

/// Returns the operator if it does work itself: it is known, or no operators run within it.
fn read(trace: &Trace, key: [Option<StringId>; 4], is_leaf: bool) -> Option<Operator> {
    let [name, dims, types, concrete] = key;
    let name = trace.text_or_empty(name);
    if only_dispatches(name) {
        return None;
    }
    let text = |id| trace.text_or_empty(id);
    let operator = Operator::from_trace(name, text(dims), text(types), text(concrete))?;
    match op_cost::work(&operator) {
        Some(work) => (work.family != Family::View || is_leaf).then_some(operator),
        None => {
            let holds_tensors = operator.input_tensors().next().is_some();
            (is_leaf && holds_tensors && name.starts_with("aten::")).then_some(operator)
        }
    }
}

/// Whether an operator only calls others, or none if there is nothing to do: a `to` of the same
/// type, a `reshape` that is a view.
fn only_dispatches(name: &str) -> bool {
    matches!(
        name.strip_prefix("aten::"),
        Some("to" | "contiguous" | "reshape" | "type_as" | "item" | "_local_scalar_dense")
    )
}

/// Merges updates of single parameters into updates of lists: one operator with many tensors per
/// name.
fn merged<'a>(
    updates: impl Iterator<Item = (&'a Operator, f64)>,
) -> impl Iterator<Item = CountedOperator> {
    /// The maximum length of a parameter list; multi-tensor kernels take far fewer at once.
    const MAX_TENSORS: usize = 50_000;
    let mut by_name: Vec<(String, Vec<Vec<Arg>>)> = Vec::new();
    let mut others = Vec::new();
    for (operator, calls) in updates {
        let tensors: Vec<&Arg> =
            operator.inputs.iter().filter(|input| matches!(input, Arg::Tensor(_))).collect();
        let name = operator.base_name().unwrap_or_default();
        if tensors.is_empty() || name.starts_with('_') {
            others.push(CountedOperator { operator: operator.clone(), calls });
            continue;
        }
        let name = format!("aten::_foreach_{name}");
        let index = by_name
            .iter()
            .position(|(known, lists)| *known == name && lists.len() == tensors.len());
        let index = index.unwrap_or_else(|| {
            by_name.push((name, vec![Vec::new(); tensors.len()]));
            by_name.len() - 1
        });
        if let Some((_, lists)) = by_name.get_mut(index) {
            for (list, tensor) in lists.iter_mut().zip(tensors) {
                let room = MAX_TENSORS.saturating_sub(list.len());
                let copies = (calls as usize).min(room);
                list.extend(std::iter::repeat_n(tensor.clone(), copies));
            }
        }
    }
    let lists = by_name.into_iter().map(|(name, lists)| {
        let inputs: Vec<Arg> = lists.into_iter().map(Arg::List).collect();
        let outputs = inputs.first().map(|list| list.tensors().cloned().collect());
        CountedOperator {
            operator: Operator::new(&name, inputs, outputs.unwrap_or_default()),
            calls: 1.0,
        }
    });
    lists.chain(others)
}

fn add_gpu(step: &mut RecordedStep, trace: &Trace, window: (i64, i64), operators: &StepOperators) {
    let calls = correlation::runtime_call_of_activities(trace);
    let operator_of_call = correlation::operator_of_runtime_calls(trace);
    let span = trace
        .activities
        .iter()
        .map(|activity| (activity.start_ns, activity.end_ns()))
        .reduce(|(start, end), (a_start, a_end)| (start.min(a_start), end.max(a_end)));
    let busy = Busy::new(trace, span.as_slice());
    // Work launched within the window belongs to it, whenever it ran.
    let mut launched: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, call) in calls.iter().enumerate() {
        if let Some(call) = call {
            launched.entry(*call).or_default().push(index);
        }
    }
    let mut events: Vec<(i64, i64, usize)> = trace
        .runtime_calls
        .iter()
        .enumerate()
        .filter(|(index, call)| {
            (window.0..window.1).contains(&call.start_ns)
                && (launched.contains_key(index) || waits(trace.text(call.name)))
        })
        .map(|(index, call)| (call.start_ns, call.end_ns(), index))
        .collect();
    events.sort_unstable();
    let is_replayable = events.len() <= MAX_EVENTS;
    let queue = LaunchQueue::new(trace, &calls);
    let mut kinds = WorkKinds::default();
    let mut now = window.0;
    for (start_ns, end_ns, index) in events {
        let mut event = HostEvent {
            before_ns: start_ns.saturating_sub(now).max(0) as f64,
            call_ns: end_ns.saturating_sub(start_ns.max(now)).max(0) as f64,
            kind: HostEventKind::Wait,
        };
        now = now.max(end_ns);
        let work = launched.get(&index).into_iter().flatten();
        let mut work = work.filter_map(|activity| trace.activities.get(*activity));
        // A copy that ended within its call made the host wait for the GPU.
        let has_copied = event.call_ns > MAX_LAUNCH_NS
            && work.any(|work| {
                work.kind == ActivityKind::Memcpy
                    && work.end_ns() <= end_ns.saturating_add(CLOCK_ACCURACY_NS)
            });
        if has_copied || launched.contains_key(&index) && queue.is_full(start_ns) {
            // The rest is waiting, which a replay computes itself.
            event.call_ns = event.call_ns.min(MAX_LAUNCH_NS);
        }
        let operator = operator_of_call.get(index).copied().flatten();
        let operator =
            operator.and_then(|operator| operators.of_operator.get(operator).copied().flatten());
        for activity in launched.get(&index).into_iter().flatten() {
            let Some(work) = trace.activities.get(*activity) else { continue };
            let part_ns = busy.parts.get(*activity).copied().unwrap_or(0.0);
            event.kind = HostEventKind::Launch(step.activities.len() as u32);
            let kind = kinds.of(trace, work);
            step.activities.push(gpu_work(kind, work, trace.details(work), part_ns, operator));
            if is_replayable {
                step.host.push(event);
            }
            // A call that starts several activities, like a graph launch, counts its time once.
            (event.before_ns, event.call_ns) = (0.0, 0.0);
        }
        let call = trace.runtime_calls.get(index);
        let has_waited = has_copied || call.is_some_and(|call| waits(trace.text(call.name)));
        if is_replayable && has_waited {
            step.host.push(HostEvent { kind: HostEventKind::Wait, ..event });
        }
    }
    step.host_after_ns = window.1.saturating_sub(now).max(0) as f64;
    if !is_replayable {
        step.notes.push(format!(
            "more than {MAX_EVENTS} launches in one iteration: GPU idle time is assumed to stay \
            the same"
        ));
    }
    if step.activities.is_empty() {
        step.notes.push("no kernel of the iteration could be matched to its launch".to_owned());
    }
    step.device = device_of(step, trace);
}

/// The driver's queue of launched activities.
struct LaunchQueue {
    /// The times of launches, in order. Those before the recording count as the earliest.
    launched_ns: Vec<i64>,
    /// The ends of activities, in order.
    ended_ns: Vec<i64>,
}

impl LaunchQueue {
    fn new(trace: &Trace, calls: &[Option<usize>]) -> LaunchQueue {
        let call = |call: &Option<usize>| trace.runtime_calls.get((*call)?);
        let mut launched_ns: Vec<i64> =
            calls.iter().map(|it| call(it).map_or(i64::MIN, |call| call.start_ns)).collect();
        let mut ended_ns: Vec<i64> = trace.activities.iter().map(Activity::end_ns).collect();
        launched_ns.sort_unstable();
        ended_ns.sort_unstable();
        LaunchQueue { launched_ns, ended_ns }
    }

    /// Whether the queue may be full at a time.
    fn is_full(&self, time_ns: i64) -> bool {
        let until = |times: &[i64]| times.partition_point(|time| *time <= time_ns);
        until(&self.launched_ns).saturating_sub(until(&self.ended_ns)) >= FULL_QUEUE
    }
}

/// Returns the profile's device, or if that is unknown, the device of the trace, which may know its
/// properties.
fn device_of(step: &RecordedStep, trace: &Trace) -> ridgeline_profile::Device {
    if step.device.name == "unknown" {
        device::facts(None, trace, None)
    } else {
        step.device.clone()
    }
}

/// Whether a runtime call returns only after the GPU has finished the requested work.
pub(super) fn waits(name: &str) -> bool {
    let call = name.strip_prefix("cuda").or_else(|| name.strip_prefix("hip")).unwrap_or_default();
    // Newer traces have a version suffix: `cudaStreamSynchronize_v3020`.
    let call = call.split('_').next().unwrap_or_default();
    // PyTorch calls `hipMemcpyWithStream` for what are two calls of CUDA, a copy and a wait
    // (`c10/cuda/CUDAFunctions.h`, `memcpy_and_sync`).
    matches!(
        call,
        "DeviceSynchronize"
            | "StreamSynchronize"
            | "EventSynchronize"
            | "Memcpy"
            | "MemcpyWithStream"
    )
}

fn gpu_work(
    kind: WorkKind,
    work: &Activity,
    details: ActivityDetails,
    part_ns: f64,
    operator: Option<u32>,
) -> GpuWork {
    GpuWork {
        kind,
        part_ns,
        time_ns: work.duration_ns as f64,
        launch: details.launch,
        bytes: details.bytes,
        operator,
    }
}

/// Caches the kind of work by name, because template names are long.
#[derive(Default)]
pub(super) struct WorkKinds(HashMap<(StringId, ActivityKind), WorkKind>);

impl WorkKinds {
    /// Returns the kind of an activity.
    pub(crate) fn of(&mut self, trace: &Trace, work: &Activity) -> WorkKind {
        let known = self.0.entry((work.name, work.kind));
        *known.or_insert_with(|| kind_of_work(trace.text(work.name), work.kind))
    }
}

fn kind_of_work(name: &str, kind: ActivityKind) -> WorkKind {
    match kind {
        ActivityKind::Kernel if is_communication(name) => WorkKind::Communication,
        ActivityKind::Kernel => matmul_type(name).map_or(WorkKind::Kernel, WorkKind::Matmul),
        ActivityKind::Memset => WorkKind::DeviceCopy,
        ActivityKind::Memcpy => match copies::direction(name) {
            Some(Direction::OnDevices) => WorkKind::DeviceCopy,
            _ => WorkKind::HostCopy,
        },
    }
}

#[cfg(test)]
mod tests;
