//! The numbers at the top of the panel.

use serde::Serialize;

use super::changes::{Baselines, Better, Change};
use super::finite;
use crate::headline::peak;
use crate::share::gpu_busy;
use ridgeline_base::units;
use ridgeline_profile::Profile;

/// A number of the headline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Number {
    /// `throughput`, `time`, `memory`, `gpu_busy` or `coverage`.
    pub key: &'static str,
    /// The display name.
    pub label: &'static str,
    /// `312 samples/s`.
    pub text: String,
    /// Samples per second, nanoseconds, bytes, or a share.
    pub value: f64,
    /// The direction in which it improves.
    pub better: Better,
    /// The change since the previous run.
    pub since_last: Option<Change>,
    /// The change since the latest run of the text at HEAD.
    pub since_head: Option<Change>,
}

impl Number {
    fn new(key: &'static str, label: &'static str, text: String, value: f64) -> Number {
        let better = Better::Higher;
        Number {
            key,
            label,
            text,
            value: finite(value),
            better,
            since_last: None,
            since_head: None,
        }
    }
}

/// Returns the known numbers, in display order.
pub(super) fn numbers(profile: &Profile, baselines: &Baselines<'_>) -> Vec<Number> {
    let mut numbers = Vec::new();
    let iteration = &profile.iteration;
    let (last, head) = (baselines.last.as_ref(), baselines.head.as_ref());
    if let Some(rate) = iteration.samples_per_second().filter(|rate| rate.is_finite()) {
        let mark = if iteration.batch_guessed_from.is_some() { "~" } else { "" };
        let text = format!("{mark}{} {}", units::significant(rate), iteration.rate_unit());
        numbers.push(Number {
            since_last: Change::of(last, |found| found.throughput),
            since_head: Change::of(head, |found| found.throughput),
            ..Number::new("throughput", "throughput", text, rate)
        });
    }
    if iteration.time_ns.is_finite() && iteration.time_ns > 0.0 {
        let text = units::duration(iteration.mean_ns());
        let label = if iteration.slow.is_some() { "mean iteration time" } else { "iteration time" };
        numbers.push(Number {
            better: Better::Lower,
            since_last: Change::of(last, |found| found.time),
            since_head: Change::of(head, |found| found.time),
            ..Number::new("time", label, text, iteration.mean_ns())
        });
    }
    if profile.memory.peak_bytes > 0 {
        let bytes = profile.memory.peak_bytes as f64;
        numbers.push(Number {
            better: Better::Lower,
            since_last: Change::of(last, |found| found.peak),
            since_head: Change::of(head, |found| found.peak),
            ..Number::new("memory", "peak memory", peak(profile), bytes)
        });
    }
    if let Some(busy) = gpu_busy(profile) {
        numbers.push(Number::new("gpu_busy", "GPU busy", units::percent(busy), busy));
    }
    let coverage = profile.coverage.time;
    if coverage.is_finite() && coverage > 0.0 {
        let text = units::percent(coverage);
        numbers.push(Number::new("coverage", "attributed to your code", text, coverage));
    }
    numbers
}
