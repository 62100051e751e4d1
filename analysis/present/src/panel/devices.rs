//! The iteration on every known GPU: `predictions.devices` of the document.

use serde::Serialize;

use super::super::devices::overhead;
use super::super::machines::{MachineEntry, machines, shown};
use super::{finite, name};
use ridgeline_base::printable::{clean, shorten};
use ridgeline_operators::range;
use ridgeline_optimize::distributed::machines::Machine;
use ridgeline_predict::batch_size::IntegerRange;
use ridgeline_predict::device_comparison::{Comparison, Row};
use ridgeline_predict::gpu_batches::{GpuBatch, GpuBatches, Limit};

/// `predictions.devices`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Devices {
    from: Option<String>,
    basis: &'static str,
    batch_size: Option<u64>,
    samples_per_epoch: Option<u64>,
    rows: Vec<Device>,
    machines: Vec<MachineEntry>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Device {
    name: String,
    here: bool,
    time_ns: Range,
    samples_per_second: Option<Range>,
    peak_share: Option<f64>,
    fits: Option<bool>,
    usd_per_hour: Option<f64>,
    price_date: Option<String>,
    price_from: Option<&'static str>,
    usd_per_million_samples: Option<Range>,
    usd_per_epoch: Option<Range>,
    joules_per_iteration: Option<Range>,
    energy_from: Option<&'static str>,
    note: Option<String>,
    batch: Option<Batch>,
}

/// The batch size that keeps a GPU busy, and the largest one that fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Batch {
    size: u64,
    limit: Option<&'static str>,
    time_ns: Range,
    samples_per_second: Range,
    usd_per_million_samples: Option<Range>,
    largest: Option<WholeNumbers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct WholeNumbers {
    low: u64,
    value: u64,
    high: u64,
}

/// A range of finite numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Range {
    low: f64,
    value: f64,
    high: f64,
}

impl From<range::Range> for Range {
    fn from(range: range::Range) -> Range {
        Range { low: finite(range.low), value: finite(range.value), high: finite(range.high) }
    }
}

impl Devices {
    /// Returns the entry of a comparison, of the batch sizes that its GPUs need, and of machines with several of the
    /// cheapest and the fastest GPU.
    pub fn of(comparison: &Comparison, batches: Option<&GpuBatches>) -> Devices {
        let machines = machines(comparison, batches);
        let all: Vec<&Machine> = machines.iter().flat_map(|machines| &machines.all).collect();
        Devices::new(comparison, batches, &shown(&all))
    }

    /// Like [`Devices::of`], with machines of all GPUs.
    pub fn with_all_machines(comparison: &Comparison, batches: Option<&GpuBatches>) -> Devices {
        let machines = machines(comparison, batches);
        let all: Vec<&Machine> = machines.iter().flat_map(|machines| &machines.all).collect();
        Devices::new(comparison, batches, &all)
    }

    fn new(
        comparison: &Comparison,
        batches: Option<&GpuBatches>,
        machines: &[&Machine],
    ) -> Devices {
        let batch_of = |row: &Row| {
            let mut rows = batches.iter().flat_map(|batches| &batches.rows);
            rows.find(|batch| batch.device.name == row.device.name)
        };
        let device = |row: &Row| device(row, batch_of(row));
        Devices {
            from: comparison.from.as_deref().map(name),
            basis: comparison.basis.name(),
            batch_size: comparison.batch_size,
            samples_per_epoch: comparison.samples_per_epoch,
            rows: comparison.rows.iter().map(device).collect(),
            machines: machines.iter().map(|machine| MachineEntry::of(machine)).collect(),
            notes: overhead(comparison)
                .iter()
                .chain(&comparison.notes)
                .map(|note| shorten(&clean(note), 1000))
                .collect(),
        }
    }
}

fn device(row: &Row, batch: Option<&GpuBatch>) -> Device {
    let price = row.device.price.as_ref();
    let range = |range: Option<range::Range>| range.map(Range::from);
    let time = range::Range {
        low: row.time_ns.low.round(),
        value: row.time_ns.value.round(),
        high: row.time_ns.high.round(),
    };
    Device {
        name: name(&row.device.name),
        here: row.here,
        time_ns: time.into(),
        samples_per_second: range(row.samples_per_second),
        peak_share: row.peak_share.filter(|share| share.is_finite()),
        fits: row.fits(),
        usd_per_hour: price.map(|price| finite(price.usd_per_hour)),
        price_date: price.and_then(|price| price.date.as_deref()).map(name),
        // Prices from the user's settings have no source.
        price_from: price.map(|price| if price.source.is_some() { "list" } else { "settings" }),
        usd_per_million_samples: range(row.usd_per_million_samples),
        usd_per_epoch: range(row.usd_per_epoch),
        joules_per_iteration: range(row.joules),
        energy_from: row.energy_from.map(|from| from.name()),
        note: row.note(),
        batch: batch.map(batch_entry),
    }
}

fn batch_entry(batch: &GpuBatch) -> Batch {
    Batch {
        size: batch.batch_size,
        limit: batch.limit.map(|limit| match limit {
            Limit::Memory => "memory",
            Limit::Epoch => "epoch",
            Limit::Search => "search",
            Limit::Data => "data",
        }),
        time_ns: batch.time_ns.into(),
        samples_per_second: batch.samples_per_second.into(),
        usd_per_million_samples: batch.usd_per_million_samples.map(Range::from),
        largest: batch.largest.map(|IntegerRange { low, value, high }| WholeNumbers {
            low,
            value,
            high,
        }),
    }
}
