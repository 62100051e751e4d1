//! The roofline chart: the operators of each line, with the device's peak rates.

use serde::Serialize;

use super::{Place, finite, name, whole};
use ridgeline_attribution::metrics::roofline::{Arithmetic, Bound, achieved};
use ridgeline_profile::{FileId, OperatorCost, Profile, Roof};

/// The maximum number of operators in the chart.
const MAX_POINTS: usize = 300;

/// The operators of one iteration as points, and the device's ceilings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RooflineEntry {
    /// The source of the ceilings; null if they are unknown.
    rates_from: Option<String>,
    /// The peak bandwidth in bytes per second.
    bandwidth: Option<f64>,
    /// The peak rates by type of arithmetic.
    peaks: Vec<PeakEntry>,
    /// Highest time first.
    points: Vec<PointEntry>,
    /// The number of points beyond the limit.
    left_out: usize,
    /// The time of operators that compute nothing, such as copies.
    without_flops_ns: u64,
    /// The time of operators whose FLOPs or bytes are unknown.
    unknown_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PeakEntry {
    name: &'static str,
    flops_per_second: f64,
}

/// The calls of an operator with the same shapes from one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct PointEntry {
    name: String,
    inputs: String,
    /// The most expensive kernel.
    kernel: Option<String>,
    place: Option<Place>,
    phase: Option<&'static str>,
    time_ns: u64,
    flops: f64,
    bytes: f64,
    /// The peak that applies.
    peak: &'static str,
    /// `compute` or `memory`; null without ceilings.
    bound: Option<&'static str>,
    /// The share of the attainable rate.
    share_of_roof: Option<f64>,
}

/// Returns the chart of a profile.
pub(super) fn roofline_entry(profile: &Profile) -> RooflineEntry {
    let roof = profile.device.attainable_roof();
    let mut entry = RooflineEntry {
        rates_from: profile.device.rates_from(),
        bandwidth: roof.and_then(|roof| roof.bandwidth).filter(|rate| is_positive(*rate)),
        peaks: roof.as_ref().map(peaks).unwrap_or_default(),
        points: Vec::new(),
        left_out: 0,
        without_flops_ns: 0,
        unknown_ns: 0,
    };
    for (lines, file) in profile.lines.iter().zip(0..) {
        for line in lines {
            let place = Place::of(profile, FileId(file), line.line);
            for operator in line.operators.iter().filter(|operator| operator.self_time_ns > 0.0) {
                entry.add(operator, place, roof.as_ref());
            }
        }
    }
    entry.points.sort_by_key(|point| std::cmp::Reverse(point.time_ns));
    entry.left_out = entry.points.len().saturating_sub(MAX_POINTS);
    entry.points.truncate(MAX_POINTS);
    entry
}

impl RooflineEntry {
    fn add(&mut self, operator: &OperatorCost, place: Option<Place>, roof: Option<&Roof>) {
        match (operator.flops, operator.bytes) {
            (Some(flops), Some(bytes)) if is_positive(flops) && is_positive(bytes) => {
                self.points.push(point(operator, place, roof, flops, bytes));
            }
            (Some(0.0), Some(_)) => self.without_flops_ns += whole(operator.self_time_ns),
            _ => self.unknown_ns += whole(operator.self_time_ns),
        }
    }
}

fn peaks(roof: &Roof) -> Vec<PeakEntry> {
    let known = [
        (Arithmetic::Fp32, roof.fp32_flops),
        (Arithmetic::Tf32, roof.tf32_flops),
        (Arithmetic::Half, roof.fp16_flops),
    ];
    let known = known.into_iter().filter_map(|(arithmetic, rate)| {
        let flops_per_second = rate.filter(|rate| is_positive(*rate))?;
        Some(PeakEntry { name: arithmetic.name(), flops_per_second })
    });
    known.collect()
}

/// `flops` and `bytes` are those of all calls that the line lists. The chart has those of its own.
fn point(
    operator: &OperatorCost,
    place: Option<Place>,
    roof: Option<&Roof>,
    flops: f64,
    bytes: f64,
) -> PointEntry {
    let own = (operator.self_time_ns / operator.time_ns).min(1.0);
    let reached = achieved(operator, roof);
    PointEntry {
        name: name(&operator.name),
        inputs: name(&operator.inputs),
        kernel: operator.kernels.first().map(|kernel| name(&kernel.name)),
        place,
        phase: operator.phase.map(ridgeline_profile::Phase::name),
        time_ns: whole(operator.self_time_ns),
        flops: finite(flops * own),
        bytes: finite(bytes * own),
        peak: Arithmetic::of(operator).name(),
        bound: reached.bound.map(|bound| match bound {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
        }),
        share_of_roof: reached.share_of_roof.map(finite),
    }
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_compare::fixture::{TRAIN, profile};
    use ridgeline_profile::{Device, LineCost};

    fn operator(name: &str, flops: Option<f64>, bytes: Option<f64>) -> OperatorCost {
        OperatorCost {
            name: name.to_owned(),
            time_ns: 2e6,
            self_time_ns: 1e6,
            inputs: "[8, 8] float".to_owned(),
            flops,
            bytes,
            ..OperatorCost::default()
        }
    }

    fn profile_with(operators: Vec<OperatorCost>, roof: Option<Roof>) -> Profile {
        let (_, mut profile) = profile(TRAIN);
        profile.device = Device { roof, ..Device::default() };
        profile.lines = vec![vec![LineCost { line: 3, operators, ..LineCost::default() }]];
        profile
    }

    const ROOF: Roof = Roof {
        fp32_flops: Some(10e12),
        tf32_flops: None,
        fp16_flops: Some(f64::NAN),
        bandwidth: Some(1e12),
    };

    #[test]
    fn points_have_the_work_of_their_own_line() {
        let operators = vec![operator("aten::mm", Some(8e9), Some(4e6))];
        let entry = roofline_entry(&profile_with(operators, Some(ROOF)));
        let point = entry.points.first().expect("a point");
        assert_eq!((point.time_ns, point.flops, point.bytes), (1_000_000, 4e9, 2e6));
        // 4 TFLOP/s of the 10 that are attainable.
        assert_eq!((point.bound, point.share_of_roof), (Some("compute"), Some(0.4)));
        assert_eq!(point.place, Some(Place { file: 0, line: 3 }));
    }

    #[test]
    fn unknown_ceilings_are_not_invented() {
        let operators = vec![operator("aten::mm", Some(8e9), Some(4e6))];
        let entry = roofline_entry(&profile_with(operators.clone(), Some(ROOF)));
        assert_eq!(entry.peaks, [PeakEntry { name: "FP32", flops_per_second: 10e12 }]);
        let entry = roofline_entry(&profile_with(operators, None));
        assert_eq!((entry.rates_from, entry.bandwidth, entry.peaks.len()), (None, None, 0));
        let point = entry.points.first().expect("a point");
        assert_eq!((point.bound, point.share_of_roof), (None, None));
    }

    #[test]
    fn operators_without_a_position_are_counted() {
        let operators = vec![
            operator("aten::copy_", Some(0.0), Some(4e6)),
            operator("mine::op", None, None),
            operator("aten::mm", Some(1.0), None),
            operator("aten::mm", Some(f64::INFINITY), Some(1.0)),
            OperatorCost { self_time_ns: 0.0, ..operator("aten::mm", Some(1.0), Some(1.0)) },
        ];
        let entry = roofline_entry(&profile_with(operators, Some(ROOF)));
        assert_eq!(entry.points, []);
        assert_eq!((entry.without_flops_ns, entry.unknown_ns), (1_000_000, 3_000_000));
    }

    #[test]
    fn the_number_of_points_is_limited_to_the_most_expensive() {
        let operators = (0..MAX_POINTS + 5).map(|index| OperatorCost {
            self_time_ns: 1e3 * (1 + index) as f64,
            ..operator("aten::mm", Some(1e6), Some(1e6))
        });
        let entry = roofline_entry(&profile_with(operators.collect(), None));
        assert_eq!((entry.points.len(), entry.left_out), (MAX_POINTS, 5));
        assert_eq!(entry.points.first().map(|point| point.time_ns), Some(305_000));
    }
}
