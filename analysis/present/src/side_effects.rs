//! Messages about the writes of a run that were kept off the disk.

use std::fmt::Write as _;

use ridgeline_base::printable::printable;
use ridgeline_base::units;
use ridgeline_profile::side_effects::{ChangeKind, SideEffects};

/// The maximum number of changes listed in a sentence; the others are counted.
const MAX_LISTED: usize = 20;
/// The same for notes, which are stored and therefore short.
const MAX_LISTED_IN_NOTE: usize = 3;

/// The writes that were kept off the disk, as one sentence. `None` if the program wrote nothing.
/// `names_outside` lists files outside the project too, and is only for sentences that are not
/// stored.
pub fn sentence(effects: &SideEffects, names_outside: bool) -> Option<String> {
    if effects.count == 0 {
        return None;
    }
    let named: Vec<String> = effects
        .changes
        .iter()
        .filter(|change| names_outside || !change.outside)
        .take(if names_outside { MAX_LISTED } else { MAX_LISTED_IN_NOTE })
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
        // Writing to a string cannot fail.
        let _ = write!(text, " ({}{more})", named.join(", "));
    }
    text.push_str(". `--side-effects allow`, or `side_effects` in ridgeline.toml, keeps them");
    Some(text)
}

/// The writes that could not be redirected, as one sentence.
pub fn warning(effects: &SideEffects) -> Option<String> {
    let message = match effects.held_by.as_str() {
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
    Some(message.to_owned())
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
    fn redirected_writes_are_listed() {
        let end = ". `--side-effects allow`, or `side_effects` in ridgeline.toml, keeps them";
        let expected = "Not written to disk: 3 files (out/old.pt removed, out/model.pt 1.2 MB, ~/runs.log 1.2 MB)";
        assert_eq!(sentence(&effects(), true), Some(format!("{expected}{end}")));
        // A stored sentence lists nothing outside the project.
        let expected = "Not written to disk: 3 files (out/old.pt removed, out/model.pt 1.2 MB, …)";
        assert_eq!(sentence(&effects(), false), Some(format!("{expected}{end}")));
        assert_eq!(sentence(&SideEffects::default(), true), None);
    }

    #[test]
    fn writes_that_were_not_redirected_are_reported() {
        assert_eq!(warning(&effects()), None);
        let open = SideEffects { open: vec!["/data: busy".to_owned()], ..effects() };
        let expected = "1 place could not be redirected: files written there are on disk";
        assert_eq!(warning(&open).as_deref(), Some(expected));
        for held_by in ["python", "landlock", "nothing"] {
            let effects = SideEffects { held_by: held_by.to_owned(), ..effects() };
            assert!(warning(&effects).is_some());
        }
    }
}
