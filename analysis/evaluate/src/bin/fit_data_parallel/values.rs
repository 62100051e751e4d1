//! The fitted values and the fit.

use std::collections::BTreeMap;

use ridgeline_evaluate::benchmark_facts::{UNPUBLISHED, Unpublished};
use ridgeline_evaluate::error_statistics::relative_error;
use ridgeline_evaluate::questions::data_parallel::Pair;
use ridgeline_operators::range::Range;
use ridgeline_optimize::distributed::single_step::{Fitted, SHIPPED};

/// The start of a fit: guesses made before any measurement. The rate is half of PCIe 3, the tokens
/// are two sentences of 25, and decoding an audio clip takes a few milliseconds, of which a third
/// is waiting.
pub(crate) const FIRST_GUESSES: Values = [8e9, 0.01, 50.0, 1.0];
pub(crate) const NAMES: [&str; 4] =
    ["through_host", "waiting", "gnmt_tokens", "feeding_milliseconds"];

/// In the order of [`NAMES`].
pub(crate) type Values = [f64; 4];

pub(crate) fn shipped() -> Values {
    let Unpublished { gnmt_tokens, feeding_milliseconds } = UNPUBLISHED;
    [SHIPPED.through_host, SHIPPED.waiting, gnmt_tokens, feeding_milliseconds]
}

pub(crate) fn shipped_width() -> f64 {
    SHIPPED.width
}

/// Predicts the milliseconds of a step on several GPUs.
pub(crate) fn predict(pair: &Pair, values: &Values, width: f64) -> Range {
    let [through_host, waiting, gnmt_tokens, feeding_milliseconds] = *values;
    let fitted = Fitted { through_host, waiting, width };
    pair.task.milliseconds(&fitted, &Unpublished { gnmt_tokens, feeding_milliseconds })
}

/// The mean over GPUs of the mean error on each: a new GPU resembles another GPU more than another
/// of the sixty pairs of one GPU.
fn loss(pairs: &[&Pair], values: &Values) -> f64 {
    let mut by_gpu: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for pair in pairs {
        let predicted = predict(pair, values, SHIPPED.width).value;
        let (sum, count) = by_gpu.entry(&pair.task.device.name).or_default();
        *sum += relative_error(predicted, pair.measured_milliseconds);
        *count += 1.0;
    }
    by_gpu.values().map(|(sum, count)| sum / count).sum::<f64>() / by_gpu.len().max(1) as f64
}

/// Coordinate descent with decreasing steps.
pub(crate) fn fit(pairs: &[&Pair]) -> Values {
    let mut values = FIRST_GUESSES;
    let mut best = loss(pairs, &values);
    for step in [1.5, 1.2, 1.05, 1.02] {
        loop {
            let before = best;
            for place in 0..values.len() {
                for factor in [step, 1.0 / step] {
                    let mut tried = values;
                    if let Some(value) = tried.get_mut(place) {
                        *value *= factor;
                    }
                    let found = loss(pairs, &tried);
                    if found < best - 1e-9 {
                        (best, values) = (found, tried);
                    }
                }
            }
            if before - best < 1e-6 {
                break;
            }
        }
    }
    values
}
