//! What an iteration takes on a device that it did not run on.
//!
//! From a GPU's recording: each kernel by [`wave_scaling`]; kernels of operators for which libraries
//! choose other kernels on other GPUs (products, convolutions, attention, recurrent layers) by the
//! ratio of what [`op_cost`] says of both, so that what it gets wrong on both alike cancels; copies
//! from and to the host and talk between GPUs as they are. The host's time is kept ([`replay`]).
//!
//! From anything else (a recording on a CPU, an estimate's list, a GPU that is not known): the
//! operators' costs alone.

use super::replay::Replay;
use super::wave_scaling::{self, Kernel};
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::op_cost::{self, Family, Options};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::product_kernel::ProductType;
use ridgeline_operators::range::Range;
use ridgeline_operators::recorded_step::{CountedOperator, GpuWork, RecordedStep, WorkKind};

/// An iteration, in the form that says most about it.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// A GPU ran it that is known.
    Measured {
        /// As it ran.
        step: &'a RecordedStep,
        /// The GPU.
        from: &'a DeviceSpec,
    },
    /// Its operators alone are known.
    Operators(OperatorStep),
}

/// An iteration of which the operators alone are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperatorStep {
    /// The different operators.
    pub operators: Vec<CountedOperator>,
    /// Nanoseconds of an iteration that the host spends on waiting for data.
    pub data_ns: f64,
    /// Nanoseconds of the host for each operator beside its computation, where that was recorded on
    /// this machine's CPU.
    pub host_ns_per_operator: Option<f64>,
}

/// What an iteration takes on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Nanoseconds of one iteration.
    pub time_ns: Range,
    /// Nanoseconds of it at which the GPU is busy.
    pub busy_ns: f64,
    /// Whether the GPU waits for the host rather than the host for the GPU, as far as it is known.
    pub waits_for_host: bool,
    /// Kernels that the host launches, where its time is assumed by their number.
    pub launches: f64,
    /// The share, 0 to 1, of the GPU's time that operators take which are not known, and so are
    /// costed by their bytes. 0 where every kernel was measured.
    pub unknown_share: f64,
}

/// A ratio of two modelled times errs less than either, since it errs alike on both: of the
/// model's own spread this power is left.
const RATIO_POWER: f64 = 0.7;
/// A product without shapes is bound by arithmetic or by memory, and nothing says by which.
const PRODUCT_SPREAD: f64 = 1.6;
/// What another machine's host may be faster or slower.
const HOST_SPREAD: f64 = 1.15;

/// The same where the host was recorded running the operators on its own CPU: a GPU's operators take
/// another path through the dispatcher, and single-thread speeds of the CPUs in GPU machines differ by
/// as much.
const RECORDED_HOST_SPREAD: f64 = 1.6;
/// What a launch adds to an operator that only ran on a CPU, in nanoseconds: `cudaLaunchKernel` takes 3
/// to 7 µs in the sample traces.
pub const LAUNCH_NS: f64 = 5_000.0;

/// What the host takes for each launch of an eager program, in nanoseconds: Python, the dispatcher,
/// autograd and the launch itself. Nothing was fitted here: inference of few, large modules is at the
/// lower end, training through many small ones at the upper.
pub const HOST_NS_PER_LAUNCH: Range = Range { low: 7_000.0, value: 15_000.0, high: 35_000.0 };

impl Step<'_> {
    /// What the iteration takes on a device.
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
    /// Operators of an iteration.
    pub fn calls(&self) -> f64 {
        self.operators.iter().map(|counted| counted.calls).sum()
    }

    /// Nanoseconds of the host for an iteration with so many launches, each of which takes it
    /// `launch_ns` at the least.
    fn host_ns(&self, launches: f64, launch_ns: f64) -> Range {
        let work = match self.host_ns_per_operator {
            Some(per_operator) => {
                let launching = launches * launch_ns.max(LAUNCH_NS);
                Range::within_factor(self.calls() * per_operator + launching, RECORDED_HOST_SPREAD)
            }
            None => {
                let of = |per_launch: f64| launches * per_launch.max(launch_ns);
                let Range { low, value, high } = HOST_NS_PER_LAUNCH;
                Range { low: of(low), value: of(value), high: of(high) }
            }
        };
        work.plus(Range::exact(self.data_ns))
    }

    fn on(&self, to: &DeviceSpec) -> Prediction {
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
        // A launch itself takes the host no less than an empty kernel's.
        let launch_ns = to.ceilings.and_then(|ceilings| ceilings.launch_ns).unwrap_or(0.0);
        let host = self.host_ns(launches, launch_ns);
        // The host runs ahead of the GPU, so the slower of the two is what an iteration takes.
        let time_ns = Range {
            low: device.low.max(host.low),
            value: device.value.max(host.value),
            high: device.high.max(host.high),
        };
        let unknown_share = if device.value > 0.0 { unknown_ns / device.value } else { 0.0 };
        let waits_for_host = host.value > device.value;
        Prediction { time_ns, busy_ns: device.value, waits_for_host, launches, unknown_share }
    }
}

fn scaled(step: &RecordedStep, from: &DeviceSpec, to: &DeviceSpec) -> Prediction {
    let replay = Replay::calibrated(step);
    if from == to {
        let timed = &step.timed_ns;
        let low = timed.iter().copied().fold(step.time_ns, f64::min);
        let high = timed.iter().copied().fold(step.time_ns, f64::max);
        let time_ns = Range { low, value: step.time_ns, high };
        return Prediction { time_ns, busy_ns: step.busy_ns(), ..Prediction::default() };
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
    Prediction { time_ns, busy_ns: value.iter().sum(), ..Prediction::default() }
}

/// How the kernels of one operator scale.
#[derive(Clone, Copy, Debug, Default)]
struct Model {
    /// Of operators whose kernels differ between GPUs: what its time is multiplied by, and the
    /// factor by which that may be off.
    ratio: Option<(f64, f64)>,
    /// The factor by which wave scaling may be off.
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
        let wave_spread = if by_rows { wave_scaling::SPREAD_OF_ROWS } else { wave_scaling::SPREAD };
        let (flops, bytes) = (Some(work.flops), work.bytes);
        Model { ratio: ratio.filter(is_usable), wave_spread, flops, bytes }
    }
}

fn scaled_work(work: &GpuWork, model: Option<&Model>, from: &DeviceSpec, to: &DeviceSpec) -> Range {
    if matches!(work.kind, WorkKind::Communication | WorkKind::HostCopy) || work.time_ns <= 0.0 {
        return Range::exact(work.part_ns);
    }
    // Of kernels that ran beside others each counts with its part, and scales as a whole.
    let share = work.part_ns / work.time_ns;
    let floor = wave_scaling::FLOOR_NS.min(work.time_ns);
    let ratio = model.and_then(|model| model.ratio);
    match (work.kind, ratio) {
        (WorkKind::Kernel | WorkKind::Product(_), Some((ratio, spread))) => {
            Range::within_factor((work.time_ns * ratio).max(floor) * share, spread)
        }
        (WorkKind::Product(product), None) => {
            let ratio = of_product(product, from, to);
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
            Range::within_factor(scaled, spread.unwrap_or(wave_scaling::SPREAD_OF_ROWS))
        }
    }
}

/// Of a product without shapes: as if it were at the ridge, where arithmetic and memory count alike.
fn of_product(product: ProductType, from: &DeviceSpec, to: &DeviceSpec) -> f64 {
    let bandwidth = from.bandwidth_over(to);
    let rate = match (product.peak(&from.peaks), product.peak(&to.peaks)) {
        (Some(from), Some(to)) => from / to,
        _ => bandwidth,
    };
    (bandwidth * rate).sqrt()
}
