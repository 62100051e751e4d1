//! One GPU or several: machines with GPUs of one model, as a table for the terminal and as entries of documents.

use serde::Serialize;

use super::devices::{MAX_NAME, dollars, lay_out};
use super::terminal::Style;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_operators::range::Range;
use ridgeline_optimize::distributed::machines::{
    Machine, Machines, NoMachines, OneGpu, one_or_several,
};
use ridgeline_predict::device_comparison::Comparison;
use ridgeline_predict::gpu_batches::GpuBatches;

/// The GPU models listed if the user did not name fewer: the cheapest and the fastest.
const MAX_NAMED: usize = 3;

/// The iteration on machines with one GPU and with several: with the batch size that each GPU needs, unless all would wait
/// for data with it, otherwise with the program's own.
///
/// # Errors
/// Why they are not compared.
pub(super) fn machines(
    comparison: &Comparison,
    batches: Option<&GpuBatches>,
) -> Result<Machines, NoMachines> {
    let own = comparison.batch_size.filter(|own| *own > 0).ok_or(NoMachines::NoExchange)?;
    let one = |device, batch_size: u64, time_ns, is_measured| {
        let data_ns = comparison.data_ns * batch_size as f64 / own as f64;
        OneGpu { device, batch_size, time_ns, is_measured, data_ns }
    };
    let needed = batches.into_iter().flat_map(|batches| &batches.rows);
    let needed = needed.map(|row| one(&row.device, row.batch_size, row.time_ns, false));
    let fitting = comparison.rows.iter().filter(|row| row.fits() != Some(false));
    let fitting = fitting.map(|row| one(&row.device, own, row.time_ns, row.here));
    one_or_several(&[needed.collect(), fitting.collect()], comparison.gradient_bytes)
}

/// An entry of `machines` in a document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineEntry {
    name: String,
    gpus: u32,
    batch_size: u64,
    time_ns: Range,
    measured: bool,
    samples_per_second: Range,
    usd_per_hour: Option<f64>,
    usd_per_million_samples: Option<Range>,
}

impl MachineEntry {
    /// Returns the entry of a machine.
    pub fn of(machine: &Machine) -> MachineEntry {
        MachineEntry {
            name: clean(&shorten(&machine.device.name, MAX_NAME)),
            gpus: machine.gpus,
            batch_size: machine.batch_size,
            time_ns: machine.time_ns,
            measured: machine.is_measured,
            samples_per_second: machine.samples_per_second,
            usd_per_hour: machine.usd_per_hour,
            usd_per_million_samples: machine.usd_per_million_samples,
        }
    }
}

/// Formats the comparison of one GPU with several, to follow that of the GPUs. Empty if there is none.
pub fn section(
    comparison: &Comparison,
    batches: Option<&GpuBatches>,
    max_price: Option<f64>,
    style: Style,
) -> String {
    match machines(comparison, batches) {
        Ok(machines) => page(&machines, max_price, style),
        Err(NoMachines::WaitsForData) => waits_for_data(style),
        Err(NoMachines::NoExchange) => String::new(),
    }
}

/// Formats the machines with the GPU models that the user named, or else with the cheapest and the fastest model.
/// `max_price` is the budget in US dollars per hour. Empty if there are none.
fn page(machines: &Machines, max_price: Option<f64>, style: Style) -> String {
    let is_affordable = |machine: &&Machine| {
        max_price.is_none_or(|max| machine.usd_per_hour.is_some_and(|usd| usd <= max))
    };
    let affordable: Vec<&Machine> = machines.all.iter().filter(is_affordable).collect();
    let shown = shown(&affordable);
    if !shown.iter().any(|machine| machine.gpus > 1) {
        return String::new();
    }
    let mut page = "\nOne GPU or several in a machine, with data parallelism\n".to_owned();
    page += &table(&shown, style);
    page.push('\n');
    if let (Some(max), Some(best)) = (max_price, fastest(&affordable)) {
        page += &format!(
            "Highest throughput for at most {} per hour: {} with batch size {}{}, ~{} samples/s.\n\n",
            dollars(max),
            label(best),
            best.batch_size,
            if best.gpus > 1 { " each" } else { "" },
            units::estimated(best.samples_per_second.value),
        );
    }
    let note = format!(
        "Each GPU has the batch size of the row, so the total batch grows with their number. They exchange {} of \
         gradients in every iteration, over the usual link of their model. Assumes that data loading keeps up with all \
         of them.{}",
        units::bytes(machines.gradient_bytes),
        if machines.leaves_out_waiting {
            " GPUs that would wait for data are left out."
        } else {
            ""
        },
    );
    page += &style.faint(&note);
    page.push('\n');
    page
}

/// A note in place of the machines.
fn waits_for_data(style: Style) -> String {
    let note = "Several GPUs are not compared, because the iteration waits for data: all GPUs of a machine share the CPU \
                that loads it.";
    format!("{}\n", style.faint(note))
}

/// The machines of the models that are shown.
pub(super) fn shown<'a>(machines: &[&'a Machine]) -> Vec<&'a Machine> {
    let models = shown_models(machines);
    let is_shown = |machine: &&&Machine| models.contains(&machine.device.name.as_str());
    machines.iter().filter(is_shown).copied().collect()
}

/// The models of the machines if they are few, else the cheapest and the fastest one with a price.
fn shown_models<'a>(machines: &[&'a Machine]) -> Vec<&'a str> {
    let mut models: Vec<&str> = Vec::new();
    for machine in machines {
        let model = machine.device.name.as_str();
        if !models.contains(&model) {
            models.push(model);
        }
    }
    if models.len() <= MAX_NAMED {
        return models;
    }
    let alone = || machines.iter().filter(|machine| machine.gpus == 1).copied();
    let usd = |machine: &&Machine| machine.usd_per_million_samples.map(|usd| usd.value);
    let cheapest = alone().filter(|one| usd(one).is_some());
    let cheapest = cheapest
        .min_by(|a, b| usd(a).unwrap_or(f64::INFINITY).total_cmp(&usd(b).unwrap_or(f64::INFINITY)));
    let with_price: Vec<&Machine> = alone().filter(|one| usd(one).is_some()).collect();
    let fastest = fastest(&with_price).or_else(|| fastest(&alone().collect::<Vec<_>>()));
    let mut shown: Vec<&str> =
        cheapest.into_iter().chain(fastest).map(|one| one.device.name.as_str()).collect();
    shown.dedup();
    shown
}

fn fastest<'a>(machines: &[&'a Machine]) -> Option<&'a Machine> {
    let rate = |machine: &Machine| machine.samples_per_second.value;
    machines.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// `4 x A10`.
fn label(machine: &Machine) -> String {
    format!("{} x {}", machine.gpus, clean(&shorten(&machine.device.name, MAX_NAME)))
}

fn table(machines: &[&Machine], style: Style) -> String {
    let headings =
        ["GPUs", "batch size", "iteration", "samples/s", "speedup", "price/h", "price/M samples"];
    let has_price = machines.iter().any(|machine| machine.usd_per_hour.is_some());
    let count = if has_price { headings.len() } else { headings.len() - 2 };
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for machine in machines {
        let alone = machines.iter().find(|one| {
            one.gpus == 1 && one.device.name == machine.device.name && machine.gpus > 1
        });
        let speedup = alone.map(|one| {
            format!("~{:.2}x", machine.samples_per_second.value / one.samples_per_second.value)
        });
        let unknown = || "unknown".to_owned();
        let mark = if machine.is_measured { "" } else { "~" };
        rows.push(vec![
            label(machine),
            machine.batch_size.to_string(),
            format!("{mark}{}", units::duration(machine.time_ns.value)),
            format!("{mark}{}", units::estimated(machine.samples_per_second.value)),
            speedup.unwrap_or_default(),
            machine.usd_per_hour.map_or_else(unknown, dollars),
            machine
                .usd_per_million_samples
                .map_or_else(unknown, |usd| format!("~{}", dollars(usd.value))),
        ]);
    }
    for row in &mut rows {
        row.truncate(count);
    }
    lay_out(&rows, style)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use ridgeline_devices::device_spec::DeviceSpec;
    use ridgeline_devices::device_table::DeviceTable;

    /// Fixed values, so that changes of the prediction model do not change the expected output.
    fn machines() -> Machines {
        let device = |name: &str| -> DeviceSpec {
            DeviceTable::shipped().find(name).expect("known").clone()
        };
        let machine = |name: &str, gpus: u32, milliseconds: f64, usd: Option<f64>| {
            let samples = 64.0 * f64::from(gpus);
            let time_ns = Range::within_factor(milliseconds * 1e6, 1.2);
            Machine {
                device: device(name),
                gpus,
                batch_size: 64,
                time_ns,
                is_measured: false,
                samples_per_second: Range::exact(samples * 1e3 / milliseconds),
                usd_per_hour: usd,
                usd_per_million_samples: usd.map(|usd| time_ns.times(usd / 3.6e12 / samples * 1e6)),
            }
        };
        let all = vec![
            machine("T4", 1, 9.0, Some(0.2)),
            machine("T4", 2, 12.0, Some(0.4)),
            machine("V100-SXM2-16GB", 1, 5.0, Some(0.5)),
            machine("V100-SXM2-16GB", 2, 5.5, Some(1.0)),
            machine("RTX4080", 1, 4.0, None),
            machine("RTX4080", 2, 9.0, None),
            machine("H100-SXM5-80GB", 1, 2.0, Some(2.5)),
            machine("H100-SXM5-80GB", 2, 2.1, Some(5.0)),
        ];
        Machines { all, gradient_bytes: 44.7e6, leaves_out_waiting: false }
    }

    const STYLE: Style = Style { color: false, width: 100 };

    #[test]
    fn the_cheapest_and_the_fastest_model() {
        expect![[r#"

            One GPU or several in a machine, with data parallelism
            GPUs                batch size  iteration  samples/s  speedup  price/h  price/M samples
            1 x T4                      64    ~9.0 ms      ~7110             $0.20         ~$0.0078
            2 x T4                      64     ~12 ms     ~10700   ~1.50x    $0.40          ~$0.010
            1 x H100-SXM5-80GB          64    ~2.0 ms     ~32000             $2.50          ~$0.022
            2 x H100-SXM5-80GB          64    ~2.1 ms     ~61000   ~1.90x    $5.00          ~$0.023

            Each GPU has the batch size of the row, so the total batch grows with their number. They exchange 44.7 MB of gradients in every iteration, over the usual link of their model. Assumes that data loading keeps up with all of them.
        "#]].assert_eq(&page(&machines(), None, STYLE));
    }

    #[test]
    fn the_best_machine_within_a_budget() {
        expect![[r#"

            One GPU or several in a machine, with data parallelism
            GPUs                batch size  iteration  samples/s  speedup  price/h  price/M samples
            1 x T4                      64    ~9.0 ms      ~7110             $0.20         ~$0.0078
            2 x T4                      64     ~12 ms     ~10700   ~1.50x    $0.40          ~$0.010
            1 x V100-SXM2-16GB          64    ~5.0 ms     ~12800             $0.50          ~$0.011
            2 x V100-SXM2-16GB          64    ~5.5 ms     ~23300   ~1.82x    $1.00          ~$0.012

            Highest throughput for at most $1.00 per hour: 2 x V100-SXM2-16GB with batch size 64 each, ~23300 samples/s.

            Each GPU has the batch size of the row, so the total batch grows with their number. They exchange 44.7 MB of gradients in every iteration, over the usual link of their model. Assumes that data loading keeps up with all of them. GPUs that would wait for data are left out.
        "#]].assert_eq(&page(&Machines { leaves_out_waiting: true, ..machines() }, Some(1.0), STYLE));
    }

    #[test]
    fn a_measured_iteration_is_not_marked_as_predicted() {
        let mut machines = machines();
        machines.all.truncate(2);
        machines.all.iter_mut().for_each(|one| one.is_measured = one.gpus == 1);
        let page = page(&machines, None, STYLE);
        assert!(page.contains(" 9.0 ms ") && page.contains("~12 ms"), "{page}");
    }

    #[test]
    fn models_without_a_price() {
        let mut machines = machines();
        machines.all.retain(|machine| machine.usd_per_hour.is_none());
        expect![[r#"

            One GPU or several in a machine, with data parallelism
            GPUs         batch size  iteration  samples/s  speedup
            1 x RTX4080          64    ~4.0 ms     ~16000
            2 x RTX4080          64    ~9.0 ms     ~14200   ~0.89x

            Each GPU has the batch size of the row, so the total batch grows with their number. They exchange 44.7 MB of gradients in every iteration, over the usual link of their model. Assumes that data loading keeps up with all of them.
        "#]].assert_eq(&page(&machines, None, STYLE));
    }

    #[test]
    fn nothing_to_compare() {
        assert_eq!(page(&Machines { all: Vec::new(), ..machines() }, None, STYLE), "");
        assert_eq!(page(&machines(), Some(0.3), STYLE), "");
    }
}
