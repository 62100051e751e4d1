//! The predicted iteration on other GPUs: a table for the terminal, and a few lines for a hover.

use unicode_width::UnicodeWidthStr;

use super::page::{Page, strong, text};
use super::terminal::Style;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_operators::range::Range;
use ridgeline_predict::device_comparison::{Basis, Comparison, EnergyFrom, Host, Row};

/// The number of cheapest GPUs listed in a hover.
const CHEAPEST: usize = 3;
/// Maximum length of a GPU name in a table, in characters.
pub(super) const MAX_NAME: usize = 32;

/// The heading of the column of energies.
const ENERGY: &str = "energy";

/// Formats a price: `$312`, `$12.5`, `$3.00`, `$0.31`, `$0.0042`. Cents from 10 cents to $10, two
/// significant digits below.
pub fn dollars(usd: f64) -> String {
    if usd <= 0.0 || usd >= 9.995 {
        return format!("${}", units::significant(usd.max(0.0)));
    }
    if usd >= 0.0995 {
        return format!("${usd:.2}");
    }
    let places = (-usd.log10()).ceil().clamp(0.0, 9.0) as usize + 1;
    format!("${usd:.places$}")
}

/// Formats an energy: `420 mJ`, `36 J`, `1.2 kJ`.
pub fn energy(joules: f64) -> String {
    let (value, unit) = match joules {
        joules if joules < 0.9995 => (joules * 1e3, "mJ"),
        joules if joules < 999.5 => (joules, "J"),
        joules => (joules / 1e3, "kJ"),
    };
    format!("{} {unit}", units::significant(value))
}

/// If the CPU is the bottleneck on some GPUs, a text that names the reason. A faster GPU does not
/// reduce these times.
pub fn overhead(comparison: &Comparison) -> Option<String> {
    let waiting = comparison.rows.iter().filter(|row| row.waits_for_host).count();
    let gpus = match (waiting, comparison.rows.len()) {
        (0, _) => return None,
        (1, 1) => String::new(),
        (waiting, all) if waiting == all => " on all of these GPUs".to_owned(),
        (waiting, all) => format!(" on {waiting} of {all} GPUs"),
    };
    let (launching_ns, data_ns) = match comparison.host {
        Host::Assumed { launches, data_ns, per_launch_ns } => {
            (launches * per_launch_ns.value, data_ns)
        }
        Host::Recorded { operators, per_operator_ns, launches, per_launch_ns, data_ns } => {
            (operators * per_operator_ns + launches * per_launch_ns, data_ns)
        }
        Host::Measured { .. } => (0.0, 0.0),
    };
    if data_ns > launching_ns {
        return Some(format!(
            "Input-bound{gpus}: the iteration waits for data ({}, as on this machine). A faster GPU does not help; speed \
             up data loading, then predict again.",
            units::duration(data_ns)
        ));
    }
    let bound = format!("Overhead-bound{gpus}");
    let data = if data_ns > 0.0 {
        format!(", and {} of waiting for data, as measured here", units::duration(data_ns))
    } else {
        String::new()
    };
    let text = match comparison.host {
        Host::Assumed { launches, per_launch_ns, .. } => format!(
            "{bound}: launching the {} kernels of an iteration takes longer than running them. Assumes {} of CPU time \
             per launch ({} to {}){data}. A faster GPU does not help; a larger batch, fewer kernels (`torch.compile`) \
             or CUDA graphs do.",
            units::significant(launches),
            units::duration(per_launch_ns.value),
            units::duration(per_launch_ns.low),
            units::duration(per_launch_ns.high),
        ),
        Host::Recorded { operators, per_operator_ns, launches, per_launch_ns, .. } => format!(
            "{bound}: launching the {} kernels of an iteration takes longer than running them. Assumes a CPU as fast as \
             this one: {} per operator ({} operators, as recorded here) and {} per launch{data}. This time scales with the \
             CPU's single-thread speed: a CPU half as fast takes twice as long. A faster GPU does not help; a larger batch, \
             fewer kernels (`torch.compile`) or CUDA graphs do.",
            units::significant(launches),
            units::duration(per_operator_ns),
            units::significant(operators),
            units::duration(per_launch_ns),
        ),
        Host::Measured { busy } => format!(
            "{bound}: the GPU was busy for {} of the iteration and waited for the CPU otherwise. \
            Assumes a CPU as fast as this one: a faster GPU helps little.",
            units::percent(busy)
        ),
    };
    Some(text)
}

/// Formats the table, followed by the assumptions behind it.
pub fn table(comparison: &Comparison, style: Style) -> String {
    let columns = columns(comparison, style.width);
    let mut cells: Vec<Vec<String>> =
        vec![columns.iter().map(|column| column.heading.clone()).collect()];
    for row in &comparison.rows {
        cells.push(columns.iter().map(|column| (column.cell)(row)).collect());
    }
    let mut page = overhead(comparison).map_or_else(String::new, |said| format!("{said}\n\n"));
    page += &lay_out(&cells, style);
    page.push('\n');
    let has_energy = columns.iter().any(|column| column.heading == ENERGY);
    for line in about(comparison).into_iter().chain(energy_note(comparison).filter(|_| has_energy))
    {
        page += &style.faint(&line);
        page.push('\n');
    }
    page
}

/// Aligns the rows of a table, the first of which has the headings. Names are left-aligned, numbers
/// right-aligned.
pub(super) fn lay_out(rows: &[Vec<String>], style: Style) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width()).max())
        .map(Option::unwrap_or_default)
        .collect();
    let mut page = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width.saturating_sub(cell.width()));
            line += &if at == 0 { format!("{cell}{gap}") } else { format!("  {gap}{cell}") };
        }
        let shown = line.trim_end();
        page += &if index == 0 { style.faint(shown) } else { shown.to_owned() };
        page.push('\n');
    }
    page
}

struct Column {
    heading: String,
    cell: fn(&Row) -> String,
    /// Columns with a higher weight are dropped first on a narrow terminal.
    drop_order: u32,
    width: usize,
}

fn columns(comparison: &Comparison, width: usize) -> Vec<Column> {
    let any = |is_there: fn(&Row) -> bool| comparison.rows.iter().any(is_there);
    let column = |heading: &str, drop_order, width, cell: fn(&Row) -> String| Column {
        heading: heading.to_owned(),
        cell,
        drop_order,
        width,
    };
    let mut columns = vec![
        column("GPU", 0, 28, |row| {
            let mark = if row.here { " (here)" } else { "" };
            format!("{}{mark}", clean(&shorten(&row.device.name, MAX_NAME)))
        }),
        column("iteration", 0, 11, |row| estimated(row, units::duration(row.time_ns.value))),
        column("range", 5, 20, |row| {
            let (low, high) = (units::duration(row.time_ns.low), units::duration(row.time_ns.high));
            format!("{low} to {high}")
        }),
    ];
    if any(|row| row.samples_per_second.is_some()) {
        columns.push(column("samples/s", 2, 11, |row| {
            row.samples_per_second
                .map(|rate| estimated(row, rate_of(row, rate.value)))
                .unwrap_or_default()
        }));
    }
    if any(|row| row.peak_share.is_some()) {
        columns.push(column("memory", 1, 15, memory));
    }
    columns.push(column("price/h", 3, 22, |row| match &row.device.price {
        Some(price) => {
            let date = price.date.as_deref().unwrap_or("yours");
            format!("{} ({})", dollars(price.usd_per_hour), clean(date))
        }
        None => "unknown".to_owned(),
    }));
    if any(|row| row.usd_per_epoch.is_some()) {
        columns.push(column("price/epoch", 1, 13, |row| price(row.usd_per_epoch)));
    } else if any(|row| row.usd_per_million_samples.is_some()) {
        columns.push(column("price/M samples", 1, 17, |row| price(row.usd_per_million_samples)));
    }
    if any(|row| row.joules.is_some()) {
        columns.push(column(ENERGY, 4, 11, |row| {
            let mark = if row.energy_from == Some(EnergyFrom::Measured) { "" } else { "~" };
            row.joules.map(|joules| format!("{mark}{}", energy(joules.value))).unwrap_or_default()
        }));
    }
    while columns.iter().map(|column| column.width).sum::<usize>() > width.max(60) {
        let heaviest = columns.iter().enumerate().max_by_key(|(_, column)| column.drop_order);
        match heaviest {
            Some((at, column)) if column.drop_order > 0 => columns.remove(at),
            _ => break,
        };
    }
    columns
}

fn memory(row: &Row) -> String {
    match row.peak_share {
        None => "unknown".to_owned(),
        Some(share) if share > 1.0 => format!("{} out of memory", units::percent(share)),
        Some(share) => units::percent(share),
    }
}

fn price(usd: Option<Range>) -> String {
    usd.map_or_else(|| "unknown".to_owned(), |usd| format!("~{}", dollars(usd.value)))
}

fn rate_of(row: &Row, rate: f64) -> String {
    if row.here { units::significant(rate) } else { units::estimated(rate) }
}

/// Prefixes estimates with `~`. The measured row has no mark.
fn estimated(row: &Row, value: String) -> String {
    if row.here { value } else { format!("~{value}") }
}

/// The basis of the predicted energies, if there are any.
fn energy_note(comparison: &Comparison) -> Option<String> {
    let is_predicted = |row: &Row| row.energy_from == Some(EnergyFrom::Utilization);
    let note = "Energy per iteration, from board power and predicted utilization.";
    comparison.rows.iter().any(is_predicted).then(|| note.to_owned())
}

/// Sentences about the assumptions behind the numbers.
pub(super) fn about(comparison: &Comparison) -> Vec<String> {
    let batch = comparison
        .batch_size
        .map_or_else(|| "batch size unknown".to_owned(), |batch| format!("batch size {batch}"));
    let basis = match (comparison.basis, &comparison.from) {
        (Basis::WaveScaling, Some(from)) => {
            format!("scaled from the kernels measured on {}", clean(from))
        }
        _ => "from operator costs only, because no GPU was measured".to_owned(),
    };
    let mut lines = vec![format!("~ = predicted, {basis}; {batch}. Ranges are 80% intervals.")];
    lines.extend(comparison.notes.iter().map(|note| clean(&shorten(note, 400))));
    lines
}

/// Adds the measured GPU, the fastest and the cheapest ones to a hover.
pub(super) fn in_hover(page: &mut Page, comparison: &Comparison) {
    let chosen = chosen(comparison);
    if chosen.is_empty() {
        return;
    }
    page.gap();
    let basis = comparison.basis.name();
    page.line(&[strong("On other GPUs"), text(format!(", predicted from {basis}"))]);
    for (row, why) in chosen {
        let mut parts = vec![estimated(row, units::duration(row.time_ns.value))];
        if let Some(rate) = row.samples_per_second {
            let rate = format!("{} samples/s", rate_of(row, rate.value));
            parts.push(estimated(row, rate));
        }
        parts.extend(row.peak_share.map(|_| format!("{} of its memory", memory(row))));
        if let Some(usd) = row.usd_per_million_samples {
            let date = row.device.price.as_ref().and_then(|price| price.date.as_deref());
            let date = date.map(|date| format!(", price of {date}")).unwrap_or_default();
            parts.push(format!("~{} per million samples{date}", dollars(usd.value)));
        }
        let name = shorten(&row.device.name, MAX_NAME);
        page.item(0, &[text(format!("{name} ({why}): {}", parts.join(" · ")))]);
    }
}

/// The rows for a hover, each with the reason. GPUs without enough memory are left out, except the
/// measured one.
fn chosen(comparison: &Comparison) -> Vec<(&Row, &'static str)> {
    let fitting = || comparison.rows.iter().filter(|row| row.fits() != Some(false) && !row.here);
    let mut priced: Vec<(&Row, f64)> =
        fitting().filter_map(|row| Some((row, row.usd_per_million_samples?.value))).collect();
    priced.sort_by(|a, b| a.1.total_cmp(&b.1));
    let cheapest = priced.first().map(|(row, _)| row.device.name.as_str());
    let fastest = fitting().next();
    let is_both = cheapest.is_some() && cheapest == fastest.map(|row| row.device.name.as_str());
    let mut chosen: Vec<(&Row, &'static str)> = Vec::new();
    chosen.extend(comparison.rows.iter().find(|row| row.here).map(|row| (row, "this one")));
    let reason = if is_both { "fastest and cheapest" } else { "fastest" };
    chosen.extend(fastest.map(|row| (row, reason)));
    for (at, (row, _)) in priced.into_iter().take(CHEAPEST).enumerate() {
        if chosen.iter().all(|(other, _)| other.device.name != row.device.name) {
            chosen.push((row, if at == 0 { "cheapest" } else { "cheap" }));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use ridgeline_devices::device_table::DeviceTable;
    use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
    use ridgeline_operators::recorded_step::{CountedOperator, RecordedStep};
    use ridgeline_predict::device_comparison::{ComparisonInput, compare, compare_with_host};

    /// A CPU step of one large matrix multiplication, predicted for three GPUs.
    fn comparison() -> Comparison {
        let tensor = Tensor::new(ElementType::Float32, &[4096, 4096]);
        let arg = || Arg::Tensor(tensor.clone());
        let matmul = Operator::new("aten::mm", vec![arg(), arg()], vec![tensor.clone()]);
        let step = RecordedStep {
            operators: vec![CountedOperator { operator: matmul, calls: 100.0 }],
            batch_size: Some(32),
            peak_bytes: Some(20_000_000_000),
            ..RecordedStep::default()
        };
        let mut comparison =
            compare(ComparisonInput::Recorded(&step), DeviceTable::shipped()).expect("operators");
        let names = ["T4", "RTX3090", "H100-SXM5-80GB"];
        comparison.rows.retain(|row| names.contains(&row.device.name.as_str()));
        // Fixed values, so that changes of the prediction model do not change the expected output.
        for (row, milliseconds) in comparison.rows.iter_mut().zip([300.0, 700.0, 2100.0]) {
            row.time_ns = Range::within_factor(milliseconds * 1e6, 1.5);
            row.samples_per_second = Some(Range::exact(32e3 / milliseconds));
            row.joules = Some(Range::exact(milliseconds / 10.0));
            row.usd_per_million_samples = Some(Range::exact(milliseconds / 100.0));
        }
        comparison
    }

    /// An iteration of many small operators takes equally long on every GPU. The reason is shown
    /// above the table.
    #[test]
    fn an_overhead_bound_iteration() {
        let tensor = Tensor::new(ElementType::Float32, &[8]);
        let arg = || Arg::Tensor(tensor.clone());
        let sum = Operator::new("aten::add.Tensor", vec![arg(), arg()], vec![tensor.clone()]);
        let mut step = RecordedStep {
            operators: vec![CountedOperator { operator: sum, calls: 240.0 }],
            ..RecordedStep::default()
        };
        let compared = |step: &RecordedStep| {
            compare(ComparisonInput::Recorded(step), DeviceTable::shipped()).expect("operators")
        };
        let mut small = compared(&step);
        let page = table(&small, Style { color: false, width: 200 });
        let (first, rest) = page.split_once("\n\n").expect("a paragraph");
        assert!(rest.starts_with("GPU "), "{page}");
        expect!["Overhead-bound on all of these GPUs: launching the 240 kernels of an iteration takes longer than running them. Assumes 15 µs of CPU time per launch (7.0 µs to 35 µs). A faster GPU does not help; a larger batch, fewer kernels (`torch.compile`) or CUDA graphs do."].assert_eq(first);
        small.rows.truncate(2);
        small.rows[1].waits_for_host = false;
        let some = overhead(&small).expect("said");
        assert!(some.starts_with("Overhead-bound on 1 of 2 GPUs: launching"), "{some}");
        // Large matrix multiplications keep every GPU busy.
        assert_eq!(overhead(&comparison()), None);
        step.data_ns = 5e6;
        let waits = overhead(&compared(&step)).expect("said");
        let expected = "Input-bound on all of these GPUs: the iteration waits for data (5.0 ms, as on this machine)";
        assert!(waits.starts_with(expected), "{waits}");
        let measured = Comparison { host: Host::Measured { busy: 0.4 }, ..small };
        let said = overhead(&measured).expect("said");
        assert!(said.contains("busy for 40% of the iteration"), "{said}");
    }

    #[test]
    fn the_recorded_cpu_overhead_is_shown_with_its_scaling() {
        let tensor = Tensor::new(ElementType::Float32, &[8]);
        let arg = || Arg::Tensor(tensor.clone());
        let sum = Operator::new("aten::add.Tensor", vec![arg(), arg()], vec![tensor.clone()]);
        let step = RecordedStep {
            operators: vec![CountedOperator { operator: sum, calls: 240.0 }],
            ..RecordedStep::default()
        };
        let subject = ComparisonInput::Recorded(&step);
        let compared = compare_with_host(subject, DeviceTable::shipped(), Some(20e3));
        let compared = compared.expect("operators");
        expect!["Overhead-bound on all of these GPUs: launching the 240 kernels of an iteration takes longer than running them. Assumes a CPU as fast as this one: 20 µs per operator (240 operators, as recorded here) and 5.0 µs per launch. This time scales with the CPU's single-thread speed: a CPU half as fast takes twice as long. A faster GPU does not help; a larger batch, fewer kernels (`torch.compile`) or CUDA graphs do."].assert_eq(&overhead(&compared).expect("said"));
        // 240 × (20 µs + 5 µs).
        assert_eq!(compared.rows[0].time_ns.value, 6e6);
        // An invalid recorded time falls back to the assumed host.
        let without = compare_with_host(subject, DeviceTable::shipped(), Some(f64::NAN));
        assert_eq!(without, compare(subject, DeviceTable::shipped()));
    }

    #[track_caller]
    fn check(width: usize, expected: Expect) {
        expected.assert_eq(&table(&comparison(), Style { color: false, width }));
    }

    #[test]
    fn a_table_for_a_wide_terminal() {
        check(
            200,
            expect![[r#"
                GPU             iteration             range  samples/s              memory             price/h  price/M samples  energy
                H100-SXM5-80GB    ~300 ms  200 ms to 450 ms       ~107                 25%  $2.99 (2026-09-25)           ~$3.00   ~30 J
                RTX3090           ~700 ms   467 ms to 1.1 s      ~45.7                 83%  $0.46 (2026-11-20)           ~$7.00   ~70 J
                T4                 ~2.1 s    1.4 s to 3.1 s      ~15.2  125% out of memory  $0.35 (2026-09-25)             ~$21  ~210 J

                ~ = predicted, from operator costs only, because no GPU was measured; batch size 32. Ranges are 80% intervals.
                This was a CPU run: GPU times are estimated from operator costs, assuming the same dtypes
                Energy per iteration, from board power and predicted utilization.
            "#]],
        );
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns() {
        check(
            60,
            expect![[r#"
                GPU             iteration              memory
                H100-SXM5-80GB    ~300 ms                 25%
                RTX3090           ~700 ms                 83%
                T4                 ~2.1 s  125% out of memory

                ~ = predicted, from operator costs only, because no GPU was measured; batch size 32. Ranges are 80% intervals.
                This was a CPU run: GPU times are estimated from operator costs, assuming the same dtypes
            "#]],
        );
    }

    #[test]
    fn a_hover_lists_the_fastest_and_the_cheapest() {
        let mut page = Page::default();
        in_hover(&mut page, &comparison());
        let (_, plain) = page.finish();
        expect![[r#"
            On other GPUs, predicted from operator costs
              H100-SXM5-80GB (fastest and cheapest): ~300 ms · ~107 samples/s · 25% of its memory · ~$3.00 per million samples, price of 2026-09-25
              RTX3090 (cheap): ~700 ms · ~45.7 samples/s · 83% of its memory · ~$7.00 per million samples, price of 2026-11-20"#]].assert_eq(&plain);
    }

    #[test]
    fn prices_and_energies() {
        assert_eq!(
            [0.0, 0.0042, 0.31, 1.5, 312.4].map(dollars),
            ["$0", "$0.0042", "$0.31", "$1.50", "$312"]
        );
        assert_eq!([0.42, 36.0, 1234.0].map(energy), ["420 mJ", "36 J", "1.2 kJ"]);
    }
}
