//! Cross-validation: fits without one group of measurements, evaluated on that group.

use std::collections::BTreeMap;

use ridgeline_evaluate::conformal::{SHARE, calibrated, min_width};
use ridgeline_evaluate::error_statistics::relative_error;
use ridgeline_evaluate::questions::data_parallel::Pair;
use ridgeline_optimize::distributed::single_step::SHIPPED;

use super::values::{Values, fit, predict};

/// The maximum width of a range.
const MAX_WIDTH: f64 = 20.0;

/// The error of the prediction for one measurement.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The group that it was held out with.
    pub(crate) group: String,
    /// The number of GPUs.
    pub(crate) gpus: u32,
    /// |predicted / measured - 1|.
    pub(crate) error: f64,
    /// The minimum width with which the range contains the measurement.
    pub(crate) needed_width: f64,
    /// Whether the range contains the measurement.
    pub(crate) in_range: bool,
}

impl Outcome {
    /// Predicts pairs with these values. A `width` of `None` is the shipped one.
    pub(crate) fn of(pairs: &[&Pair], values: &Values, width: Option<f64>) -> Vec<Outcome> {
        let width = width.unwrap_or(SHIPPED.width);
        let outcome = |pair: &&Pair| {
            let measured = pair.measured_milliseconds;
            let contains = |width: f64| {
                let range = predict(pair, values, width);
                (range.low..=range.high).contains(&measured)
            };
            Outcome {
                group: String::new(),
                gpus: pair.task.gpus,
                error: relative_error(predict(pair, values, width).value, measured),
                needed_width: min_width(MAX_WIDTH, contains),
                in_range: contains(width),
            }
        };
        pairs.iter().map(outcome).collect()
    }
}

/// Holds each group out in turn. The range of a group has the width that the other groups need.
pub(crate) fn held_out(all: &[&Pair], group: impl Fn(&Pair) -> String) -> Vec<Outcome> {
    let mut groups: BTreeMap<String, Vec<&Pair>> = BTreeMap::new();
    for pair in all {
        groups.entry(group(pair)).or_default().push(pair);
    }
    let mut outcomes = Vec::new();
    for (name, pairs) in &groups {
        let rest: Vec<&Pair> = all.iter().filter(|pair| group(pair) != *name).copied().collect();
        let found = Outcome::of(pairs, &fit(&rest), None);
        outcomes.extend(found.into_iter().map(|one| Outcome { group: name.clone(), ..one }));
    }
    let widths: BTreeMap<&String, Option<f64>> = groups
        .keys()
        .map(|name| {
            let others = outcomes.iter().filter(|one| one.group != *name);
            let needed: Vec<f64> = others.map(|one| one.needed_width).collect();
            (name, calibrated(&needed, SHARE))
        })
        .collect();
    for one in &mut outcomes {
        let width = widths.get(&one.group).copied().flatten();
        one.in_range = width.is_some_and(|width| one.needed_width <= width);
    }
    outcomes
}

/// Returns the width that contains [`SHARE`] of the held-out measurements.
pub(crate) fn calibrate(outcomes: &[Outcome]) -> Option<f64> {
    let needed: Vec<f64> = outcomes.iter().map(|one| one.needed_width).collect();
    calibrated(&needed, SHARE)
}
