//! The results of a fit, as text and as the shipped file.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ridgeline_evaluate::error_statistics::error_statistics;
use ridgeline_optimize::optimizations::shared::factors::Factors;

use crate::cases::Case;

/// Prints one line of errors.
pub(crate) fn errors(name: &str, errors: &[f64]) {
    if let Some(found) = error_statistics(errors) {
        println!(
            "{name:<30} {:>4} cases: mean {:.1}%, median {:.1}%, 90% {:.1}%",
            found.cases,
            found.mean * 100.0,
            found.median * 100.0,
            found.p90 * 100.0
        );
    }
}

/// Prints each factor with the share of time it applies to.
pub(crate) fn factors(cases: &[&Case], factors: &Factors) {
    for (kind, factor) in &factors.factors {
        let share = |case: &Case| case.before_of(Some(kind)) / case.before_of(None).max(1.0);
        let mean = cases.iter().map(|case| share(case)).sum::<f64>() / cases.len().max(1) as f64;
        println!("{kind:<28} {factor:>6.3}  {:>5.1}% of the time before", mean * 100.0);
    }
    println!("{:<28} {:>6.3}", "rest", factors.rest);
    println!("{:<28} {:>6.3}", "carried", factors.carried);
}

/// Prints the groups that contribute most to the mean error.
pub(crate) fn groups(cases: &[(&Case, f64)]) {
    let mut by_group: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (case, value) in cases {
        by_group.entry(&case.group).or_default().push(value / case.after_ns - 1.0);
    }
    let weight = |errors: &[f64]| errors.iter().map(|error| error.abs()).sum::<f64>();
    let mut sorted: Vec<_> = by_group.into_iter().collect();
    sorted.sort_by(|one, two| weight(&two.1).total_cmp(&weight(&one.1)));
    for (group, errors) in sorted.iter().take(20) {
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        println!(
            "{group:<24} {:>3} cases, off by {:.0}%, on average {:+.0}%",
            errors.len(),
            100.0 * weight(errors) / errors.len() as f64,
            100.0 * mean
        );
    }
}

/// Prints the cases with the largest errors.
pub(crate) fn worst(mut cases: Vec<(&Case, f64)>) {
    let error = |(case, value): &(&Case, f64)| (value / case.after_ns).ln();
    cases.sort_by(|one, two| error(two).abs().total_cmp(&error(one).abs()));
    for one in cases.iter().take(25) {
        let (case, value) = one;
        println!(
            "{:<60} {:+.0}%: measured {:.2}, predicted {:.2} of before; modelled before {:.2}",
            case.name,
            100.0 * (error(one).exp() - 1.0),
            case.after_ns / case.before_ns,
            value / case.before_ns,
            case.before_of(None) / case.before_ns
        );
    }
}

/// Returns the shipped file.
pub(crate) fn json(on: &str, parts: usize, factors: &Factors, held_out: &[f64]) -> Result<String> {
    let found = error_statistics(held_out).context("no cases")?;
    let source = format!(
        "Fitted by analysis/evaluate/src/bin/fit_what_ifs to {} pairs of {on}. Held out in {parts} parts: mean \
         error {:.1}%, median {:.1}%, 90% {:.1}%.",
        found.cases,
        found.mean * 100.0,
        found.median * 100.0,
        found.p90 * 100.0
    );
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let rounded: BTreeMap<&String, f64> =
        factors.factors.iter().map(|(kind, factor)| (kind, round(*factor))).collect();
    let document = serde_json::json!({
        "source": source,
        "factors": rounded,
        "rest": round(factors.rest),
        "carried": round(factors.carried),
        "range": round(1.0 + found.p90),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}
