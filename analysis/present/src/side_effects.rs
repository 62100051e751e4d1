//! What a run wrote that was kept from the disk, for the person who started it.

use std::fmt::Write as _;

use ridgeline_base::printable::printable;
use ridgeline_base::units;
use ridgeline_profile::side_effects::{ChangeKind, SideEffects};

/// Changes that a sentence names; the others are counted. One that is kept is short.
const NAMED: usize = 20;
const NAMED_IN_NOTE: usize = 3;

/// What was kept from the disk, as one sentence; nothing where the program changed nothing. With
/// `names_outside`, files outside of the project have their names: no other sentence is kept.
pub fn sentence(effects: &SideEffects, names_outside: bool) -> Option<String> {
    if effects.count == 0 {
        return None;
    }
    let named: Vec<String> = effects
        .changes
        .iter()
        .filter(|change| names_outside || !change.outside)
        .take(if names_outside { NAMED } else { NAMED_IN_NOTE })
        .map(|change| {
            let path = printable(&change.path);
            match change.change {
                ChangeKind::Removed => format!("{path} removed"),
                _ => format!("{path} {}", units::bytes(change.bytes as f64)),
            }
        })
        .collect();
    let files = if effects.count == 1 { "file" } else { "files" };
    let at_least = if effects.is_whole { "" } else { "at least " };
    let mut text = format!("Not written to disk: {at_least}{} {files}", effects.count);
    if !named.is_empty() {
        let more = if (named.len() as u64) < effects.count { ", …" } else { "" };
        // Writing to a text does not fail.
        let _ = write!(text, " ({}{more})", named.join(", "));
    }
    text.push_str(". `--side-effects allow`, or `side_effects` in ridgeline.toml, keeps them");
    Some(text)
}

/// What could not be held, as one sentence.
pub fn warning(effects: &SideEffects) -> Option<String> {
    let how = match effects.held_by.as_str() {
        "python" => {
            "This system does not allow mounts for a run: only writes through Python's own \
            functions were kept off the disk"
        }
        "landlock" => {
            "This system does not allow mounts for a run: writes through Python's own functions \
            were redirected, other writes were denied"
        }
        "nothing" => "The program's writes were not redirected: they are on disk",
        _ if !effects.open.is_empty() => {
            let count = effects.open.len();
            let places = if count == 1 { "place" } else { "places" };
            return Some(format!(
                "{count} {places} could not be redirected: files written there are on disk"
            ));
        }
        _ => return None,
    };
    Some(how.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_profile::side_effects::Change;

    fn effects() -> SideEffects {
        let change = |path: &str, change, outside| Change {
            path: path.to_owned(),
            change,
            bytes: 1_200_000,
            outside,
        };
        SideEffects {
            mode: "redirect".to_owned(),
            held_by: "kernel".to_owned(),
            changes: vec![
                change("out/old.pt", ChangeKind::Removed, false),
                change("out/model.pt", ChangeKind::Changed, false),
                change("~/runs.log", ChangeKind::Changed, true),
            ],
            count: 3,
            is_whole: true,
            ..SideEffects::default()
        }
    }

    #[test]
    fn what_was_kept_from_the_disk_is_named() {
        let end = ". `--side-effects allow`, or `side_effects` in ridgeline.toml, keeps them";
        let said = "Not written to disk: 3 files (out/old.pt removed, out/model.pt 1.2 MB, ~/runs.log 1.2 MB)";
        assert_eq!(sentence(&effects(), true), Some(format!("{said}{end}")));
        // A sentence that is kept names nothing outside of the project.
        let said = "Not written to disk: 3 files (out/old.pt removed, out/model.pt 1.2 MB, …)";
        assert_eq!(sentence(&effects(), false), Some(format!("{said}{end}")));
        assert_eq!(sentence(&SideEffects::default(), true), None);
    }

    #[test]
    fn what_was_not_held_is_said() {
        assert_eq!(warning(&effects()), None);
        let open = SideEffects { open: vec!["/data: busy".to_owned()], ..effects() };
        let said = "1 place could not be redirected: files written there are on disk";
        assert_eq!(warning(&open).as_deref(), Some(said));
        for held_by in ["python", "landlock", "nothing"] {
            let effects = SideEffects { held_by: held_by.to_owned(), ..effects() };
            assert!(warning(&effects).is_some());
        }
    }
}
