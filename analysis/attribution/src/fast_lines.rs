//! Lines that take less time than recording them: their time was measured in groups, without
//! recording each execution.

use std::collections::HashSet;

use super::contexts::Contexts;
use super::scale::KnownTogether;
use ridgeline_profile::Phase;
use ridgeline_recording::Recording;
use ridgeline_recording::line_log::StackId;

/// Returns the contexts of each group. `timed` are the phases that were timed without the profiler:
/// groups with a part of them are left out, because the other part is unknown.
pub(super) fn known_together(
    recording: &Recording,
    contexts: &Contexts<'_>,
    timed: &[(Phase, f64)],
) -> Vec<KnownTogether> {
    let (Some(manifest), Some(log)) = (&recording.manifest, &recording.lines) else {
        return Vec::new();
    };
    let groups = &manifest.observed.fast_lines;
    if groups.is_empty() {
        return Vec::new();
    }
    let places: Vec<(Option<(u32, u32)>, Phase)> = contexts
        .iter()
        .map(|(_, context)| {
            // The line of the training loop's thread.
            let is_waiting = context.caller != StackId::EMPTY;
            let frame = log.stacks.top(if is_waiting { context.caller } else { context.own });
            let place = frame.and_then(|frame| {
                Some((manifest.codes.get(frame.code as usize)?.file, frame.line))
            });
            (place, context.phase)
        })
        .collect();
    let known = groups.iter().filter_map(|group| {
        let lines: HashSet<(u32, u32)> = group.at.iter().map(|at| (at.file, at.line)).collect();
        let within = |place: Option<(u32, u32)>| place.is_some_and(|place| lines.contains(&place));
        let within: Vec<(usize, Phase)> = places
            .iter()
            .enumerate()
            .filter(|(_, (place, _))| within(*place))
            .map(|(at, (_, phase))| (at, *phase))
            .collect();
        let is_timed = |(_, phase): &(usize, Phase)| timed.iter().any(|(other, _)| other == phase);
        if within.iter().any(is_timed) {
            return None;
        }
        let contexts = within.into_iter().map(|(at, _)| at).collect();
        Some(KnownTogether { contexts, share: group.share })
    });
    known.collect()
}
