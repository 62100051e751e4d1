//! Predicts an iteration on a device that it did not run on.
//!
//! From a GPU recording: each kernel by [`wave_scaling`]. Libraries choose different kernels for
//! some operators on different GPUs (GEMMs, convolutions, attention, recurrent layers); those scale
//! by the ratio of the [`op_cost`] estimates of both GPUs, so that errors common to both cancel.
//! Copies to and from the host and communication between GPUs stay unchanged. Host time stays
//! unchanged ([`replay`]).
//!
//! From anything else (a CPU recording, an estimated operator list, an unknown GPU): by operator
//! costs only.

use super::replay::Replay;
use super::wave_scaling::{self, Kernel};
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::matmul_kernel::MatmulType;
use ridgeline_operators::op_cost::{self, Family, Options};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::range::Range;
use ridgeline_operators::recorded_step::{CountedOperator, GpuWork, RecordedStep, WorkKind};

/// An iteration, in the most informative form available.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// It ran on a known GPU.
    Measured {
        /// The recorded step.
        step: &'a RecordedStep,
        /// The GPU.
        from: &'a DeviceSpec,
    },
    /// Only its operators are known.
    Operators(OperatorStep),
}

/// An iteration of which only the operators are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperatorStep {
    /// The distinct operators.
    pub operators: Vec<CountedOperator>,
    /// Time that the host waits for data, in nanoseconds per iteration.
    pub data_ns: f64,
    /// Host time for each operator in addition to its computation, in nanoseconds, if recorded on
    /// this machine's CPU.
    pub host_ns_per_operator: Option<f64>,
}

/// The predicted iteration on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Iteration time in nanoseconds.
    pub time_ns: Range,
    /// GPU busy time in nanoseconds.
    pub busy_ns: Range,
    /// Iteration time on an infinitely fast GPU, in nanoseconds.
    pub host_ns: Range,
    /// Whether the GPU waits for the host rather than the host for the GPU, if known.
    pub waits_for_host: bool,
    /// The number of kernel launches, if host time is based on it.
    pub launches: f64,
    /// The share of GPU time, 0 to 1, in unknown operators, whose cost is based on their bytes. 0
    /// if every kernel was measured.
    pub unknown_share: f64,
}

/// A ratio of two modelled times has a smaller error than either, because errors common to both
/// cancel. The error factor of a ratio is that of the model to this power.
const RATIO_POWER: f64 = 0.7;
/// The error factor of a GEMM without shapes, which may be compute- or bandwidth-bound.
const PRODUCT_SPREAD: f64 = 1.6;
/// The factor by which the host of another machine may be faster or slower.
const HOST_SPREAD: f64 = 1.15;

/// The same if the host was recorded running the operators on its CPU: GPU operators take another
/// path through the dispatcher, and the single-thread speed of CPUs in GPU machines varies by as
/// much.
const RECORDED_HOST_SPREAD: f64 = 1.6;
/// The host time that a launch adds to an operator recorded on a CPU, in nanoseconds:
/// `cudaLaunchKernel` takes 3 to 7 µs in the sample traces.
pub const LAUNCH_NS: f64 = 5_000.0;

/// Host time for each launch of an eager program, in nanoseconds: Python, the dispatcher, autograd
/// and the launch itself. This is not fitted: inference of few large modules is at the lower end,
/// training through many small ones at the upper.
pub const HOST_NS_PER_LAUNCH: Range = Range { low: 7_000.0, value: 15_000.0, high: 35_000.0 };

impl Step<'_> {
    /// Predicts the iteration on a device.
    pub fn on(&self, to: &DeviceSpec) -> Prediction {
        match self {
            Step::Measured { step, from } => scaled(step, from, to),
            Step::Operators(operators) => operators.on(to),
        }
    }
}

impl From<&RecordedStep> for OperatorStep {
    fn from(step: &RecordedStep) -> OperatorStep {
        OperatorStep {
            operators: step.operators.clone(),
            data_ns: step.data_ns,
            host_ns_per_operator: None,
        }
    }
}

impl From<&OpList> for OperatorStep {
    fn from(list: &OpList) -> OperatorStep {
        let mut calls = vec![0.0; list.signatures.len()];
        for op in &list.ops {
            if let Some(calls) = calls.get_mut(op.signature as usize) {
                *calls += 1.0;
            }
        }
        let operators = list.signatures.iter().zip(calls);
        OperatorStep {
            operators: operators
                .map(|(operator, calls)| CountedOperator { operator: operator.clone(), calls })
                .collect(),
            data_ns: 0.0,
            host_ns_per_operator: None,
        }
    }
}

impl OperatorStep {
    /// Returns the number of operators per iteration.
    pub fn calls(&self) -> f64 {
        self.operators.iter().map(|counted| counted.calls).sum()
    }

    /// Returns the host time of an iteration with this many launches, in nanoseconds. Each launch
    /// takes at least `launch_ns`.
    fn host_ns(&self, launches: f64, launch_ns: f64) -> Range {
        let work = match self.host_ns_per_operator {
            Some(per_operator) => {
                let launching_ns = launches * launch_ns.max(LAUNCH_NS);
                Range::within_factor(
                    self.calls() * per_operator + launching_ns,
                    RECORDED_HOST_SPREAD,
                )
            }
            None => {
                let total = |per_launch: f64| launches * per_launch.max(launch_ns);
                let Range { low, value, high } = HOST_NS_PER_LAUNCH;
                Range { low: total(low), value: total(value), high: total(high) }
            }
        };
        work.plus(Range::exact(self.data_ns))
    }

    /// Predicts the iteration on a device by operator costs.
    pub fn on(&self, to: &DeviceSpec) -> Prediction {
        let mut device = Range::default();
        let mut launches = 0.0;
        let mut unknown_ns = 0.0;
        for CountedOperator { operator, calls } in &self.operators {
            let cost = op_cost::cost(operator, to, &Options::default());
            device = device.plus(cost.time_ns.times(*calls));
            launches += cost.launches * calls;
            if !cost.known {
                unknown_ns += cost.time_ns.value * calls;
            }
        }
        // A launch takes at least as long as that of an empty kernel.
        let launch_ns = to.ceilings.and_then(|ceilings| ceilings.launch_ns).unwrap_or(0.0);
        let host = self.host_ns(launches, launch_ns);
        // The host runs ahead of the GPU, so the slower of the two determines the iteration time.
        let time_ns = Range {
            low: device.low.max(host.low),
            value: device.value.max(host.value),
            high: device.high.max(host.high),
        };
        let unknown_share = if device.value > 0.0 { unknown_ns / device.value } else { 0.0 };
        let waits_for_host = host.value > device.value;
        Prediction {
            time_ns,
            busy_ns: device,
            host_ns: host,
            waits_for_host,
            launches,
            unknown_share,
        }
    }
}

fn scaled(step: &RecordedStep, from: &DeviceSpec, to: &DeviceSpec) -> Prediction {
    let replay = Replay::calibrated(step);
    let host_ns = Range::within_factor(replay.time_ns(&[]), HOST_SPREAD);
    if from == to {
        let timed = &step.timed_ns;
        let low = timed.iter().copied().fold(step.time_ns, f64::min);
        let high = timed.iter().copied().fold(step.time_ns, f64::max);
        let time_ns = Range { low, value: step.time_ns, high };
        let busy_ns = Range::exact(step.busy_ns());
        return Prediction { time_ns, busy_ns, host_ns, ..Prediction::default() };
    }
    let models: Vec<Model> =
        step.operators.iter().map(|counted| Model::new(counted, from, to)).collect();
    let mut durations = [Vec::with_capacity(step.activities.len()), Vec::new(), Vec::new()];
    for work in &step.activities {
        let model = work.operator.and_then(|operator| models.get(operator as usize));
        let range = scaled_work(work, model, from, to);
        for (durations, value) in durations.iter_mut().zip([range.value, range.low, range.high]) {
            durations.push(value);
        }
    }
    let [value, low, high] = durations;
    let time_ns = Range {
        low: replay.with_host(1.0 / HOST_SPREAD).time_ns(&low),
        value: replay.time_ns(&value),
        high: replay.with_host(HOST_SPREAD).time_ns(&high),
    };
    let total = |durations: &[f64]| durations.iter().sum::<f64>();
    let busy_ns = Range { low: total(&low), value: total(&value), high: total(&high) };
    Prediction { time_ns, busy_ns, host_ns, ..Prediction::default() }
}

/// How the kernels of one operator scale.
#[derive(Clone, Copy, Debug, Default)]
struct Model {
    /// For operators whose kernels differ between GPUs: the ratio of times, and its error factor.
    ratio: Option<(f64, f64)>,
    /// The error factor of wave scaling.
    wave_spread: f64,
    flops: Option<f64>,
    bytes: Option<f64>,
}

impl Model {
    fn new(counted: &CountedOperator, from: &DeviceSpec, to: &DeviceSpec) -> Model {
        let Some(work) = op_cost::work(&counted.operator) else { return Model::default() };
        let differs = matches!(
            work.family,
            Family::Gemm | Family::Convolution | Family::Attention | Family::Rnn
        );
        let ratio = differs.then(|| {
            let options = Options::default();
            let here = op_cost::cost(&counted.operator, from, &options).time_ns;
            let there = op_cost::cost(&counted.operator, to, &options).time_ns;
            let spread = (there.high / there.value).powf(RATIO_POWER).max(1.0);
            (there.value / here.value, spread)
        });
        let is_usable =
            |(ratio, spread): &(f64, f64)| ratio.is_finite() && *ratio > 0.0 && spread.is_finite();
        let by_rows = matches!(work.family, Family::Softmax | Family::Norm | Family::Reduction);
        let wave_spread = if by_rows { wave_scaling::ROW_SPREAD } else { wave_scaling::SPREAD };
        let (flops, bytes) = (Some(work.flops), work.bytes);
        Model { ratio: ratio.filter(is_usable), wave_spread, flops, bytes }
    }
}

fn scaled_work(work: &GpuWork, model: Option<&Model>, from: &DeviceSpec, to: &DeviceSpec) -> Range {
    if matches!(work.kind, WorkKind::Communication | WorkKind::HostCopy) || work.time_ns <= 0.0 {
        return Range::exact(work.part_ns);
    }
    // A kernel that ran concurrently with others scales as a whole but counts only with its share.
    let share = work.part_ns / work.time_ns;
    let floor = wave_scaling::FLOOR_NS.min(work.time_ns);
    let ratio = model.and_then(|model| model.ratio);
    match (work.kind, ratio) {
        (WorkKind::Kernel | WorkKind::Matmul(_), Some((ratio, spread))) => {
            Range::within_factor((work.time_ns * ratio).max(floor) * share, spread)
        }
        (WorkKind::Matmul(matmul), None) => {
            let ratio = gemm_ratio(matmul, from, to);
            Range::within_factor((work.time_ns * ratio).max(floor) * share, PRODUCT_SPREAD)
        }
        _ => {
            let kernel = Kernel {
                launch: work.launch,
                time_ns: work.time_ns,
                flops: model.and_then(|model| model.flops),
                bytes: work.bytes.map(|bytes| bytes as f64).or(model.and_then(|model| model.bytes)),
            };
            let scaled = wave_scaling::scaled_ns(&kernel, from, to) * share;
            let spread = model.map(|model| model.wave_spread).filter(|spread| *spread > 1.0);
            Range::within_factor(scaled, spread.unwrap_or(wave_scaling::ROW_SPREAD))
        }
    }
}

/// The ratio for a GEMM without shapes: as if at the ridge point, where compute and bandwidth count
/// equally.
fn gemm_ratio(matmul: MatmulType, from: &DeviceSpec, to: &DeviceSpec) -> f64 {
    let bandwidth = from.bandwidth_over(to);
    let rate = match (matmul.peak(&from.peaks), matmul.peak(&to.peaks)) {
        (Some(from), Some(to)) => from / to,
        _ => bandwidth,
    };
    (bandwidth * rate).sqrt()
}
