//! User-visible strings use standard terms: none contains a word of `tests/language/refused.tsv`.

use std::process::Command;

use crate::sandbox::repository;

#[test]
fn user_visible_strings_have_no_refused_words() {
    let python = std::env::var_os("RIDGELINE_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let listing = repository().join("tests/language/listing");
    let checked = match Command::new(&python).arg(listing).arg("--check").output() {
        Ok(checked) => checked,
        Err(error) => {
            println!("skipped: {} did not start: {error}", python.display());
            return;
        }
    };
    let (found, error) =
        (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "{found}{error}");
}

#[test]
fn the_listing_finds_strings_of_every_kind() {
    let python = std::env::var_os("RIDGELINE_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let listing = repository().join("tests/language/listing");
    let Ok(listed) = Command::new(&python).arg(listing).output() else {
        println!("skipped: {} did not start", python.display());
        return;
    };
    let listed = String::from_utf8_lossy(&listed.stdout);
    for kind in [
        // A literal, a documentation comment of clap, the extension's manifest, its code, the panel and the agent.
        "analysis/diagnose/src/rules/float64.rs:",
        "Predict iteration time, memory and price on other GPUs.",
        "Clear Results",
        "Idle. Save to re-profile.",
        "Skip to the metrics",
        "importing torch: {why}",
    ] {
        assert!(listed.contains(kind), "{kind}");
    }
}
