//! The batch size that each GPU needs.
//!
//! With a small batch, launching kernels takes longer than running them, and an iteration takes
//! equally long on every GPU. GPUs differ in the batch size from which they are busy, in their
//! throughput there, and in the largest batch that fits. Two estimates on fake tensors show how the
//! operators grow with the batch ([`ScaledStep`]). Their costs on a GPU, relative to those at the
//! recorded batch size, scale the GPU's predicted time; host time does not depend on the batch,
//! except for the wait for data. Memory is fitted as for other batch sizes on the same device
//! ([`super::batch_size`]).

mod scaled_step;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use scaled_step::{NotScalable, ScaledStep};

use super::batch_size::{Capacity, IntegerRange, Run, largest_fitting};
use super::device_comparison::{Comparison, Row};
use super::other_device::OperatorStep;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::range::Range;

/// Memory that an iteration cannot use: the CUDA context with the kernels of PyTorch's libraries,
/// and what the driver reserves. It takes 0.4 to 0.9 GB on GPUs since Volta.
const RESERVED_BYTES: u64 = 800_000_000;
/// The largest batch considered.
const MAX_BATCH: u64 = 1 << 20;
const NS_PER_HOUR: f64 = 3.6e12;

/// The batch size that each GPU needs.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuBatches {
    /// Samples of the iteration that the predictions start from.
    pub batch_size: u64,
    /// Samples per epoch, if known: no batch is larger.
    pub samples_per_epoch: Option<u64>,
    /// The lowest price per sample first; then GPUs without a price, the highest throughput first.
    pub rows: Vec<GpuBatch>,
    /// The GPUs whose memory is too small for a single sample.
    pub too_small: Vec<String>,
}

/// The batch size that one GPU needs.
///
/// The wait for data is known for one batch size only; it is assumed to grow in proportion.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuBatch {
    /// The GPU.
    pub device: DeviceSpec,
    /// The smallest power of two with which the GPU takes longer than the host, without its wait for
    /// data. If none fits, the largest batch that does.
    pub batch_size: u64,
    /// What keeps the GPU from being busy with that batch size.
    pub limit: Option<Limit>,
    /// Iteration time with that batch size, in nanoseconds.
    pub time_ns: Range,
    /// Throughput with that batch size.
    pub samples_per_second: Range,
    /// US dollars with that batch size, if the device has a price.
    pub usd_per_million_samples: Option<Range>,
    /// The largest batch that fits in memory. `None` if memory is unknown or does not grow.
    pub largest: Option<IntegerRange>,
}

/// What limits a batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Larger batches may not fit in memory.
    Memory,
    /// A larger batch would have more samples than an epoch.
    Epoch,
    /// Larger batches were not considered.
    Search,
    /// The wait for data takes longer than the GPU.
    Data,
}

impl GpuBatches {
    /// Returns the rows with the prices of a comparison, which may be the user's.
    pub fn with_prices_of(&self, comparison: &Comparison) -> GpuBatches {
        let mut changed = self.clone();
        for row in &mut changed.rows {
            let mut known = comparison.rows.iter().map(|row| &row.device);
            if let Some(device) = known.find(|device| device.name == row.device.name) {
                row.device.price.clone_from(&device.price);
                row.usd_per_million_samples = price(device, row.time_ns, row.batch_size);
            }
        }
        changed
    }
}

/// Returns US dollars per million samples, if the device has a price.
fn price(device: &DeviceSpec, time_ns: Range, batch: u64) -> Option<Range> {
    let usd_per_hour = device.price.as_ref()?.usd_per_hour;
    Some(time_ns.times(usd_per_hour / NS_PER_HOUR / batch as f64 * 1e6))
}

/// Predicts the batch size that each GPU of a comparison needs, from how the iteration grows. `None` if
/// its batch size is unknown.
pub fn gpu_batches(comparison: &Comparison, scaled: &ScaledStep) -> Option<GpuBatches> {
    let batch_size = comparison.batch_size.filter(|batch| *batch > 0)?;
    let samples_per_epoch = comparison.samples_per_epoch;
    let peak_bytes = comparison.measured_peak_bytes;
    let run = Run { batch: batch_size, samples: batch_size, peak_bytes, ..Run::default() };
    let runs = Vec::from_iter(peak_bytes.map(|_| run));
    let mut growth =
        Growth { scaled, steps: BTreeMap::new(), batch_size, data_ns: comparison.data_ns };
    let (mut rows, mut too_small) = (Vec::new(), Vec::new());
    for known in &comparison.rows {
        let device = &known.device;
        let capacity = Capacity { bytes: device.memory_bytes, taken: RESERVED_BYTES };
        let largest = largest_fitting(&runs, &scaled.memory, capacity);
        let (max_batch, limit) = max_batch(largest, samples_per_epoch);
        if max_batch == 0 {
            too_small.push(device.name.clone());
            continue;
        }
        let powers = (0..).map(|power| 1 << power).take_while(|batch| *batch <= max_batch);
        let mut times = powers.map(|batch| growth.at(batch, known));
        let (times, limit) = match times.find(Times::is_busy) {
            Some(busy) => {
                let waits_for_data = busy.data_ns > busy.gpu_ns.value;
                (busy, waits_for_data.then_some(Limit::Data))
            }
            None => (growth.at(max_batch, known), Some(limit)),
        };
        rows.extend(times.row(device, limit, largest));
    }
    let usd = |row: &GpuBatch| row.usd_per_million_samples.map_or(f64::INFINITY, |usd| usd.value);
    rows.sort_by(|a, b| {
        let by_price = usd(a).total_cmp(&usd(b));
        by_price.then(b.samples_per_second.value.total_cmp(&a.samples_per_second.value))
    });
    let any = !(rows.is_empty() && too_small.is_empty());
    any.then_some(GpuBatches { batch_size, samples_per_epoch, rows, too_small })
}

/// How an iteration grows with its batch size.
struct Growth<'a> {
    scaled: &'a ScaledStep,
    /// The operators at the batch sizes asked for so far: every GPU needs the same few.
    steps: BTreeMap<u64, OperatorStep>,
    /// The batch size of the known iteration, and its wait for data in nanoseconds.
    batch_size: u64,
    data_ns: f64,
}

impl Growth<'_> {
    /// Returns the times with a batch size, from the prediction for the known one.
    fn at(&mut self, batch: u64, known: &Row) -> Times {
        let device = &known.device;
        let growth = self.cost_ns(batch, device) / self.cost_ns(self.batch_size, device);
        Times {
            batch,
            gpu_ns: known.busy_ns.times(growth),
            host_ns: known.host_ns.plus(Range::exact(-self.data_ns)),
            data_ns: self.data_ns * batch as f64 / self.batch_size as f64,
        }
    }

    fn cost_ns(&mut self, batch: u64, device: &DeviceSpec) -> f64 {
        let step = self.steps.entry(batch).or_insert_with(|| OperatorStep {
            operators: self.scaled.operators(batch),
            ..OperatorStep::default()
        });
        step.on(device).busy_ns.value
    }
}

/// The times of an iteration with a batch size, in nanoseconds.
struct Times {
    batch: u64,
    gpu_ns: Range,
    /// Without the wait for data.
    host_ns: Range,
    data_ns: f64,
}

impl Times {
    fn is_busy(&self) -> bool {
        self.gpu_ns.value >= self.host_ns.value
    }

    fn row(
        &self,
        device: &DeviceSpec,
        limit: Option<Limit>,
        largest: Option<IntegerRange>,
    ) -> Option<GpuBatch> {
        let slower =
            |end: fn(&Range) -> f64| end(&self.gpu_ns).max(end(&self.host_ns) + self.data_ns);
        let time_ns = Range {
            low: slower(|time| time.low),
            value: slower(|time| time.value),
            high: slower(|time| time.high),
        };
        let is_known = time_ns.low > 0.0 && time_ns.high.is_finite();
        let samples = self.batch as f64;
        let per_second = |ns: f64| samples * 1e9 / ns;
        is_known.then(|| GpuBatch {
            device: device.clone(),
            batch_size: self.batch,
            limit,
            time_ns,
            samples_per_second: Range {
                low: per_second(time_ns.high),
                value: per_second(time_ns.value),
                high: per_second(time_ns.low),
            },
            usd_per_million_samples: price(device, time_ns, self.batch),
            largest,
        })
    }
}

/// Returns the largest batch to consider, and what limits it.
fn max_batch(largest: Option<IntegerRange>, samples_per_epoch: Option<u64>) -> (u64, Limit) {
    let memory = largest.map(|largest| (largest.low, Limit::Memory));
    let epoch = samples_per_epoch.map(|samples| (samples, Limit::Epoch));
    let all = [memory, epoch, Some((MAX_BATCH, Limit::Search))];
    all.into_iter().flatten().min_by_key(|(batch, _)| *batch).unwrap_or((MAX_BATCH, Limit::Search))
}
