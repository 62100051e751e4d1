//! The bottleneck of the iteration, and the utilization of its parts.

use serde::Serialize;

use super::{Place, finite, whole};
use crate::{bottleneck, explained};
use ridgeline_profile::{Phase, Profile};

/// The bottleneck of the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BottleneckEntry {
    /// The share of the iteration during which the GPU was busy; null on a CPU.
    gpu_busy: Option<f64>,
    /// The cause whose removal saves most; null if none dominates or the bottleneck is unknown.
    verdict: Option<&'static str>,
    /// The verdict as text.
    text: String,
    /// Largest first, with the saving for the whole host last. They overlap.
    savings: Vec<SavingEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SavingEntry {
    cause: &'static str,
    label: &'static str,
    at_most_share: f64,
    at_most_ns: u64,
    /// The source of the saving as text: lines, or operators if no lines are known.
    evidence: String,
    /// The line that accounts for most of it.
    place: Option<Place>,
}

/// The utilization of a part of the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PartEntry {
    name: &'static str,
    facts: Vec<String>,
}

/// Returns the bottleneck of a profile. `None` if the iteration could not be replayed.
pub(super) fn bottleneck_entry(profile: &Profile) -> Option<BottleneckEntry> {
    let found = profile.bottleneck.as_ref()?;
    let on_gpu = found.gpu_busy.is_some();
    let savings = bottleneck::shown_savings(found).map(|saving| SavingEntry {
        cause: saving.cause.key(),
        label: bottleneck::label(saving.cause, on_gpu),
        at_most_share: finite(saving.share),
        at_most_ns: whole(saving.time_ns),
        evidence: bottleneck::evidence(saving, profile),
        place: saving.lines.first().and_then(|((file, line), _)| Place::of(profile, *file, *line)),
    });
    Some(BottleneckEntry {
        gpu_busy: found.gpu_busy.map(finite),
        verdict: bottleneck::verdict_key(found),
        text: bottleneck::verdict(found, profile),
        savings: savings.collect(),
    })
}

/// Returns the iteration and the phases that have facts.
pub(super) fn parts(profile: &Profile) -> Vec<PartEntry> {
    let Some(metrics) = &profile.metrics else { return Vec::new() };
    let iteration = PartEntry {
        name: "iteration",
        facts: explained::facts(&metrics.whole, metrics.iteration_ns, profile, metrics.on_gpu),
    };
    let phases = Phase::ALL
        .map(|phase| PartEntry { name: phase.name(), facts: explained::of_phase(phase, profile) });
    let parts = std::iter::once(iteration).chain(phases);
    parts.filter(|part| !part.facts.is_empty()).collect()
}
