//! Messages about the writes of a run that were kept off the disk.

use std::fmt::Write as _;

use ridgeline_base::printable::printable;
use ridgeline_base::units;
use ridgeline_profile::side_effects::{Change, ChangeKind, SideEffects};

/// The maximum number of changes that are listed one by one.
const MAX_SEPARATE: usize = 5;
/// The maximum number of changes and folders listed in a sentence; the others are counted.
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
    let limit = if names_outside { MAX_LISTED } else { MAX_LISTED_IN_NOTE };
    let shown = effects.changes.iter().filter(|change| names_outside || !change.outside);
    let (named, changes) = named(shown, limit);
    let files = if effects.count == 1 { "file" } else { "files" };
    let at_least = if effects.is_whole { "" } else { "at least " };
    let mut text = format!("Not written to disk: {at_least}{} {files}", effects.count);
    if !named.is_empty() {
        let more = if changes < effects.count { ", …" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, " ({}{more})", named.join(", "));
    }
    text.push_str(". `--side-effects allow`, or `side_effects` in ridgeline.toml, keeps them");
    Some(text)
}

/// Names changes, and counts them. A folder with several stands for them if there are many.
fn named<'a>(changes: impl Iterator<Item = &'a Change>, limit: usize) -> (Vec<String>, u64) {
    let changes: Vec<&Change> = changes.collect();
    let folder = |change: &Change| match change.path.trim_start_matches('/').split_once('/') {
        Some((folder, _)) if change.change != ChangeKind::Removed && folder != "~" => {
            let length = change.path.find(folder).unwrap_or(0) + folder.len();
            change.path.get(..length).map(str::to_owned)
        }
        _ => None,
    };
    let mut groups: Vec<(Option<String>, Vec<&Change>)> = Vec::new();
    for change in &changes {
        let own = folder(change).filter(|_| changes.len() > MAX_SEPARATE);
        match groups.iter_mut().find(|(name, _)| name.is_some() && *name == own) {
            Some((_, group)) => group.push(change),
            None => groups.push((own, vec![change])),
        }
    }
    groups.truncate(limit);
    let count = groups.iter().map(|(_, group)| group.len() as u64).sum();
    let text = |(name, group): &(Option<String>, Vec<&Change>)| match (name, group.as_slice()) {
        (_, [change]) if change.change == ChangeKind::Removed => {
            format!("{} removed", printable(&change.path))
        }
        (_, [change]) => {
            format!("{} {}", printable(&change.path), units::bytes(change.bytes as f64))
        }
        (name, group) => {
            let bytes: f64 = group.iter().map(|change| change.bytes as f64).sum();
            let folder = printable(name.as_deref().unwrap_or_default());
            format!("{} in {folder}/ {}", group.len(), units::bytes(bytes))
        }
    };
    (groups.iter().map(text).collect(), count)
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
    fn many_writes_are_listed_by_folder() {
        let change = |path: String| Change {
            path,
            change: ChangeKind::Changed,
            bytes: 1_000,
            outside: false,
        };
        let mut changes: Vec<Change> =
            (0..9).map(|at| change(format!("wandb/run/{at}.log"))).collect();
        changes.push(change("model.pt".to_owned()));
        let effects = SideEffects { changes, count: 10, is_whole: true, ..SideEffects::default() };
        let text = sentence(&effects, true).unwrap_or_default();
        assert!(text.contains("10 files (9 in wandb/ 9.0 kB, model.pt 1.0 kB). "), "{text}");
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
