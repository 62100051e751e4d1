//! The bottleneck of the iteration, and what its parts get out of the device.

use serde::Serialize;

use super::{Place, finite, whole};
use crate::{bottleneck, explained};
use ridgeline_profile::{Phase, Profile};

/// The bottleneck of the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BottleneckShown {
    /// The share in which a GPU was busy; null on a CPU.
    gpu_busy: Option<f64>,
    /// The cause whose removal saves most; null where none dominates, or it is unknown.
    verdict: Option<&'static str>,
    /// The verdict in words.
    text: String,
    /// The largest first, that of the whole host last. They overlap.
    savings: Vec<SavingShown>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SavingShown {
    cause: &'static str,
    label: &'static str,
    at_most_share: f64,
    at_most_ns: u64,
    /// Where it comes from, in words: lines, else operators.
    evidence: String,
    /// The line that has most of it.
    place: Option<Place>,
}

/// What a part of the iteration gets out of the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PartShown {
    name: &'static str,
    facts: Vec<String>,
}

/// The bottleneck of a profile's iteration, where it could be replayed.
pub(super) fn shown(profile: &Profile) -> Option<BottleneckShown> {
    let found = profile.bottleneck.as_ref()?;
    let on_gpu = found.gpu_busy.is_some();
    let savings = bottleneck::shown(found).map(|saving| SavingShown {
        cause: saving.cause.key(),
        label: bottleneck::label(saving.cause, on_gpu),
        at_most_share: finite(saving.share),
        at_most_ns: whole(saving.time_ns),
        evidence: bottleneck::evidence(saving, profile),
        place: saving.lines.first().and_then(|((file, line), _)| Place::of(profile, *file, *line)),
    });
    Some(BottleneckShown {
        gpu_busy: found.gpu_busy.map(finite),
        verdict: bottleneck::verdict_key(found),
        text: bottleneck::verdict(found, profile),
        savings: savings.collect(),
    })
}

/// The iteration and the phases of which there is something to say.
pub(super) fn parts(profile: &Profile) -> Vec<PartShown> {
    let Some(metrics) = &profile.metrics else { return Vec::new() };
    let whole = PartShown {
        name: "iteration",
        facts: explained::facts(&metrics.whole, metrics.iteration_ns, profile, metrics.on_gpu),
    };
    let phases = Phase::ALL
        .map(|phase| PartShown { name: phase.name(), facts: explained::of_phase(phase, profile) });
    let parts = std::iter::once(whole).chain(phases);
    parts.filter(|part| !part.facts.is_empty()).collect()
}
