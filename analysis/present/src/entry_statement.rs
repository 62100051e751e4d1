//! The statement through which a script enters a training loop that is in another file, such as
//! `Trainer(config).fit()`. Without it, the file that a user opens and saves would show nothing.

use std::cmp::Reverse;

use crate::cost_map::{CostMap, StatementCost};
use crate::hints::has_all_phases;
use ridgeline_profile::Profile;
use ridgeline_python::SourceIndex;

/// Returns the statement of this file that is nearest to the loop, if the loop is elsewhere and the
/// file is the script: the calls begin at its top level.
pub(super) fn entry_statement<'a>(
    profile: &Profile,
    costs: &'a CostMap,
    index: &SourceIndex,
) -> Option<&'a StatementCost> {
    if costs.training_loop.is_some() {
        return None;
    }
    let entering = || costs.statements.iter().filter(|cost| has_all_phases(profile, cost));
    let is_script = entering().any(|cost| index.scope_at(cost.span.start) == 0);
    // Of `main()` and the `trainer.fit()` in it, the deeper one.
    let column = |cost: &StatementCost| {
        cost.span.start.saturating_sub(index.lines().start_of(cost.first_line))
    };
    let deepest = entering().min_by_key(|cost| (Reverse(column(cost)), cost.span.start));
    deepest.filter(|_| is_script)
}

/// Returns the place of the loop, such as `loop at engine.py:12`, if it is known.
pub(super) fn loop_place(profile: &Profile) -> Option<String> {
    let (file, line) = profile.iteration.loop_line?;
    let file = profile.files.get(file.0 as usize)?;
    Some(format!("loop at {}:{line}", file.path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::costs;
    use ridgeline_profile::{FileFacts, FileId};

    const TRAIN: &str = "\
def main():
    model = Net()                              #= M0
    engine.fit(model, loader)                  #= d8 f25 b40 o20.2 a90 w9 s0

if __name__ == \"__main__\":
    main()                                     #= d8 f25 b40 o20.2 a90 w9 s0
";

    #[test]
    fn the_deepest_statement_that_enters_the_loop() {
        let (mut profile, costs, index) = costs(TRAIN, None);
        let line = |profile: &Profile| {
            entry_statement(profile, &costs, &index).map(|entry| entry.first_line)
        };
        assert_eq!(line(&profile), Some(3));
        assert_eq!(loop_place(&profile), None);
        profile.files.push(FileFacts { path: "engine.py".to_owned(), ..FileFacts::default() });
        profile.iteration.loop_line = Some((FileId(1), 12));
        assert_eq!(line(&profile), Some(3));
        assert_eq!(loop_place(&profile).as_deref(), Some("loop at engine.py:12"));
    }

    #[test]
    fn a_file_that_others_call_is_not_the_script() {
        let text = TRAIN.lines().take(3).collect::<Vec<_>>().join("\n");
        let (profile, costs, index) = costs(&text, None);
        assert_eq!(entry_statement(&profile, &costs, &index), None);
    }

    #[test]
    fn a_file_with_the_loop_has_none() {
        let text = ridgeline_compare::fixture::TRAIN;
        let (profile, costs, index) = costs(text, None);
        assert_eq!(entry_statement(&profile, &costs, &index), None);
    }
}
