//! All optimizations on one iteration: what each brings, which ones bring most together, and why the
//! others do not apply.

use super::facts::Facts;
use super::optimization::{NoPrediction, Optimization, Prediction, predict};
use super::optimizations;
use ridgeline_graph::recorded::Recorded;

/// Combinations are looked for among so many of the best.
const CANDIDATES: usize = 6;
/// So many combinations are kept.
const COMBINATIONS: usize = 3;
/// So many are joined at most.
const MOST_JOINED: usize = 4;
/// A combination is worth telling where it is faster than its best part by this.
const WORTH: f64 = 1.01;

/// What if.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIfs {
    /// The most samples a second first; research last.
    pub predictions: Vec<Prediction>,
    /// The best few together that fit.
    pub combinations: Vec<Prediction>,
    /// What does not apply: its name, its title and why.
    pub refusals: Vec<Refused>,
}

/// An optimization that does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// On the command line.
    pub name: &'static str,
    /// As a person reads it.
    pub title: &'static str,
    /// A sentence without a full stop.
    pub why: String,
}

/// What each of `wanted` brings, by name; all of them where `wanted` is empty. Combinations stay below
/// `memory_limit` bytes.
pub fn rank(
    recorded: &Recorded,
    facts: &Facts<'_>,
    wanted: &[&str],
    memory_limit: Option<f64>,
) -> WhatIfs {
    rank_until(recorded, facts, wanted, memory_limit, &|| false)
}

/// The same, cut short as soon as `stop` says so.
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
            Err(NoPrediction::DoesNotApply(why)) => found.refusals.push(Refused {
                name: optimization.name(),
                title: optimization.title(),
                why,
            }),
            Err(NoPrediction::Simulation(error)) => found.refusals.push(Refused {
                name: optimization.name(),
                title: optimization.title(),
                why: error.to_string(),
            }),
        }
    }
    sort(&mut found.predictions);
    candidates.retain(|(one, speedup)| *speedup > WORTH && one.joins() && !one.is_research());
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
    candidates.truncate(CANDIDATES);
    if !stop() {
        found.combinations = combinations(recorded, facts, &candidates, memory_limit);
    }
    found
}

/// The most samples a second first; research last.
pub(crate) fn sort(predictions: &mut [Prediction]) {
    predictions.sort_by(|a, b| {
        let by_speedup = b.speedup().value.total_cmp(&a.speedup().value);
        a.is_research.cmp(&b.is_research).then(by_speedup)
    });
}

/// Grows combinations from the best candidates, one at a time: those that bring nothing together with
/// the ones before are left out.
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
        let mut joined: Vec<&dyn Optimization> = Vec::new();
        let mut best: Option<Prediction> = None;
        let mut speedup = 0.0;
        let others = (0..candidates.len()).filter(|index| *index != first);
        for index in std::iter::once(first).chain(others) {
            let Some((one, alone)) = candidates.get(index) else { continue };
            if joined.len() >= MOST_JOINED || joined.iter().any(|other| !other.goes_with(*one)) {
                continue;
            }
            let mut tried = joined.clone();
            tried.push(*one);
            in_order(&mut tried);
            let Ok(prediction) = predict(&recorded.graph, &recorded.schedule, facts, &tried) else {
                continue;
            };
            let then = prediction.speedup().value;
            if then >= alone.max(speedup) * WORTH || (joined.is_empty() && then > 1.0) {
                (joined, speedup) = (tried, then);
                best = Some(prediction);
            }
        }
        let Some(best) = best.filter(|best| best.names.len() > 1 && fits(best)) else { continue };
        if !found.iter().any(|known| known.names == best.names) {
            found.push(best);
        }
    }
    sort(&mut found);
    found.truncate(COMBINATIONS);
    found
}

/// In the order of [`optimizations::ALL`], in which the graph has to be changed.
fn in_order(joined: &mut [&dyn Optimization]) {
    let place = |one: &&dyn Optimization| {
        optimizations::ALL.iter().position(|known| known.name() == one.name())
    };
    joined.sort_by_key(place);
}
