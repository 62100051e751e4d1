//! Findings that the user suppresses: with a comment in the text, or in the project's
//! configuration.
//!
//! `# ridgeline: ignore[hidden-sync]` stands at the end of the line or on a line of its own above
//! it. Without names in brackets it suppresses all findings.

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use std::collections::BTreeMap;

use ridgeline_python::SourceIndex;

/// The text after the `#`.
const MARK: &str = "ridgeline:";
/// The maximum number of comments that are read.
const MAX_COMMENTS: usize = 10_000;
/// The maximum number of ancestors checked for a string at the end of a line.
const MAX_ANCESTORS: usize = 16;
/// The maximum number of names read from a comment; there are fewer rules.
const MAX_NAMES: usize = 64;

/// The comments of a file that suppress findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuppressionComments(BTreeMap<u32, SuppressionComment>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct SuppressionComment {
    /// `None` if it suppresses all findings.
    rules: Option<Vec<String>>,
    /// Whether nothing else stands on its line.
    is_own_line: bool,
}

impl SuppressionComment {
    fn is_about(&self, rule: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.iter().any(|one| one == rule))
    }
}

impl SuppressionComments {
    /// Reads the comments. A string that looks like one does not count.
    pub fn read(index: &SourceIndex) -> SuppressionComments {
        let (text, mut found) = (index.text(), BTreeMap::new());
        let Some(tree) = index.tree() else { return SuppressionComments::default() };
        for (at, _) in text.match_indices(MARK).take(MAX_COMMENTS) {
            let node = tree.root_node().descendant_for_byte_range(at, at + MARK.len());
            if node.is_none_or(|node| !node.is(Kind::Comment)) {
                continue;
            }
            let line = index.lines().line_of(at);
            let whole = text.get(index.lines().trimmed(text, line)).unwrap_or_default();
            let rest = text.get(at + MARK.len()..).unwrap_or_default();
            let rest = rest.lines().next().unwrap_or_default();
            if let Some(rules) = parse_ignore(rest) {
                found.insert(
                    line,
                    SuppressionComment { rules, is_own_line: whole.starts_with('#') },
                );
            }
        }
        SuppressionComments(found)
    }

    /// Whether the findings of a rule are suppressed for a statement on these 1-based lines: by a
    /// comment at the end of one of them, or on a line of its own above the first.
    pub fn suppresses(&self, rule: &str, first: u32, last: u32) -> bool {
        let within = self.0.range(first..=last.max(first));
        if within.into_iter().any(|(_, comment)| comment.is_about(rule)) {
            return true;
        }
        // There may be several comment lines above each other.
        let mut above = first.saturating_sub(1);
        while let Some(comment) = self.0.get(&above).filter(|comment| comment.is_own_line) {
            if comment.is_about(rule) {
                return true;
            }
            above = above.saturating_sub(1);
        }
        false
    }
}

/// The edit that suppresses the findings of a rule at a 1-based line: the byte offset and the text
/// to insert. Returns `None` if the line ends within a string.
pub fn suppression_edit(index: &SourceIndex, rule: &str, line: u32) -> Option<(usize, String)> {
    let (text, tree) = (index.text(), index.tree()?);
    let whole = index.lines().trimmed(text, line);
    let end = whole.end;
    let last = tree.root_node().descendant_for_byte_range(end.checked_sub(1)?, end)?;
    if last.is(Kind::Comment)
        && let Some(mark) = text.get(last.byte_range())?.find(MARK)
    {
        // Adds a name to the existing brackets.
        let mark = last.start_byte() + mark;
        let open = mark + text.get(mark..end)?.find('[')?;
        let close = open + text.get(open..end)?.find(']')?;
        let is_empty = text.get(open + 1..close)?.trim().is_empty();
        let gap = if is_empty { "" } else { ", " };
        return Some((close, format!("{gap}{rule}")));
    }
    let around = std::iter::successors(Some(last), |node| node.parent()).take(MAX_ANCESTORS);
    let is_within = around.into_iter().any(|node| node.is(Kind::String) && node.end_byte() > end);
    let code = text.get(whole)?;
    if code.is_empty() || code.ends_with('\\') || is_within {
        return None;
    }
    Some((end, format!("  # {MARK} ignore[{rule}]")))
}

/// The names in `ignore[a, b]`; `Some(None)` if it names none and suppresses all, `None` if it is
/// no such comment.
fn parse_ignore(rest: &str) -> Option<Option<Vec<String>>> {
    let rest = rest.trim_start().strip_prefix("ignore")?;
    if rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-') {
        return None;
    }
    let Some(inner) = rest.trim_start().strip_prefix('[') else { return Some(None) };
    let (names, _) = inner.split_once(']')?;
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    Some(Some(names.take(MAX_NAMES).map(str::to_owned).collect()))
}

/// The findings that a project's configuration suppresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredSuppressions(Vec<(String, Option<String>)>);

impl ConfiguredSuppressions {
    /// Parses entries of the form `NAME` and `NAME:path/glob.py`. `*` means every rule; the path of
    /// a folder covers everything below it.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a str>) -> ConfiguredSuppressions {
        let parts = entries.into_iter().map(|entry| match entry.split_once(':') {
            Some((rule, glob)) => (rule.trim().to_owned(), Some(glob.trim().to_owned())),
            None => (entry.trim().to_owned(), None),
        });
        ConfiguredSuppressions(parts.collect())
    }

    /// Whether the findings of a rule are suppressed in a file. `path` is relative to the project's
    /// root, with `/` as separator.
    pub fn suppresses(&self, rule: &str, path: &str) -> bool {
        self.0.iter().any(|(name, glob)| {
            (name == "*" || name == rule)
                && glob.as_deref().is_none_or(|glob| matches_path(glob, path))
        })
    }
}

/// Whether a pattern matches a path or a folder that contains it. `*` and `?` match within one path
/// component, `**` matches several.
fn matches_path(glob: &str, path: &str) -> bool {
    let glob: Vec<&str> = glob.trim_matches('/').split('/').collect();
    let parts: Vec<&str> = path.split('/').collect();
    // After each component of the pattern: the numbers of path components that it can match.
    let mut reached = vec![false; parts.len() + 1];
    if let Some(start) = reached.first_mut() {
        *start = true;
    }
    for piece in glob {
        let mut next = vec![false; parts.len() + 1];
        let mut is_open = false;
        for (at, was) in reached.iter().enumerate() {
            is_open |= *was;
            let is_any = piece == "**";
            if let Some(slot) = next.get_mut(at).filter(|_| is_any && is_open) {
                *slot = true;
            }
            let fits =
                *was && !is_any && parts.get(at).is_some_and(|part| matches_component(piece, part));
            if let Some(slot) = next.get_mut(at + 1).filter(|_| fits) {
                *slot = true;
            }
        }
        reached = next;
    }
    // The pattern of a folder covers everything below it.
    reached.into_iter().skip(1).any(|is_reached| is_reached)
}

/// Whether one component of a path matches one of a pattern.
fn matches_component(pattern: &str, part: &str) -> bool {
    let (pattern, part): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), part.chars().collect());
    let (mut at, mut here) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while here < part.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(letter) if *letter == '?' || part.get(here) == Some(letter) => {
                at += 1;
                here += 1;
            }
            _ => match star {
                // The star matches one more character.
                Some((of, from)) => {
                    star = Some((of, from + 1));
                    at = of + 1;
                    here = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, u32)]) {
        let comments = SuppressionComments::read(&SourceIndex::new(text));
        let lines = u32::try_from(text.lines().count()).expect("small");
        let rules = ["hidden-sync", "tiny-kernels"];
        let found: Vec<(&str, u32)> = rules
            .into_iter()
            .flat_map(|rule| (1..=lines).map(move |line| (rule, line)))
            .filter(|(rule, line)| comments.suppresses(rule, *line, *line))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn comment_at_the_end_of_a_line() {
        check("a()\nb()  # ridgeline: ignore[hidden-sync]\nc()\n", &[("hidden-sync", 2)]);
        check("b()  #ridgeline:ignore [ hidden-sync ,x ] as it must\n", &[("hidden-sync", 1)]);
        check("b()  # noqa  # ridgeline: ignore[hidden-sync]\n", &[("hidden-sync", 1)]);
        check("b()  # ridgeline: ignore\nc()\n", &[("hidden-sync", 1), ("tiny-kernels", 1)]);
        check("b()  # ridgeline: ignore because\n", &[("hidden-sync", 1), ("tiny-kernels", 1)]);
    }

    #[test]
    fn comment_on_its_own_line_above() {
        check(
            "a()\n    # ridgeline: ignore[hidden-sync]\n    b()\nc()\n",
            &[("hidden-sync", 2), ("hidden-sync", 3)],
        );
        check(
            "# ridgeline: ignore[hidden-sync]\n# ridgeline: ignore[tiny-kernels]\nb()\n",
            &[
                ("hidden-sync", 1),
                ("hidden-sync", 2),
                ("hidden-sync", 3),
                ("tiny-kernels", 2),
                ("tiny-kernels", 3),
            ],
        );
    }

    #[test]
    fn text_that_is_no_suppression_comment() {
        for text in [
            "b('# ridgeline: ignore')\n",
            "\"\"\"\n# ridgeline: ignore\n\"\"\"\nb()\n",
            "b()  # ridgeline: ignored\n",
            "b()  # ridgeline: ignore[]\n",
            "b()  # ridgeline: ignore[hidden-sync\n",
            "b()  # ridgeline ignore\n",
            "b()  # ridgeline: show\n",
        ] {
            check(text, &[]);
        }
    }

    #[test]
    fn comment_at_the_end_of_a_multiline_statement() {
        let text = "b(\n    1,\n)  # ridgeline: ignore[hidden-sync]\n";
        let comments = SuppressionComments::read(&SourceIndex::new(text));
        assert!(comments.suppresses("hidden-sync", 1, 3));
        assert!(!comments.suppresses("tiny-kernels", 1, 3));
    }

    #[test]
    fn deeply_nested_brackets_terminate() {
        let text = format!("{}# ridgeline: ignore\n{}", "(".repeat(20_000), ")".repeat(20_000));
        let comments = SuppressionComments::read(&SourceIndex::new(text));
        // The only requirement is that it terminates.
        let _ = comments.suppresses("hidden-sync", 1, 2);
    }

    #[test]
    fn the_edit_adds_or_extends_a_comment() {
        for (text, expected) in [
            ("a()\n", Some("a()  # ridgeline: ignore[x]\n")),
            ("a()   \n", Some("a()  # ridgeline: ignore[x]   \n")),
            ("a()  # why\n", Some("a()  # why  # ridgeline: ignore[x]\n")),
            ("a('b')\n", Some("a('b')  # ridgeline: ignore[x]\n")),
            ("a = 'b'\n", Some("a = 'b'  # ridgeline: ignore[x]\n")),
            ("a()  # ridgeline: ignore[y]\n", Some("a()  # ridgeline: ignore[y, x]\n")),
            ("a()  # ridgeline: ignore[]\n", Some("a()  # ridgeline: ignore[x]\n")),
            ("for x in y:\n    z()\n", Some("for x in y:  # ridgeline: ignore[x]\n    z()\n")),
            ("a('''\n''')\n", None),
            ("a \\\n  + b\n", None),
            ("\n", None),
        ] {
            let index = SourceIndex::new(text);
            let edited = suppression_edit(&index, "x", 1).map(|(at, new)| {
                let mut edited = text.to_owned();
                edited.insert_str(at, &new);
                edited
            });
            assert_eq!(edited.as_deref(), expected, "{text}");
            if let Some(edited) = edited {
                assert!(
                    SuppressionComments::read(&SourceIndex::new(edited)).suppresses("x", 1, 1),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn suppression_by_configuration() {
        let ignored =
            ConfiguredSuppressions::new(["hidden-sync", "tiny-kernels:old/*.py", "*:third_party/"]);
        assert!(ignored.suppresses("hidden-sync", "train.py"));
        assert!(ignored.suppresses("tiny-kernels", "old/train.py"));
        assert!(!ignored.suppresses("tiny-kernels", "train.py"));
        assert!(!ignored.suppresses("tiny-kernels", "old/more/train.py"));
        assert!(ignored.suppresses("tiny-kernels", "third_party/a/b.py"));
    }

    #[test]
    fn glob_patterns() {
        for (glob, path, expected) in [
            ("train.py", "train.py", true),
            ("train.py", "a/train.py", false),
            ("**/train.py", "a/b/train.py", true),
            ("**/train.py", "train.py", true),
            ("a/**", "a/b/c.py", true),
            ("a/**", "b/a/c.py", false),
            ("a/**/c.py", "a/c.py", true),
            ("a", "a/b/c.py", true),
            ("?rain*.py", "train_2.py", true),
            ("*a*b*c", "xxaxxbxxd", false),
            ("*", "a/b.py", true),
            ("", "train.py", false),
        ] {
            assert_eq!(matches_path(glob, path), expected, "{glob} {path}");
        }
    }
}
