//! The batch size that each GPU needs, as a table for the terminal.

use super::devices::{MAX_NAME, about, dollars, lay_out, overhead};
use super::terminal::Style;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_predict::batch_size::IntegerRange;
use ridgeline_predict::device_comparison::Comparison;
use ridgeline_predict::gpu_batches::{GpuBatch, GpuBatches, Limit};

/// Iteration times are called equal if they differ by less than this factor.
const EQUAL: f64 = 1.02;
/// The width of the table without the largest batch that fits.
const NARROW: usize = 100;

/// Formats the table. It takes the place of the comparison's own if the iteration takes equally long
/// on every GPU, else it follows that.
pub fn page(comparison: &Comparison, batches: &GpuBatches, style: Style) -> String {
    let mut page = match same_everywhere(comparison) {
        Some(said) => {
            let overhead = overhead(comparison);
            let paragraphs = overhead.into_iter().chain([said]);
            paragraphs.map(|said| format!("{said}\n\n")).collect()
        }
        None => format!("{}\n", super::devices::table(comparison, style)),
    };
    page += "Batch size that keeps each GPU busy\n";
    page += &table(batches, style);
    page.push('\n');
    if let Some(said) = best(batches) {
        page += &format!("{said}\n\n");
    }
    let mut notes = notes(batches);
    if same_everywhere(comparison).is_some() {
        notes.extend(about(comparison));
    }
    for note in notes {
        page += &style.faint(&note);
        page.push('\n');
    }
    page
}

/// A sentence in place of a table with the same times in every row.
fn same_everywhere(comparison: &Comparison) -> Option<String> {
    let (first, last) = (comparison.rows.first()?, comparison.rows.last()?);
    let (all, batch) = (comparison.rows.len(), comparison.batch_size?);
    let is_same = last.time_ns.value < first.time_ns.value * EQUAL;
    let overhead_bound = comparison.rows.iter().all(|row| row.waits_for_host);
    (all > 1 && is_same && overhead_bound).then(|| {
        let rate = first.samples_per_second.map_or_else(String::new, |rate| {
            format!(": ~{} samples/s", units::estimated(rate.value))
        });
        format!(
            "With batch size {batch}, an iteration takes ~{} ({} to {}) on each of these {all} GPUs{rate}.",
            units::duration(first.time_ns.value),
            units::duration(first.time_ns.low),
            units::duration(first.time_ns.high),
        )
    })
}

fn table(batches: &GpuBatches, style: Style) -> String {
    let with_largest =
        batches.rows.iter().any(|row| row.largest.is_some()) && style.width >= NARROW;
    let headings =
        ["GPU", "batch size", "iteration", "samples/s", "price/M samples", "largest that fits"];
    let count = if with_largest { headings.len() } else { headings.len() - 1 };
    let cells = |row: &GpuBatch| {
        let limit = row.limit.map_or_else(String::new, |limit| format!(" ({})", name(limit)));
        let usd = row.usd_per_million_samples;
        vec![
            clean(&shorten(&row.device.name, MAX_NAME)),
            format!("{}{limit}", row.batch_size),
            format!("~{}", units::duration(row.time_ns.value)),
            format!("~{}", units::estimated(row.samples_per_second.value)),
            usd.map_or_else(|| "unknown".to_owned(), |usd| format!("~{}", dollars(usd.value))),
            row.largest.map_or_else(|| "unknown".to_owned(), largest),
        ]
    };
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    rows.extend(batches.rows.iter().map(cells));
    for row in &mut rows {
        row.truncate(count);
    }
    lay_out(&rows, style)
}

/// `~610 (580 to 640)`.
fn largest(largest: IntegerRange) -> String {
    let [low, value, high] = [largest.low, largest.value, largest.high].map(three_digits);
    format!("~{value} ({low} to {high})")
}

/// Rounds down to three significant digits.
fn three_digits(number: u64) -> u64 {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(2));
    number / unit * unit
}

fn name(limit: Limit) -> &'static str {
    match limit {
        Limit::Memory => "memory",
        Limit::Epoch => "epoch",
        Limit::Search => "not busy",
        Limit::Data => "data",
    }
}

/// Names the cheapest and the fastest GPU.
fn best(batches: &GpuBatches) -> Option<String> {
    let cheapest = batches.rows.first().filter(|row| row.usd_per_million_samples.is_some());
    let rate = |row: &&GpuBatch| row.samples_per_second.value;
    let fastest = batches.rows.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let one = |row: &GpuBatch| {
        format!(
            "{} with batch size {}",
            clean(&shorten(&row.device.name, MAX_NAME)),
            row.batch_size
        )
    };
    let rate = units::estimated(fastest.samples_per_second.value);
    let fastest = format!("Highest throughput: {}, ~{rate} samples/s.", one(fastest));
    Some(match cheapest.and_then(|row| row.usd_per_million_samples.map(|usd| (row, usd))) {
        Some((row, usd)) => format!(
            "Cheapest: {}, ~{} per million samples. {fastest}",
            one(row),
            dollars(usd.value)
        ),
        None => fastest,
    })
}

fn notes(batches: &GpuBatches) -> Vec<String> {
    let mut notes = vec![
        "batch size: the smallest power of two with which the GPU takes longer than launching its kernels. Another \
         batch size usually needs another learning rate."
            .to_owned(),
    ];
    let limited = |limit| batches.rows.iter().any(|row| row.limit == Some(limit));
    if limited(Limit::Memory) {
        notes.push(
            "(memory): a larger batch may not fit, and this one does not keep the GPU busy."
                .to_owned(),
        );
    }
    if let Some(samples) = batches.samples_per_epoch.filter(|_| limited(Limit::Epoch)) {
        notes.push(format!(
            "(epoch): an epoch has only {samples} samples, which do not keep the GPU busy."
        ));
    }
    if limited(Limit::Search) {
        notes.push("(not busy): no larger batch was considered.".to_owned());
    }
    if limited(Limit::Data) {
        notes.push(
            "(data): waiting for data takes longer than the GPU, if the wait grows with the batch. Faster data \
             loading helps."
                .to_owned(),
        );
    }
    let dates = batches.rows.iter().filter_map(|row| row.device.price.as_ref()?.date.as_deref());
    if let Some((first, last)) = dates.clone().min().zip(dates.max()) {
        let to = if first == last { String::new() } else { format!(" to {}", clean(last)) };
        notes.push(format!("Prices of {}{to}.", clean(first)));
    }
    if !batches.too_small.is_empty() {
        let names: Vec<String> =
            batches.too_small.iter().map(|name| clean(&shorten(name, MAX_NAME))).collect();
        notes.push(format!("Too little memory for a single sample: {}.", names.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use ridgeline_devices::device_table::DeviceTable;
    use ridgeline_operators::range::Range;
    use ridgeline_predict::device_comparison::{Basis, Host, Row};

    /// Fixed values, so that changes of the prediction model do not change the expected output.
    fn batches() -> GpuBatches {
        let device = |name| DeviceTable::shipped().find(name).expect("known").clone();
        let row = |name, batch_size, limit, milliseconds: f64, usd: f64| GpuBatch {
            device: device(name),
            batch_size,
            limit,
            time_ns: Range::within_factor(milliseconds * 1e6, 1.5),
            samples_per_second: Range::exact(batch_size as f64 * 1e3 / milliseconds),
            usd_per_million_samples: Some(Range::exact(usd)),
            largest: Some(IntegerRange { low: 15_013, value: 16_496, high: 18_363 }),
        };
        GpuBatches {
            batch_size: 8,
            samples_per_epoch: Some(60_000),
            rows: vec![
                row("T4", 64, None, 9.0, 0.013),
                row("RTX4090", 512, Some(Limit::Data), 12.0, 0.02),
                row("H100-SXM5-80GB", 15_013, Some(Limit::Memory), 10.0, 0.04),
            ],
            too_small: vec!["P4".to_owned()],
        }
    }

    fn comparison(waits_for_host: bool) -> Comparison {
        let row = |device: &ridgeline_devices::device_spec::DeviceSpec| Row {
            device: device.clone(),
            here: false,
            time_ns: Range::within_factor(8e6, 1.5),
            busy_ns: Range::exact(1e6),
            host_ns: Range::within_factor(8e6, 1.5),
            waits_for_host,
            samples_per_second: Some(Range::exact(1000.0)),
            peak_share: None,
            usd_per_million_samples: None,
            usd_per_epoch: None,
            joules: None,
            energy_from: None,
        };
        Comparison {
            from: None,
            basis: Basis::OperatorCosts,
            batch_size: Some(8),
            samples_per_epoch: None,
            data_ns: 0.0,
            measured_peak_bytes: None,
            gradient_bytes: 0.0,
            rows: batches().rows.iter().map(|batch| row(&batch.device)).collect(),
            host: Host::Measured { busy: 0.4 },
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_page_in_place_of_equal_rows() {
        let style = Style { color: false, width: 120 };
        expect![[r#"
            Overhead-bound on all of these GPUs: the GPU was busy for 40% of the iteration and waited for the CPU otherwise. Assumes a CPU as fast as this one: a faster GPU helps little.

            With batch size 8, an iteration takes ~8.0 ms (5.3 ms to 12 ms) on each of these 3 GPUs: ~1000 samples/s.

            Batch size that keeps each GPU busy
            GPU                 batch size  iteration  samples/s  price/M samples        largest that fits
            T4                          64    ~9.0 ms      ~7110          ~$0.013  ~16400 (15000 to 18300)
            RTX4090             512 (data)     ~12 ms     ~42700          ~$0.020  ~16400 (15000 to 18300)
            H100-SXM5-80GB  15013 (memory)     ~10 ms   ~1500000          ~$0.040  ~16400 (15000 to 18300)

            Cheapest: T4 with batch size 64, ~$0.013 per million samples. Highest throughput: H100-SXM5-80GB with batch size 15013, ~1500000 samples/s.

            batch size: the smallest power of two with which the GPU takes longer than launching its kernels. Another batch size usually needs another learning rate.
            (memory): a larger batch may not fit, and this one does not keep the GPU busy.
            (data): waiting for data takes longer than the GPU, if the wait grows with the batch. Faster data loading helps.
            Prices of 2026-09-25.
            Too little memory for a single sample: P4.
            ~ = predicted, from operator costs only, because no GPU was measured; batch size 8. Ranges are 80% intervals.
        "#]]
        .assert_eq(&page(&comparison(true), &batches(), style));
    }

    #[test]
    fn rows_that_differ_stay() {
        let style = Style { color: false, width: 80 };
        let page = page(&comparison(false), &batches(), style);
        assert!(page.starts_with("GPU "), "{page}");
        assert!(!page.contains("largest that fits"), "{page}");
    }
}
