//! An edit as a unified diff, for people and for programs that apply patches.

use std::fmt::Write as _;

use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};
use ridgeline_optimize::rewrite::FileEdits;

/// The edit of one file as `git apply` and `patch -p1` read it. `text` is the file before the edit.
pub fn unified_diff(edits: &FileEdits, text: &str) -> String {
    let edited = edits.applied(text);
    let input = InternedInput::new(text, edited.as_str());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let printer = BasicLineDiffPrinter(&input.interner);
    let hunks = diff.unified_diff(&printer, UnifiedDiffConfig::default(), &input);
    let mut patch = format!("--- a/{path}\n+++ b/{path}\n", path = edits.path);
    // Writing to a `String` does not fail.
    let _ = write!(patch, "{hunks}");
    patch
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
