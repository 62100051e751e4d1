//! The iteration on every known GPU: `predictions.devices` of the document.

use serde::Serialize;

use super::super::devices::overhead;
use super::{finite, name};
use ridgeline_base::printable::{clean, shorten};
use ridgeline_operators::range;
use ridgeline_predict::device_comparison::{Comparison, Row};

/// `predictions.devices`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Devices {
    from: Option<String>,
    basis: &'static str,
    batch_size: Option<u64>,
    samples_per_epoch: Option<u64>,
    rows: Vec<Device>,
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
    /// Returns the entry of a comparison.
    pub fn of(comparison: &Comparison) -> Devices {
        Devices {
            from: comparison.from.as_deref().map(name),
            basis: comparison.basis.name(),
            batch_size: comparison.batch_size,
            samples_per_epoch: comparison.samples_per_epoch,
            rows: comparison.rows.iter().map(device).collect(),
            notes: overhead(comparison)
                .iter()
                .chain(&comparison.notes)
                .map(|note| shorten(&clean(note), 1000))
                .collect(),
        }
    }
}

fn device(row: &Row) -> Device {
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
    }
}
