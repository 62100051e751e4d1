//! Fits the factors with the smallest error, with priors.

use std::collections::BTreeSet;

use ridgeline_evaluate::error_statistics::relative_error;
use ridgeline_optimize::optimizations::shared::factors::Factors;

use crate::cases::Case;

/// The weight of a factor's distance from its first guess (logarithm, squared) relative to the mean
/// error. Factors that the data does not determine keep their guess.
const PRIOR_WEIGHT: f64 = 0.001;
/// The limits of a factor: no change makes one kind of work a hundred times shorter or thirty times
/// longer.
const LIMITS: (f64, f64) = (0.01, 30.0);

/// The factors before any fit.
pub(crate) fn first_guesses(cases: &[Case]) -> Factors {
    let kinds: BTreeSet<&str> =
        cases.iter().flat_map(|case| case.parts.iter().map(|part| part.kind)).collect();
    Factors {
        source: String::new(),
        factors: kinds.into_iter().map(|kind| (kind.to_owned(), first_guess(kind))).collect(),
        rest: 0.5,
        carried: 0.9,
        range: 1.3,
    }
}

/// The first guess: fused operators and layout conversions that are no longer needed take little
/// time, everything else does not change.
fn first_guess(kind: &str) -> f64 {
    let removed = ["joins.", "turning", "bias_of_convolution"];
    if removed.iter().any(|start| kind.starts_with(start)) { 0.3 } else { 1.0 }
}

/// Returns |predicted / measured - 1| of each case.
pub(crate) fn errors(cases: &[&Case], factors: &Factors) -> Vec<f64> {
    cases.iter().map(|case| relative_error(case.predicted(factors), case.after_ns)).collect()
}

/// Coordinate descent with decreasing steps.
pub(crate) fn fit(cases: &[&Case], start: &Factors) -> Factors {
    let mut found = start.clone();
    let mut best = loss(cases, &found, start);
    let mut places: Vec<Place> = found.factors.keys().cloned().map(Place::Factor).collect();
    places.extend([Place::Rest, Place::Carried]);
    for step in [2.0, 1.3, 1.1, 1.03] {
        for _ in 0..6 {
            let before = best;
            for place in &places {
                for factor in [step, 1.0 / step] {
                    let mut tried = found.clone();
                    place.multiply(&mut tried, factor);
                    let loss = loss(cases, &tried, start);
                    if loss < best {
                        (best, found) = (loss, tried);
                    }
                }
            }
            if before - best < 1e-5 {
                break;
            }
        }
    }
    found
}

/// A fitted number.
enum Place {
    Factor(String),
    Rest,
    Carried,
}

impl Place {
    fn multiply(&self, factors: &mut Factors, by: f64) {
        let (place, (low, high)) = match self {
            Place::Factor(kind) => (factors.factors.get_mut(kind), LIMITS),
            Place::Rest => (Some(&mut factors.rest), LIMITS),
            Place::Carried => (Some(&mut factors.carried), (0.1, 1.0)),
        };
        if let Some(place) = place {
            *place = (*place * by).clamp(low, high);
        }
    }
}

fn loss(cases: &[&Case], factors: &Factors, start: &Factors) -> f64 {
    let errors = errors(cases, factors);
    // The quadratic term keeps the fit from ignoring large errors.
    let mean =
        errors.iter().map(|error| error + error * error).sum::<f64>() / errors.len().max(1) as f64;
    let moved: f64 =
        factors.factors.iter().map(|(kind, factor)| (factor / start.of(kind)).ln().powi(2)).sum();
    let rest = (factors.rest / start.rest).ln().powi(2);
    let carried = (factors.carried / start.carried).ln().powi(2);
    mean + PRIOR_WEIGHT * (moved + rest + carried)
}
