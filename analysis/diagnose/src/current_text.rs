//! [`CurrentText`]: where a finding is in the current text, and whether it is suppressed there.

use super::suppression::SuppressionComments;
use ridgeline_python::{LineMap, SourceIndex};

/// The current text of a file, and its relation to the text in which findings were found.
#[derive(Clone, Debug)]
pub struct CurrentText<'a> {
    index: &'a SourceIndex,
    map: LineMap,
    comments: SuppressionComments,
}

impl<'a> CurrentText<'a> {
    /// `then` has the line checksums of the text in which findings were found. If it is empty,
    /// lines are assumed not to have moved.
    pub fn new(then: &[u32], index: &'a SourceIndex) -> CurrentText<'a> {
        let map = LineMap::new(then, index.lines().checksums());
        CurrentText { index, map, comments: SuppressionComments::read(index) }
    }

    /// Maps a line of the old text to the current text. Returns `None` if its statement has changed
    /// or is gone.
    pub fn line(&self, then: u32) -> Option<u32> {
        let place = self.map.place(then).filter(|place| !place.changed)?;
        self.is_unchanged(place.line).then_some(place.line)
    }

    /// Whether the statement on a line of the current text is unchanged.
    pub fn is_unchanged(&self, line: u32) -> bool {
        let (first, last) = self.statement(line);
        (first..=last).all(|line| {
            let is_blank = self.index.lines().trimmed(self.index.text(), line).is_empty();
            is_blank || self.map.origin(line).is_some()
        })
    }

    /// Whether a comment suppresses the findings of a rule at a line of the current text.
    pub fn is_suppressed(&self, rule: &str, line: u32) -> bool {
        let (first, last) = self.statement(line);
        self.comments.suppresses(rule, first, last)
    }

    /// The first and the last line of the statement on a line; for a compound statement, of its
    /// header.
    pub fn statement(&self, line: u32) -> (u32, u32) {
        let at = self.index.statement_on_line(line);
        let found = at.and_then(|at| self.index.statements().get(at));
        found
            .filter(|one| !one.broken)
            .map_or((line, line), |one| (one.first_line.min(line), one.last_line.max(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_python::fingerprint;

    const THEN: &str = "a()\nb(\n    1,\n)\nfor x in y:\n    c()\n";

    #[track_caller]
    fn check(now: &str, expected: &[(u32, Option<u32>)]) {
        let index = SourceIndex::new(now);
        let today = CurrentText::new(&fingerprint(THEN), &index);
        for (then, line) in expected {
            assert_eq!(today.line(*then), *line, "line {then} of {now}");
        }
    }

    #[test]
    fn a_finding_moves_with_its_statement() {
        check(THEN, &[(1, Some(1)), (3, Some(3)), (6, Some(6))]);
        check(&format!("import z\n\n{THEN}"), &[(1, Some(3)), (3, Some(5)), (6, Some(8))]);
    }

    #[test]
    fn a_finding_disappears_when_its_statement_changes() {
        let now = THEN.replace("    1,", "    2,").replace("c()", "d()");
        check(&now, &[(1, Some(1)), (2, None), (3, None), (4, None), (5, Some(5)), (6, None)]);
        check("b()\n", &[(1, None), (99, None)]);
    }

    #[test]
    fn new_lines_are_not_unchanged() {
        let index = SourceIndex::new("a()\nnew()\n");
        let today = CurrentText::new(&fingerprint("a()\n"), &index);
        assert!(today.is_unchanged(1) && !today.is_unchanged(2));
    }

    #[test]
    fn suppression_uses_the_current_text() {
        let index =
            SourceIndex::new("# ridgeline: ignore[x]\na()\nb(\n    1,  # ridgeline: ignore\n)\n");
        let today = CurrentText::new(&fingerprint(THEN), &index);
        assert!(today.is_suppressed("x", 2) && !today.is_suppressed("y", 2));
        assert!(today.is_suppressed("y", 3) && today.is_suppressed("y", 5));
        assert_eq!(today.line(1), Some(2));
    }
}
