//! Lines that take less time than recording them: their time was measured in groups, without
//! recording each execution.

use std::collections::HashMap;

use super::contexts::Contexts;
use super::scale::KnownTogether;
use ridgeline_profile::Phase;
use ridgeline_recording::Recording;
use ridgeline_recording::line_log::StackId;
use ridgeline_recording::observed::FastLines;

/// The maximum number of groups. A program has one for each loop of such lines.
const MAX_GROUPS: usize = 64;

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
    let groups = manifest.observed.fast_lines.iter().take(MAX_GROUPS);
    let mut known: Vec<Option<KnownTogether>> = Vec::new();
    let mut group_of: HashMap<(u32, u32), usize> = HashMap::new();
    for (group, FastLines { at, share }) in groups.enumerate() {
        known.push(Some(KnownTogether { contexts: Vec::new(), share: *share }));
        group_of.extend(at.iter().map(|at| ((at.file, at.line), group)));
    }
    if known.is_empty() {
        return Vec::new();
    }
    for (index, (_, context)) in contexts.iter().enumerate() {
        // The line of the training loop's thread.
        let is_waiting = context.caller != StackId::EMPTY;
        let frame = log.stacks.top(if is_waiting { context.caller } else { context.own });
        let group = frame.and_then(|frame| {
            let file = manifest.codes.get(frame.code as usize)?.file;
            known.get_mut(*group_of.get(&(file, frame.line))?)
        });
        let Some(group) = group else { continue };
        if timed.iter().any(|(phase, _)| *phase == context.phase) {
            *group = None;
        } else if let Some(known) = group {
            known.contexts.push(index);
        }
    }
    known.into_iter().flatten().collect()
}
