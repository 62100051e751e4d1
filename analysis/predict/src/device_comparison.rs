//! One iteration on every known device: time, throughput, memory, price and energy.

use std::collections::BTreeMap;

use super::other_device::{HOST_NS_PER_LAUNCH, LAUNCH_NS, OperatorStep, Prediction, Step};
use super::replay::Replay;
use ridgeline_base::units;
use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec, Price};
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::range::Range;
use ridgeline_operators::recorded_step::{RecordedStep, WorkKind};

/// The iteration to compare.
#[derive(Clone, Copy, Debug)]
pub enum ComparisonInput<'a> {
    /// An iteration that ran.
    Recorded(&'a RecordedStep),
    /// An estimated iteration: its operators, and their memory.
    Estimated(&'a OpList),
}

/// One iteration on many devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The device that it ran on, if its kernels could be scaled; `None` if only operator costs are
    /// known.
    pub from: Option<String>,
    /// The basis of the predictions.
    pub basis: Basis,
    /// Samples per iteration.
    pub batch_size: Option<u64>,
    /// Samples per epoch.
    pub samples_per_epoch: Option<u64>,
    /// Wait for data in nanoseconds per iteration, as recorded.
    pub data_ns: f64,
    /// Peak memory in bytes, if one of the GPUs ran the iteration.
    pub measured_peak_bytes: Option<u64>,
    /// See [`RecordedStep::gradient_bytes`]. 0 if unknown.
    pub gradient_bytes: f64,
    /// Fastest first.
    pub rows: Vec<Row>,
    /// The basis of the host time.
    pub host: Host,
    /// Notes on the accuracy.
    pub notes: Vec<String>,
}

/// The basis of the host time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Host {
    /// Assumed: a fixed time for each launch, plus the recorded wait for data.
    Assumed {
        /// Kernels per iteration.
        launches: f64,
        /// Wait for data, in nanoseconds per iteration.
        data_ns: f64,
        /// Host time for each launch, in nanoseconds.
        per_launch_ns: Range,
    },
    /// Recorded on this machine's CPU: a time for each operator in addition to its computation, a
    /// time for each launch on a GPU, and the recorded wait for data.
    Recorded {
        /// Operators per iteration.
        operators: f64,
        /// Nanoseconds of the host for each.
        per_operator_ns: f64,
        /// Kernels per iteration.
        launches: f64,
        /// Nanoseconds of the host for each.
        per_launch_ns: f64,
        /// Wait for data, in nanoseconds per iteration.
        data_ns: f64,
    },
    /// Measured on this machine.
    Measured {
        /// The share of the iteration, 0 to 1, during which the GPU was busy.
        busy: f64,
    },
}

/// The basis of the predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Measured kernels, scaled.
    WaveScaling,
    /// The operator cost model.
    OperatorCosts,
}

impl Basis {
    /// The display name: `wave scaling`.
    pub fn name(self) -> &'static str {
        match self {
            Basis::WaveScaling => "wave scaling",
            Basis::OperatorCosts => "operator costs",
        }
    }
}

/// The iteration on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The device.
    pub device: DeviceSpec,
    /// Whether the iteration ran on this device, so its time is measured.
    pub here: bool,
    /// Iteration time in nanoseconds.
    pub time_ns: Range,
    /// The part of it during which the GPU is busy, in nanoseconds.
    pub busy_ns: Range,
    /// Iteration time on an infinitely fast GPU, in nanoseconds.
    pub host_ns: Range,
    /// Whether the GPU waits for the host.
    pub waits_for_host: bool,
    /// Throughput, if the batch is known.
    pub samples_per_second: Option<Range>,
    /// Peak memory as a share of device memory: above 1 it does not fit.
    pub peak_share: Option<f64>,
    /// US dollars, if the device has a price and the batch is known.
    pub usd_per_million_samples: Option<Range>,
    /// US dollars, if the samples per epoch are also known.
    pub usd_per_epoch: Option<Range>,
    /// Joules per iteration.
    pub joules: Option<Range>,
    /// The source of the energy.
    pub energy_from: Option<EnergyFrom>,
}

/// The source of an energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergyFrom {
    /// The GPU's own counter.
    Measured,
    /// The board's power and the predicted utilization.
    Utilization,
}

impl EnergyFrom {
    /// `measured` or `utilization`.
    pub fn name(self) -> &'static str {
        match self {
            EnergyFrom::Measured => "measured",
            EnergyFrom::Utilization => "utilization",
        }
    }
}

impl Row {
    /// Sets the price of samples from the hourly price of the device.
    fn set_prices(&mut self, batch_size: Option<u64>, samples_per_epoch: Option<u64>) {
        let batch = batch_size.filter(|batch| *batch > 0).map(|batch| batch as f64);
        let usd_per_ns = self.device.price.as_ref().map(|price| price.usd_per_hour / 3.6e12);
        let usd_per_sample =
            batch.zip(usd_per_ns).map(|(batch, price)| self.time_ns.times(price / batch));
        self.usd_per_million_samples = usd_per_sample.map(|usd| usd.times(1e6));
        self.usd_per_epoch =
            usd_per_sample.zip(samples_per_epoch).map(|(usd, samples)| usd.times(samples as f64));
    }

    /// A note about the device.
    pub fn note(&self) -> Option<String> {
        let no_room = self.fits() == Some(false);
        no_room.then(|| "Its memory is too small for this batch.".to_owned())
    }

    /// Returns whether peak memory fits; `None` if unknown.
    pub fn fits(&self) -> Option<bool> {
        self.peak_share.map(|share| share <= 1.0)
    }
}

/// The power of an idle board as a share of its limit: a quarter or less.
const IDLE_POWER: f64 = 0.2;
/// The power of a busy board as a share of its limit: boards under training draw most of it.
const BUSY_POWER: f64 = 0.85;
/// The factor by which that may be off: a bandwidth-bound kernel draws less than one on tensor
/// cores.
const POWER_SPREAD: f64 = 1.35;
/// A GPU that is busy for less than this share of the iteration waits for the host.
const MIN_BUSY_SHARE: f64 = 0.6;
/// Above this share of unknown operators, a note is added.
const MAX_UNKNOWN_SHARE: f64 = 0.1;

impl Comparison {
    /// Leaves out the GPUs without FP8 tensor cores, which cannot run FP8 kernels.
    #[must_use]
    pub fn only_with_fp8(mut self) -> Comparison {
        let all = self.rows.len();
        self.rows.retain(|row| row.here || row.device.peaks.fp8.is_some());
        if self.rows.len() < all {
            let note = "The iteration runs FP8 kernels: GPUs without FP8 tensor cores are left out";
            self.notes.push(note.to_owned());
        }
        self
    }

    /// Returns the comparison with other prices, in US dollars per hour by device name. Unknown
    /// names are reported in the notes.
    pub fn with_prices(&self, usd_per_hour: &BTreeMap<String, f64>) -> Comparison {
        let mut changed = self.clone();
        let table = DeviceTable::of(self.rows.iter().map(|row| row.device.clone()));
        for (name, usd_per_hour) in usd_per_hour {
            let chosen = match table.choose(name) {
                Ok(device) => &device.name,
                Err(unknown) => {
                    changed.notes.push(format!("Price for an unknown GPU: {unknown}"));
                    continue;
                }
            };
            for row in changed.rows.iter_mut().filter(|row| row.device.name == *chosen) {
                let usd_per_hour = *usd_per_hour;
                row.device.price = Some(Price { usd_per_hour, date: None, source: None });
                row.set_prices(self.batch_size, self.samples_per_epoch);
            }
        }
        changed
    }
}

/// Compares the subject on every device of the table. `None` if it has no operators.
pub fn compare(subject: ComparisonInput<'_>, table: &DeviceTable) -> Option<Comparison> {
    compare_with_host(subject, table, None)
}

/// Like [`compare`], with the recorded host time of this machine for each operator in addition to
/// the computation, in nanoseconds. It is used if no GPU was recorded.
pub fn compare_with_host(
    subject: ComparisonInput<'_>,
    table: &DeviceTable,
    host_ns_per_operator: Option<f64>,
) -> Option<Comparison> {
    let mut notes = notes_on(subject, table);
    let step = step(subject, table, host_ns_per_operator)?;
    let facts = match subject {
        ComparisonInput::Recorded(recorded) => Facts::of_recorded(recorded),
        ComparisonInput::Estimated(list) => Facts::of_estimated(list),
    };
    let from = match step {
        Step::Measured { from, .. } => Some(from),
        Step::Operators(_) => None,
    };
    let mut max_unknown = 0.0_f64;
    let mut launches = 0.0_f64;
    let waiting = match &step {
        Step::Measured { step, .. } => busy_share(step) < MIN_BUSY_SHARE,
        Step::Operators(_) => false,
    };
    let mut rows: Vec<Row> = table
        .devices()
        .iter()
        .filter(|device| device.kind == DeviceKind::Gpu)
        .map(|device| {
            let prediction = step.on(device);
            max_unknown = max_unknown.max(prediction.unknown_share);
            launches = launches.max(prediction.launches);
            let here = from.is_some_and(|from| from.name == device.name);
            let waits_for_host = waiting || prediction.waits_for_host;
            Row { waits_for_host, ..row(device, here, &prediction, &facts) }
        })
        .filter(|row| row.time_ns.value.is_finite() && row.time_ns.value > 0.0)
        .collect();
    let usd = |row: &Row| row.device.price.as_ref().map_or(f64::MAX, |price| price.usd_per_hour);
    rows.sort_by(|a, b| {
        let by_time = a.time_ns.value.total_cmp(&b.time_ns.value);
        by_time.then(usd(a).total_cmp(&usd(b)))
    });
    if max_unknown > MAX_UNKNOWN_SHARE {
        notes.push(format!(
            "Up to {:.0}% of GPU time is in unknown operators, estimated from their bytes",
            max_unknown * 100.0
        ));
    }
    notes.extend(rows.iter().filter_map(|row| {
        let day = row.device.ceilings?.measured_on?;
        Some(format!(
            "{}: rates measured on this machine on {day}; other GPUs use datasheet values",
            row.device.name
        ))
    }));
    if facts.peak_bytes.is_none() {
        notes.push("Memory was not recorded: whether it fits is unknown".to_owned());
    }
    if let Step::Measured { step, .. } = &step {
        notes.extend(notes_on_unscaled(step));
    }
    let host = match &step {
        Step::Measured { step, .. } => Host::Measured { busy: busy_share(step) },
        Step::Operators(operators) => match operators.host_ns_per_operator {
            Some(per_operator_ns) => Host::Recorded {
                operators: operators.calls(),
                per_operator_ns,
                launches,
                per_launch_ns: LAUNCH_NS,
                data_ns: operators.data_ns,
            },
            None => Host::Assumed {
                launches,
                data_ns: operators.data_ns,
                per_launch_ns: HOST_NS_PER_LAUNCH,
            },
        },
    };
    let basis = if from.is_some() { Basis::WaveScaling } else { Basis::OperatorCosts };
    (!rows.is_empty()).then(|| Comparison {
        from: from.map(|_| facts.device_name.clone()),
        basis,
        batch_size: facts.batch_size,
        samples_per_epoch: facts.samples_per_epoch,
        data_ns: facts.data_ns,
        measured_peak_bytes: facts.peak_bytes.filter(|_| from.is_some()),
        gradient_bytes: facts.gradient_bytes,
        rows,
        host,
        notes,
    })
}

/// Returns the subject in its most informative form: measured, if it ran on a known GPU. `None` if it
/// has no operators.
fn step<'a>(
    subject: ComparisonInput<'a>,
    table: &'a DeviceTable,
    host_ns_per_operator: Option<f64>,
) -> Option<Step<'a>> {
    let mut operators = match subject {
        ComparisonInput::Recorded(recorded) => match table.find(&recorded.device.name) {
            Some(from) if recorded.ran_on_gpu() => {
                return Some(Step::Measured { step: recorded, from });
            }
            _ => OperatorStep::from(recorded),
        },
        ComparisonInput::Estimated(list) => OperatorStep::from(list),
    };
    let is_sensible = |ns: &f64| ns.is_finite() && *ns > 0.0;
    operators.host_ns_per_operator = host_ns_per_operator.filter(is_sensible);
    (!operators.operators.is_empty()).then_some(Step::Operators(operators))
}

/// Notes on what the predictions are based on.
fn notes_on(subject: ComparisonInput<'_>, table: &DeviceTable) -> Vec<String> {
    let recorded = match subject {
        ComparisonInput::Recorded(recorded) => recorded,
        ComparisonInput::Estimated(list) => {
            let ended_early = list.outcome != ridgeline_operators::op_list::Outcome::Complete;
            let note = "The estimate ended early: later operators are missing";
            return ended_early.then(|| note.to_owned()).into_iter().collect();
        }
    };
    let mut notes = recorded.notes.clone();
    if recorded.ran_on_gpu() && table.find(&recorded.device.name).is_none() {
        let name = &recorded.device.name;
        notes.push(if name.is_empty() || name == "unknown" {
            "The recording does not name its GPU, so its times could not be scaled".to_owned()
        } else {
            format!(
                "{name} is not a known GPU, so its times could not be scaled; describe it in a \
                file (`devices.files` in the configuration)"
            )
        });
    }
    if !recorded.ran_on_gpu() {
        notes.push(
            "This was a CPU run: GPU times are estimated from operator costs, assuming the same \
            dtypes"
                .to_owned(),
        );
    }
    notes
}

/// The share of a recorded iteration during which its GPU was busy.
fn busy_share(step: &RecordedStep) -> f64 {
    if step.time_ns > 0.0 { step.busy_ns() / step.time_ns } else { 1.0 }
}

/// Notes on the times that are not scaled.
fn notes_on_unscaled(step: &RecordedStep) -> Vec<String> {
    let mut notes = Vec::new();
    let unexplained_ns = Replay::calibrated(step).unexplained_ns();
    if unexplained_ns > 0.0 {
        notes.push(format!(
            "{} ({}) of the recorded iteration is missing from its replay on the same GPU: it is \
            added unchanged to every prediction",
            units::duration(unexplained_ns),
            units::percent(unexplained_ns / step.time_ns),
        ));
    }
    let communicates = step.activities.iter().any(|work| work.kind == WorkKind::Communication);
    if communicates {
        notes.push(
            "Communication between GPUs is assumed to take as long as it did here".to_owned(),
        );
    }
    let without_shapes =
        step.activities.iter().filter(|work| work.operator.is_none()).map(|work| work.part_ns);
    if without_shapes.sum::<f64>() > MAX_UNKNOWN_SHARE * step.busy_ns() {
        notes.push(
            "Many kernels have no recorded shapes: matrix multiplications among them are scaled by \
            kernel name only"
                .to_owned(),
        );
    }
    notes
}

/// The inputs of a row other than times.
struct Facts {
    device_name: String,
    batch_size: Option<u64>,
    samples_per_epoch: Option<u64>,
    peak_bytes: Option<u64>,
    gradient_bytes: f64,
    data_ns: f64,
    joules: Option<f64>,
}

impl Facts {
    fn of_recorded(step: &RecordedStep) -> Facts {
        Facts {
            device_name: step.device.display_name().into_owned(),
            batch_size: step.batch_size,
            samples_per_epoch: step.samples_per_epoch,
            peak_bytes: step.peak_bytes,
            gradient_bytes: step.gradient_bytes,
            data_ns: step.data_ns,
            joules: step.joules,
        }
    }

    fn of_estimated(list: &OpList) -> Facts {
        Facts {
            device_name: String::new(),
            batch_size: list.batch.as_ref().and_then(|batch| batch.size),
            samples_per_epoch: None,
            peak_bytes: list.memory.as_ref().map(|memory| memory.peak_bytes),
            gradient_bytes: 0.0,
            data_ns: 0.0,
            joules: None,
        }
    }
}

fn row(device: &DeviceSpec, here: bool, prediction: &Prediction, facts: &Facts) -> Row {
    let Prediction { time_ns, busy_ns, host_ns, .. } = *prediction;
    let batch = facts.batch_size.filter(|batch| *batch > 0).map(|batch| batch as f64);
    let measured = facts.joules.filter(|_| here).map(Range::exact);
    let (joules, energy_from) = match measured {
        Some(joules) => (Some(joules), Some(EnergyFrom::Measured)),
        None => {
            let joules =
                device.tdp_w.map(|power| joules_by_utilization(power, time_ns, busy_ns.value));
            (joules, joules.map(|_| EnergyFrom::Utilization))
        }
    };
    let mut row = Row {
        here,
        time_ns,
        busy_ns,
        host_ns,
        waits_for_host: false,
        samples_per_second: batch.map(|batch| inverse(time_ns.times(1.0 / batch), 1e9)),
        peak_share: facts.peak_bytes.map(|bytes| bytes as f64 / device.memory_bytes as f64),
        usd_per_million_samples: None,
        usd_per_epoch: None,
        joules,
        energy_from,
        device: device.clone(),
    };
    row.set_prices(facts.batch_size, facts.samples_per_epoch);
    row
}

/// Joules per iteration of a board with this power limit that is busy for `busy_ns`.
fn joules_by_utilization(power_w: f64, time_ns: Range, busy_ns: f64) -> Range {
    let busy = (busy_ns / time_ns.value).clamp(0.0, 1.0);
    let drawn = power_w * (IDLE_POWER + (BUSY_POWER - IDLE_POWER) * busy);
    let joules = time_ns.times(drawn / 1e9);
    Range { low: joules.low / POWER_SPREAD, value: joules.value, high: joules.high * POWER_SPREAD }
}

/// Divides `numerator` by a range, which swaps its ends.
fn inverse(range: Range, numerator: f64) -> Range {
    let over = |value: f64| if value > 0.0 { numerator / value } else { 0.0 };
    Range { low: over(range.high), value: over(range.value), high: over(range.low) }
}
