//! The factors with the least error, beside what is thought of them before any measurement.

use std::collections::BTreeSet;

use ridgeline_evaluate::error_statistics::relative_error;
use ridgeline_optimize::optimizations::shared::factors::Factors;

use crate::cases::Case;

/// How much a factor's distance from its first guess (in the logarithm, squared) weighs beside the
/// mean error: what the data says nothing of stays where it was.
const PRIOR: f64 = 0.001;
/// What a factor may be: no change makes one sort of work a hundred times shorter or thirty times longer.
const LIMITS: (f64, f64) = (0.01, 30.0);

/// Before any fit.
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

/// What is fused or need not be turned any more takes little, and everything else what it did.
fn first_guess(kind: &str) -> f64 {
    let vanishes = ["joins.", "turning", "bias_of_convolution"];
    if vanishes.iter().any(|start| kind.starts_with(start)) { 0.3 } else { 1.0 }
}

/// |predicted / measured - 1| of each case.
pub(crate) fn errors(cases: &[&Case], factors: &Factors) -> Vec<f64> {
    cases.iter().map(|case| relative_error(case.predicted(factors), case.after_ns)).collect()
}

/// One factor after another is moved while that helps, in ever smaller steps.
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

/// One of the numbers that are fitted.
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
    // A little of the square keeps large errors from being given up.
    let mean =
        errors.iter().map(|error| error + error * error).sum::<f64>() / errors.len().max(1) as f64;
    let moved: f64 =
        factors.factors.iter().map(|(kind, factor)| (factor / start.of(kind)).ln().powi(2)).sum();
    let rest = (factors.rest / start.rest).ln().powi(2);
    let carried = (factors.carried / start.carried).ln().powi(2);
    mean + PRIOR * (moved + rest + carried)
}
