//! Checks that every rule has a page in `docs/findings`, that the index lists them all, and that
//! each page explains how to suppress the rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use ridgeline_analysis::diagnose;

const INDEX: &str = "README.md";

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/findings"))
}

fn page(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_index_lists_every_rule() {
    let page = page(INDEX);
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| [")).collect();
    let expected: Vec<String> = diagnose::rules()
        .into_iter()
        .map(|(rule, title)| format!("| [`{rule}`]({rule}.md) | {title} |"))
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn every_rule_has_a_page_and_every_page_a_rule() {
    let rules: BTreeSet<String> =
        diagnose::rules().iter().map(|(rule, _)| format!("{rule}.md")).collect();
    assert_eq!(rules.len(), diagnose::rules().len(), "two rules have one name");
    let pages = fs::read_dir(folder()).expect("the pages").flatten();
    let pages = pages.map(|file| file.file_name().to_string_lossy().into_owned());
    let pages: BTreeSet<String> = pages.filter(|name| name != INDEX).collect();
    assert_eq!(pages, rules);
}

#[test]
fn every_page_explains_how_to_suppress_the_rule() {
    for (rule, _) in diagnose::rules() {
        let page = page(&format!("{rule}.md"));
        assert_eq!(diagnose::pages::page(rule), Some(page.as_str()), "embedded in the binary");
        let heading = page.lines().next().unwrap_or_default();
        assert!(heading.starts_with(&format!("# `{rule}`")), "{rule}: {heading}");
        let comment = format!("# ridgeline: ignore[{rule}]");
        assert!(page.contains(&comment), "{rule}: `{comment}` is not on its page");
        assert!(page.contains(&format!("\"{rule}\"")) && page.contains("ridgeline.toml"), "{rule}");
    }
}
