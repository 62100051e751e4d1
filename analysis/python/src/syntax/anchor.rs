//! Maps the lines of the text that ran to the current text.

use std::collections::HashMap;

use imara_diff::{Algorithm, Diff, InternedInput};

/// A line of the current text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1-based.
    pub line: u32,
    /// Whether the line replaced the old one with different text.
    pub changed: bool,
}

/// The lines of the text that ran, mapped to the current text. Lines are 1-based.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineMap {
    /// By old line; `None` if the line is gone.
    places: Vec<Option<Place>>,
    /// By new line: the unchanged old line, or `None` if the line is new or changed.
    origins: Vec<Option<u32>>,
    /// Sorted indices of old lines that are not blank and are gone or changed.
    gone_code: Vec<usize>,
    /// The checksums of the text that ran are unknown: lines are assumed not to have moved.
    identity: bool,
}

/// The checksum of a blank line.
const BLANK: u32 = 0;

impl LineMap {
    /// Compares the checksums (see [`crate::fingerprint`]) of the text that ran with those of the
    /// current text.
    ///
    /// A diff finds the lines that stayed in order. Of the rest, a line that occurs exactly once on
    /// both sides has moved, together with its equal neighbors. Of what then remains, lines that
    /// were replaced by the same number of others are considered changed, one by one.
    pub fn new(old: &[u32], new: &[u32]) -> LineMap {
        let mut map = LineMap {
            places: vec![None; old.len()],
            origins: vec![None; new.len()],
            gone_code: Vec::new(),
            identity: old.is_empty(),
        };
        let prefix = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let ends = old.iter().skip(prefix).rev().zip(new.iter().skip(prefix).rev());
        let suffix = ends.take_while(|(a, b)| a == b).count();
        let mut input = InternedInput::default();
        input.update_before(old.iter().copied().take(old.len() - suffix).skip(prefix));
        input.update_after(new.iter().copied().take(new.len() - suffix).skip(prefix));
        let diff = Diff::compute(Algorithm::Histogram, &input);
        let (mut old_at, mut new_at) = (0, 0);
        let hunks: Vec<_> = diff
            .hunks()
            .map(|hunk| (range(hunk.before, prefix), range(hunk.after, prefix)))
            .collect();
        for (before, after) in
            hunks.iter().cloned().chain([(old.len()..old.len(), new.len()..new.len())])
        {
            for (from, to) in (old_at..before.start).zip(new_at..after.start) {
                map.join(from, to);
            }
            (old_at, new_at) = (before.end, after.end);
        }
        map.find_moved(old, new);
        for (before, after) in hunks {
            map.find_replaced(old, new, before, after);
        }
        let code = old.iter().enumerate().filter(|(_, line)| **line != BLANK);
        map.gone_code = code.map(|(at, _)| at).filter(|at| !map.is_unchanged(*at)).collect();
        map
    }

    /// Maps an old line to the current text. Returns `None` if it was deleted.
    pub fn place(&self, old_line: u32) -> Option<Place> {
        if self.identity {
            let known = old_line >= 1 && (old_line as usize) <= self.origins.len();
            return known.then_some(Place { line: old_line, changed: false });
        }
        *self.places.get(index(old_line)?)?
    }

    /// Maps a current line to the unchanged line of the text that ran. Returns `None` if it is new
    /// or changed.
    pub fn origin(&self, new_line: u32) -> Option<u32> {
        if self.identity {
            return Some(new_line);
        }
        *self.origins.get(index(new_line)?)?
    }

    /// Whether there were only blank lines between two lines of the text that ran, or all lines
    /// between them still exist in the current text.
    pub fn nothing_between(&self, first: u32, last: u32) -> bool {
        let next = self.gone_code.partition_point(|&at| at < first as usize);
        let end = (last as usize).saturating_sub(1);
        self.identity || self.gone_code.get(next).is_none_or(|&at| at >= end)
    }

    /// Records that an old line is in the current text, if both texts have these lines.
    fn join(&mut self, old: usize, new: usize) {
        if let (Some(place), Some(origin)) = (self.places.get_mut(old), self.origins.get_mut(new)) {
            *place = Some(Place { line: number(new), changed: false });
            *origin = Some(number(old));
        }
    }

    fn is_unchanged(&self, old: usize) -> bool {
        matches!(self.places.get(old), Some(Some(place)) if !place.changed)
    }

    /// Whether an old line exists and is not mapped yet.
    fn has_no_place(&self, old: usize) -> bool {
        self.places.get(old) == Some(&None)
    }

    /// Whether a current line exists and is not mapped yet.
    fn has_no_origin(&self, new: usize) -> bool {
        self.origins.get(new) == Some(&None)
    }

    fn find_moved(&mut self, old: &[u32], new: &[u32]) {
        let unique_old = unique(old, |at| self.has_no_place(at));
        let unique_new = unique(new, |at| self.has_no_origin(at));
        let mut moved: Vec<(usize, usize)> = unique_old
            .into_iter()
            .filter_map(|(checksum, from)| Some((from, *unique_new.get(&checksum)?)))
            .collect();
        moved.sort_unstable();
        for (from, to) in moved {
            if !self.has_no_place(from) || !self.has_no_origin(to) {
                continue;
            }
            self.join(from, to);
            for step in [1, -1] {
                let (mut from, mut to) = (from, to);
                while let (Some(next_from), Some(next_to)) =
                    (from.checked_add_signed(step), to.checked_add_signed(step))
                    && old.get(next_from) == new.get(next_to)
                    && self.has_no_place(next_from)
                    && self.has_no_origin(next_to)
                {
                    self.join(next_from, next_to);
                    (from, to) = (next_from, next_to);
                }
            }
        }
    }

    fn find_replaced(
        &mut self,
        old: &[u32],
        new: &[u32],
        before: std::ops::Range<usize>,
        after: std::ops::Range<usize>,
    ) {
        let is_code = |lines: &[u32], at: usize| lines.get(at).is_some_and(|line| *line != BLANK);
        let gone: Vec<usize> =
            before.filter(|&at| self.has_no_place(at) && is_code(old, at)).collect();
        let added: Vec<usize> =
            after.filter(|&at| self.has_no_origin(at) && is_code(new, at)).collect();
        // If the numbers differ, it is unknown which line became which, and a cost at the wrong
        // line is worse than none. One line that became several is usually a statement that is
        // being split, and starts where it started before.
        if gone.len() == added.len() || (gone.len() == 1 && !added.is_empty()) {
            for (&from, &to) in gone.iter().zip(&added) {
                if let Some(place) = self.places.get_mut(from) {
                    *place = Some(Place { line: number(to), changed: true });
                }
            }
        }
    }
}

/// Maps each checksum that occurs exactly once among the lines that `take` selects to its index.
fn unique(checksums: &[u32], take: impl Fn(usize) -> bool) -> HashMap<u32, usize> {
    let mut found: HashMap<u32, Option<usize>> = HashMap::new();
    for (at, &checksum) in checksums.iter().enumerate() {
        if checksum != BLANK && take(at) {
            found.entry(checksum).and_modify(|place| *place = None).or_insert(Some(at));
        }
    }
    found.into_iter().filter_map(|(checksum, at)| Some((checksum, at?))).collect()
}

fn range(range: std::ops::Range<u32>, offset: usize) -> std::ops::Range<usize> {
    range.start as usize + offset..range.end as usize + offset
}

fn index(line: u32) -> Option<usize> {
    (line as usize).checked_sub(1)
}

fn number(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::fingerprint;

    /// The lines of both texts are words. Shows each old word with its new line, and `*` if it
    /// changed.
    #[track_caller]
    fn check(old: &str, new: &str, expected: Expect) {
        let lines = |text: &str| fingerprint(&text.replace(' ', "\n"));
        let map = LineMap::new(&lines(old), &lines(new));
        let shown: Vec<String> = old
            .split(' ')
            .zip(1..)
            .map(|(word, line)| match map.place(line) {
                Some(place) => {
                    format!("{word}{}{}", place.line, if place.changed { "*" } else { "" })
                }
                None => format!("{word}-"),
            })
            .collect();
        expected.assert_eq(&shown.join(" "));
    }

    #[test]
    fn lines_are_pushed_down_and_pulled_up() {
        check("a b c", "x y a b z c", expect!["a3 b4 c6"]);
        check("a b c d", "a d", expect!["a1 b- c- d2"]);
    }

    #[test]
    fn a_replaced_line_has_changed() {
        check("a b c", "a x c", expect!["a1 b2* c3"]);
        check("a b c d", "a x y d", expect!["a1 b2* c3* d4"]);
        check("a b d", "a x y d", expect!["a1 b2* d4"]);
    }

    #[test]
    fn ambiguous_lines_are_not_mapped() {
        check("a b c d", "a x d", expect!["a1 b- c- d3"]);
        check("a b c d", "a x y z d", expect!["a1 b- c- d5"]);
    }

    #[test]
    fn a_moved_line_takes_its_neighbors_along() {
        check("a b ( c ) d", "a b d e ( c )", expect!["a1 b2 (5 c6 )7 d3"]);
    }

    #[test]
    fn equal_lines_stay_in_order() {
        check("a ) b ) c )", "a ) x b ) c )", expect!["a1 )2 b4 )5 c6 )7"]);
    }

    #[test]
    fn indentation_does_not_matter() {
        let map =
            LineMap::new(&fingerprint("if x:\n  a\n"), &fingerprint("with y:\n  if x:\n\t\ta\r\n"));
        assert_eq!(map.place(2), Some(Place { line: 3, changed: false }));
        assert_eq!(map.origin(1), None);
    }

    #[test]
    fn without_checksums_lines_do_not_move() {
        let map = LineMap::new(&[], &fingerprint("a\nb"));
        assert_eq!(map.place(2), Some(Place { line: 2, changed: false }));
        assert_eq!((map.place(0), map.place(3)), (None, None));
    }

    proptest! {
        #[test]
        fn no_two_lines_share_a_place(
            old in proptest::collection::vec(0u32..6, 0..30),
            new in proptest::collection::vec(0u32..6, 0..30),
        ) {
            let map = LineMap::new(&old, &new);
            if old.is_empty() {
                return Ok(());
            }
            let mut taken = std::collections::HashSet::new();
            for line in 0..40 {
                if let Some(place) = map.place(line) {
                    prop_assert!(taken.insert(place.line));
                    let same = old[line as usize - 1] == new[place.line as usize - 1];
                    prop_assert!(same != place.changed);
                    prop_assert_eq!(map.origin(place.line), same.then_some(line));
                }
            }
        }
    }
}
