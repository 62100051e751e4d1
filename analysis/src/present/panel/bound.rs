//! What bounds the iteration, and what its parts get out of the device.

use serde::Serialize;

use super::{Place, finite, whole};
use crate::present::explained;
use crate::profile::{Phase, Profile};

/// What bounds the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BoundShown {
    /// The key of the largest share; null where more is unknown.
    verdict: Option<&'static str>,
    /// The verdict in words.
    text: String,
    /// The largest first, what is unknown last; they add up to 1.
    shares: Vec<ShareShown>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ShareShown {
    key: &'static str,
    label: &'static str,
    share: f64,
    time_ns: u64,
    /// What it is made of, in words: lines, else operators.
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

/// What bounds a profile's iteration, where that is known.
pub(super) fn shown(profile: &Profile) -> Option<BoundShown> {
    let bound = profile.bound.as_ref()?;
    let shares = bound.shares.iter().map(|share| ShareShown {
        key: share.by.key(),
        label: explained::label(share.by, bound.on_gpu),
        share: finite(share.share),
        time_ns: whole(share.time_ns),
        evidence: explained::evidence(share, profile),
        place: share.lines.first().and_then(|((file, line), _)| Place::of(profile, *file, *line)),
    });
    Some(BoundShown {
        verdict: bound.verdict().map(|share| share.by.key()),
        text: explained::verdict(bound, profile),
        shares: shares.collect(),
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
