//! The report of a fit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Value, json};

use crate::cases::Case;

/// Formats the number of cases in each set.
pub(crate) fn counts(cases: &[Case]) -> String {
    let mut counts: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for case in cases {
        let (count, groups) = counts.entry(case.set.as_str()).or_default();
        *count += 1;
        groups.insert(&case.group);
    }
    let lines = counts
        .iter()
        .map(|(set, (count, groups))| format!("{set}: {count} cases in {} groups", groups.len()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats `|predicted / measured - 1|` by set, and by device for transformers and operators.
pub(crate) fn table(title: &str, cases: &[Case], errors: &[f64]) -> String {
    let mut text = format!(
        "{title}:\n  {:44} {:>5} {:>7} {:>7} {:>7} {:>7}\n",
        "", "cases", "mean", "median", "90%", "bias"
    );
    for (name, set_errors) in sets(cases, errors) {
        let Summary { count, mean, median, tail, bias } = summary(&set_errors);
        let _ = writeln!(
            text,
            "  {name:44} {count:5} {:6.1}% {:6.1}% {:6.1}% {:+6.1}%",
            100.0 * mean,
            100.0 * median,
            100.0 * tail,
            100.0 * bias,
        );
    }
    text
}

fn sets(cases: &[Case], errors: &[f64]) -> BTreeMap<String, Vec<f64>> {
    let mut sets: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (case, error) in cases.iter().zip(errors).filter(|(_, error)| error.is_finite()) {
        let set = if case.left_out_device().is_some() {
            format!("{} on {}", case.set, case.group)
        } else {
            case.set.clone()
        };
        sets.entry(set).or_default().push(*error);
    }
    sets
}

struct Summary {
    count: usize,
    mean: f64,
    median: f64,
    tail: f64,
    bias: f64,
}

fn summary(logarithms: &[f64]) -> Summary {
    let mut errors: Vec<f64> = logarithms.iter().map(|error| (error.exp() - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let count = errors.len();
    let at = |share: f64| errors.get(((count as f64 - 1.0) * share).round() as usize).copied();
    let mut signed = logarithms.to_vec();
    signed.sort_by(f64::total_cmp);
    Summary {
        count,
        mean: errors.iter().sum::<f64>() / count.max(1) as f64,
        median: at(0.5).unwrap_or(f64::NAN),
        tail: at(0.9).unwrap_or(f64::NAN),
        bias: signed.get(count / 2).map_or(f64::NAN, |error| error.exp() - 1.0),
    }
}

/// Returns the factor that contains 90% of the errors.
pub(crate) fn factor(mut logarithms: Vec<f64>) -> Option<f64> {
    logarithms.retain(|error| error.is_finite());
    logarithms.iter_mut().for_each(|error| *error = error.abs());
    logarithms.sort_by(f64::total_cmp);
    logarithms.get(logarithms.len().checked_sub(1)? * 9 / 10).map(|error| error.exp())
}

/// Lists the steps with the largest errors.
pub(crate) fn worst(cases: &[Case], errors: &[f64]) -> String {
    let mut steps: Vec<_> = cases.iter().zip(errors).filter(|(case, _)| case.is_step).collect();
    steps.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let lines = steps.iter().take(60).map(|(case, error)| {
        let (factor, milliseconds) = (error.exp(), case.measured_ns / 1e6);
        format!("  {:5.2} x  {:16} {:40} {milliseconds:8.1} ms", factor, case.set, case.name)
    });
    format!("furthest off:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Returns the provenance that is written next to the coefficients.
pub(crate) fn provenance(cases: &[Case], errors: &[f64]) -> Value {
    let errors: BTreeMap<String, Value> = sets(cases, errors)
        .into_iter()
        .map(|(set, set_errors)| {
            let Summary { count, mean, median, tail, .. } = summary(&set_errors);
            let percent = |share: f64| (1000.0 * share).round() / 10.0;
            let row = json!({
                "cases": count,
                "mean_percent": percent(mean),
                "median_percent": percent(median),
                "p90_percent": percent(tail),
            });
            (set, row)
        })
        .collect();
    json!({
        "fitted_by": "analysis/evaluate/src/bin/fit_op_costs",
        "measured_by": {
            "timm": "huggingface/pytorch-image-models, results/, Apache-2.0: train-amp-{nchw,nhwc}-pt112-cu113-rtx3090, infer-amp-{nchw,nhwc}-pt240-cu124-rtx3090, infer-amp-nchw-pt240-cu124-rtx4090",
            "lambda": "lambdal/deeplearning-benchmark, MIT: training throughput on one GPU, FP32 and FP16, without GNMT, Tacotron 2 and WaveGlow",
            "neusight": "sitar-lab/NeuSight (ASPLOS 2025), MIT: ops/, models.csv without variants",
        },
        "errors_of_what_was_left_out": errors,
        "left_out": "families of image models in six parts; devices one by one for the rest",
    })
}
