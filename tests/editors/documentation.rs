//! Reads the configurations in `docs/editors`, so that the tests run with exactly what users copy.

use std::fs;
use std::path::Path;

/// Returns a page's code blocks of a language, in order, with their headings.
pub(super) fn blocks(page: &str, heading: &str, language: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/editors").join(page);
    let text = fs::read_to_string(&file).expect("a page");
    let found = blocks_of(&text, heading, language);
    assert!(!found.is_empty(), "{page} has no {language} under `{heading}`");
    found
}

fn blocks_of(text: &str, heading: &str, language: &str) -> Vec<String> {
    let sections = text.split("\n## ").filter(|section| section.lines().next() == Some(heading));
    let opening = format!("\n```{language}\n");
    sections
        .flat_map(|section| section.split(&opening).skip(1))
        .filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned() + "\n"))
        .collect()
}

/// Checks at least the syntax of configurations of editors that cannot run here.
#[test]
fn json_configurations_are_valid() {
    for page in ["sublime.md", "kate.md"] {
        for block in blocks(page, "Configuration", "json") {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(&block);
            assert!(parsed.is_ok(), "{page}: {parsed:?}\n{block}");
        }
    }
}

#[test]
fn blocks_are_found_under_their_headings() {
    let page = "# A\n```sh\nno\n```\n## B\n```sh\none\ntwo\n```\ntext\n```sh\nthree\n```\n## C\n```sh\nno\n```\n";
    assert_eq!(blocks_of(page, "B", "sh"), ["one\ntwo\n", "three\n"]);
}
