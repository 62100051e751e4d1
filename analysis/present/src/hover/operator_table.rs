//! The table of a line's operators: time, shapes, and the rates they reached.

use ridgeline_base::printable::shorten;
use ridgeline_base::units;
use ridgeline_operators::matmul_kernel::{MatmulType, matmul_type};
use ridgeline_profile::{OperatorCost, Phase, Profile};

use crate::page::{Page, count, name, text};

/// The maximum number of operators listed.
const MAX_OPERATORS: usize = 4;
/// Maximum length of an operator name, in characters.
const MAX_NAME: usize = 28;
/// The minimum FLOPs per byte of an operator that is described by FLOP/s. Element-wise operators,
/// normalizations and copies have fewer, and are bound by memory.
const MIN_MATMUL_INTENSITY: f64 = 8.0;
/// Maximum length of the input shapes, in characters.
const MAX_INPUTS: usize = 32;

/// Writes the most expensive operators that fit.
pub(super) fn write(page: &mut Page, profile: &Profile, mut operators: Vec<&OperatorCost>) {
    if operators.is_empty() || page.room() < 2 {
        return;
    }
    operators.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
    let shown = operators.len().min(MAX_OPERATORS).min(page.room() - 1);
    let title = match operators.len() {
        all if all > shown => format!("Operators: {shown} of {all}"),
        _ => "Operators".to_owned(),
    };
    let listed = || operators.iter().take(shown);
    let rates: Vec<Rates> = listed().map(|operator| Rates::of(operator, profile)).collect();
    let has_peaks = rates.iter().any(Rates::has_peaks);
    let last = if has_peaks { "of peak" } else { "reached" };
    let headings = [title, "time".to_owned(), "inputs".to_owned(), last.to_owned()];
    let rows = listed().zip(&rates).map(|(operator, rates)| row(operator, rates, has_peaks));
    let rows: Vec<[String; 4]> = std::iter::once(headings).chain(rows).collect();
    let is_used: [bool; 4] = std::array::from_fn(|at| {
        rows.iter().skip(1).any(|row| row.get(at).is_some_and(|cell| !cell.is_empty()))
    });
    let used = |row: [String; 4]| -> Vec<String> {
        row.into_iter().zip(is_used).filter_map(|(cell, used)| used.then_some(cell)).collect()
    };
    page.table(&rows.into_iter().map(used).collect::<Vec<_>>());
    let kernels = operators.iter().flat_map(|operator| &operator.kernels);
    if let Some(kernel) = kernels.max_by(|a, b| a.time_ns.total_cmp(&b.time_ns)) {
        let mut about = format!(" {}", units::duration(kernel.time_ns));
        if let Some(occupancy) = kernel.occupancy {
            about += &format!(" · occupancy {}", units::percent(occupancy));
        }
        page.gap();
        page.line(&[text("most expensive kernel: "), name(&kernel.name), text(about)]);
    }
}

fn row(operator: &OperatorCost, rates: &Rates, has_peaks: bool) -> [String; 4] {
    let mut time = units::duration(operator.time_ns);
    if operator.calls > 1.05 {
        time += &format!(" in {} calls", count(operator.calls));
    }
    if let Some(phase) = operator.phase {
        // The same abbreviations as in hints.
        let phase = match phase {
            Phase::Forward => "fwd",
            Phase::Backward => "bwd",
            other => other.name(),
        };
        time += &format!(" {phase}");
    }
    // Most operators are from ATen, and the prefix would fill much of a narrow column.
    let name = shorten(operator.name.trim_start_matches("aten::"), MAX_NAME);
    let inputs = shorten(&grouped(&operator.inputs), MAX_INPUTS);
    [name, time, inputs, if has_peaks { rates.of_peaks() } else { rates.reached() }]
}

/// Groups equal inputs: `3× [64, 64] float` for three inputs of the same shape, and `[8, 4], [4]
/// float` for two of one type.
fn grouped(inputs: &str) -> String {
    let inputs = split(inputs);
    let typed: Option<Vec<(&str, &str)>> =
        inputs.iter().map(|input| input.rsplit_once(' ')).collect();
    let one_type = typed.as_deref().and_then(|typed| {
        let (_, first) = typed.first()?;
        typed.iter().all(|(_, other)| other == first).then_some(*first)
    });
    let shapes: Vec<&str> = match (&typed, one_type) {
        (Some(typed), Some(_)) => typed.iter().map(|(shape, _)| *shape).collect(),
        _ => inputs,
    };
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for shape in shapes {
        match groups.last_mut() {
            Some((last, times)) if *last == shape => *times += 1,
            _ => groups.push((shape, 1)),
        }
    }
    let text = groups.into_iter().map(|(shape, times)| match times {
        1 => shape.to_owned(),
        _ => format!("{times}× {shape}"),
    });
    let text = text.collect::<Vec<_>>().join(", ");
    one_type.map(|one| format!("{text} {one}")).unwrap_or(text)
}

/// Splits a list of inputs, where `[1, 2] float` is one input.
fn split(inputs: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, letter) in inputs.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.extend(inputs.get(start..at).map(str::trim));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.extend(inputs.get(start..).map(str::trim).filter(|last| !last.is_empty()));
    found
}

/// The rates that an operator reached, each with the device's peak: FLOP/s and B/s.
struct Rates {
    compute: Option<(f64, Option<f64>)>,
    bandwidth: Option<(f64, Option<f64>)>,
}

impl Rates {
    fn of(operator: &OperatorCost, profile: &Profile) -> Rates {
        let kernels: f64 = operator.kernels.iter().map(|kernel| kernel.time_ns).sum();
        let time = if kernels > 0.0 { kernels } else { operator.time_ns };
        let roof = profile.device.attainable_roof().unwrap_or_default();
        let inputs = operator.inputs.to_lowercase();
        let is_half = ["half", "float16", "bf16", "fp16"].iter().any(|name| inputs.contains(name));
        let mut gemms = operator.kernels.iter().filter_map(|kernel| matmul_type(&kernel.name));
        let flops_roof = match gemms.next() {
            _ if is_half => roof.fp16_flops,
            Some(MatmulType::Half) => roof.fp16_flops,
            Some(MatmulType::Tf32) => roof.tf32_flops,
            _ => roof.fp32_flops,
        };
        let rate = |amount: Option<f64>, roof: Option<f64>| {
            let amount = amount.filter(|amount| *amount > 0.0 && time > 0.0)?;
            Some((amount / (time / 1e9), roof.filter(|roof| *roof > 0.0)))
        };
        Rates {
            compute: rate(operator.flops, flops_roof),
            bandwidth: rate(operator.bytes, roof.bandwidth),
        }
    }

    fn has_peaks(&self) -> bool {
        let both = [self.compute, self.bandwidth];
        both.into_iter().flatten().any(|(_, roof)| roof.is_some())
    }

    /// `compute 50%`: the higher of the two shares of peak.
    fn of_peaks(&self) -> String {
        let share = |named: &'static str, rate: Option<(f64, Option<f64>)>| {
            let (reached, roof) = rate?;
            Some((named, reached / roof?))
        };
        let shares = [share("compute", self.compute), share("bandwidth", self.bandwidth)];
        let highest = shares.into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1));
        highest
            .map_or_else(String::new, |(named, share)| format!("{named} {}", units::percent(share)))
    }

    /// `30 TFLOP/s`, or `200 GB/s` if the operator computes little for each byte.
    fn reached(&self) -> String {
        let computes = |flops: f64| {
            self.bandwidth.is_none_or(|(bytes, _)| flops > MIN_MATMUL_INTENSITY * bytes)
        };
        match (self.compute, self.bandwidth) {
            (Some((flops, _)), _) if computes(flops) => units::rate(flops, "FLOP/s"),
            (_, Some((bytes, _))) => units::rate(bytes, "B/s"),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_that_compute_little_reach_a_bandwidth() {
        let check = |flops: Option<f64>, bytes: Option<f64>, expected: &str| {
            let rates = Rates {
                compute: flops.map(|flops| (flops, None)),
                bandwidth: bytes.map(|bytes| (bytes, None)),
            };
            assert_eq!(rates.reached(), expected);
        };
        check(Some(9e9), Some(1e9), "9.0 GFLOP/s");
        check(Some(8e9), Some(1e9), "1.0 GB/s");
        check(Some(8e9), None, "8.0 GFLOP/s");
        check(None, Some(1e9), "1.0 GB/s");
        check(None, None, "");
    }

    #[test]
    fn equal_inputs_are_grouped() {
        let check = |inputs: &str, expected: &str| assert_eq!(grouped(inputs), expected);
        check("[8, 4] float, [8, 4] float, [] double", "2× [8, 4] float, [] double");
        check("[8, 4] float, [4, 8] float, [8, 4] float", "[8, 4], [4, 8], [8, 4] float");
        check("[8, 4] float, [8, 4] float", "2× [8, 4] float");
        check("", "");
        check("]],[,[", "]], [,[");
    }
}
