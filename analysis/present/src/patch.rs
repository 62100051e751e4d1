//! An edit as a unified diff, for people and for programs that apply patches.

use std::fmt::Write as _;
use std::ops::Range;

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use ridgeline_optimize::rewrite::FileEdits;

/// The number of unchanged lines around a change.
const CONTEXT: u32 = 3;

/// The edit of one file as `git apply` and `patch -p1` read it. `text` is the file before the edit.
pub fn unified_diff(edits: &FileEdits, text: &str) -> String {
    let edited = edits.applied(text);
    let input = InternedInput::new(text, edited.as_str());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let before: Vec<&str> = text.split_inclusive('\n').collect();
    let after: Vec<&str> = edited.split_inclusive('\n').collect();
    let hunks: Vec<Hunk> = diff.hunks().collect();
    let mut patch = format!("--- a/{path}\n+++ b/{path}\n", path = edits.path);
    // Changes whose context would overlap go together.
    for group in hunks.chunk_by(|a, b| b.before.start - a.before.end <= 2 * CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let lead = first.before.start.min(CONTEXT);
        let count = u32::try_from(before.len()).unwrap_or(u32::MAX);
        let trail = count.saturating_sub(last.before.end).min(CONTEXT);
        let old = first.before.start - lead..last.before.end + trail;
        let new = first.after.start - lead..last.after.end + trail;
        // Writing to a `String` does not fail.
        let _ = writeln!(
            patch,
            "@@ -{},{} +{},{} @@",
            old.start + u32::from(!old.is_empty()),
            old.len(),
            new.start + u32::from(!new.is_empty()),
            new.len()
        );
        let mut at = old.start;
        for hunk in group {
            add_lines(&mut patch, ' ', &before, at..hunk.before.start);
            add_lines(&mut patch, '-', &before, hunk.before.clone());
            add_lines(&mut patch, '+', &after, hunk.after.clone());
            at = hunk.before.end;
        }
        add_lines(&mut patch, ' ', &before, at..old.end);
    }
    patch
}

fn add_lines(patch: &mut String, mark: char, lines: &[&str], range: Range<u32>) {
    let lines = lines.get(range.start as usize..range.end as usize).unwrap_or_default();
    for line in lines {
        patch.push(mark);
        patch.push_str(line);
        if !line.ends_with('\n') {
            patch.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn patch(text: &str, from: &str, to: &str) -> String {
        let start = text.find(from).unwrap();
        let edits = FileEdits {
            path: "src/train.py".to_owned(),
            edits: vec![(start..start + from.len(), to.to_owned())],
        };
        unified_diff(&edits, text)
    }

    #[test]
    fn hunks_have_headers_and_context() {
        let text = "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\nf = 6\n";
        expect![[r"
            --- a/src/train.py
            +++ b/src/train.py
            @@ -2,5 +2,6 @@
             b = 2
             c = 3
             d = 4
            -e = 5
            +e = 50
            +e2 = 5
             f = 6
        "]]
        .assert_eq(&patch(text, "e = 5", "e = 50\ne2 = 5"));
    }

    #[test]
    fn a_last_line_without_a_line_end_is_marked() {
        let patch = patch("a = 1\nb = 2", "b = 2", "b = 3");
        expect![[r"
            --- a/src/train.py
            +++ b/src/train.py
            @@ -1,2 +1,2 @@
             a = 1
            -b = 2
            \ No newline at end of file
            +b = 3
            \ No newline at end of file
        "]]
        .assert_eq(&patch);
    }
}
