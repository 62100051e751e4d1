//! Ranks all optimizations for one iteration: the effect of each, the best combinations, and why
//! the others do not apply.

use super::facts::Facts;
use super::optimization::{NoPrediction, Optimization, Prediction, predict};
use super::optimizations;
use ridgeline_graph::recorded::Recorded;

/// The number of best optimizations considered for combinations.
const CANDIDATES: usize = 6;
/// The maximum number of combinations in the result.
const MAX_COMBINATIONS: usize = 3;
/// The maximum number of optimizations in a combination.
const MAX_COMBINATION_SIZE: usize = 4;
/// The minimum speedup of a combination over its best part.
const MIN_IMPROVEMENT: f64 = 1.01;

/// The ranked what-ifs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIfs {
    /// Sorted by speedup, research last.
    pub predictions: Vec<Prediction>,
    /// The best combinations that fit the memory limit.
    pub combinations: Vec<Prediction>,
    /// Optimizations that do not apply, with the reason.
    pub refusals: Vec<Inapplicable>,
}

/// An optimization that does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inapplicable {
    /// Name on the command line.
    pub name: &'static str,
    /// Title shown to the user.
    pub title: &'static str,
    /// The reason: a sentence without a full stop.
    pub why: String,
}

/// Predicts the effects of the `wanted` optimizations by name, or of all if `wanted` is empty.
/// Combinations stay below `memory_limit` bytes.
pub fn rank(
    recorded: &Recorded,
    facts: &Facts<'_>,
    wanted: &[&str],
    memory_limit: Option<f64>,
) -> WhatIfs {
    rank_until(recorded, facts, wanted, memory_limit, &|| false)
}

/// Ranks like [`rank`], but stops early when `stop` returns true.
pub fn rank_until(
    recorded: &Recorded,
    facts: &Facts<'_>,
    wanted: &[&str],
    memory_limit: Option<f64>,
    stop: &dyn Fn() -> bool,
) -> WhatIfs {
    let mut found = WhatIfs::default();
    let mut candidates: Vec<(&dyn Optimization, f64)> = Vec::new();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
    for optimization in optimizations::ALL.iter().filter(|one| is_wanted(one.name())) {
        if stop() {
            return found;
        }
        match predict(&recorded.graph, &recorded.schedule, facts, &[*optimization]) {
            Ok(prediction) => {
                candidates.push((*optimization, prediction.speedup().value));
                found.predictions.push(prediction);
            }
            Err(NoPrediction::DoesNotApply(why)) => found.refusals.push(Inapplicable {
                name: optimization.name(),
                title: optimization.title(),
                why,
            }),
            Err(NoPrediction::Simulation(error)) => found.refusals.push(Inapplicable {
                name: optimization.name(),
                title: optimization.title(),
                why: error.to_string(),
            }),
        }
    }
    sort(&mut found.predictions);
    candidates.retain(|(one, speedup)| {
        *speedup > MIN_IMPROVEMENT && one.can_combine() && !one.is_research()
    });
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
    candidates.truncate(CANDIDATES);
    if !stop() {
        found.combinations = combinations(recorded, facts, &candidates, memory_limit);
    }
    found
}

/// Sorts by speedup, research last.
pub(crate) fn sort(predictions: &mut [Prediction]) {
    predictions.sort_by(|a, b| {
        let by_speedup = b.speedup().value.total_cmp(&a.speedup().value);
        a.is_research.cmp(&b.is_research).then(by_speedup)
    });
}

/// Grows combinations from the best candidates, one at a time. Candidates that do not improve a
/// combination are skipped.
fn combinations(
    recorded: &Recorded,
    facts: &Facts<'_>,
    candidates: &[(&dyn Optimization, f64)],
    memory_limit: Option<f64>,
) -> Vec<Prediction> {
    let fits = |prediction: &Prediction| {
        let peak = prediction.peak_bytes.map(|peak| peak.value);
        memory_limit.is_none_or(|limit| peak.is_none_or(|peak| peak <= limit))
    };
    let mut found: Vec<Prediction> = Vec::new();
    for first in 0..candidates.len() {
        let mut combined: Vec<&dyn Optimization> = Vec::new();
        let mut best: Option<Prediction> = None;
        let mut speedup = 0.0;
        let others = (0..candidates.len()).filter(|index| *index != first);
        for index in std::iter::once(first).chain(others) {
            let Some((one, single_speedup)) = candidates.get(index) else { continue };
            if combined.len() >= MAX_COMBINATION_SIZE
                || combined.iter().any(|other| !other.is_compatible_with(*one))
            {
                continue;
            }
            let mut candidate = combined.clone();
            candidate.push(*one);
            sort_by_application(&mut candidate);
            let Ok(prediction) = predict(&recorded.graph, &recorded.schedule, facts, &candidate)
            else {
                continue;
            };
            let new_speedup = prediction.speedup().value;
            if new_speedup >= single_speedup.max(speedup) * MIN_IMPROVEMENT
                || (combined.is_empty() && new_speedup > 1.0)
            {
                (combined, speedup) = (candidate, new_speedup);
                best = Some(prediction);
            }
        }
        let Some(best) = best.filter(|best| best.names.len() > 1 && fits(best)) else { continue };
        if !found.iter().any(|known| known.names == best.names) {
            found.push(best);
        }
    }
    sort(&mut found);
    found.truncate(MAX_COMBINATIONS);
    found
}

/// Sorts into the order of [`optimizations::ALL`], in which the graph has to be changed.
fn sort_by_application(combined: &mut [&dyn Optimization]) {
    let place = |one: &&dyn Optimization| {
        optimizations::ALL.iter().position(|known| known.name() == one.name())
    };
    combined.sort_by_key(place);
}
