//! The result of a check in each output format: terminal page, JSON, SARIF for code hosts, JUnit
//! for test reports, and GitLab's code quality widget.

mod code_quality;
mod junit;
mod sarif;
mod sarif_rule;

use serde::Serialize;

use super::terminal::Style;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_compare::check::{Check, Location, Status};

pub use code_quality::code_quality;
pub use junit::junit;
pub use sarif::sarif;

/// The version of the JSON document.
pub const SCHEMA: u32 = 1;

/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 600;

/// The document of `--format json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document<'a> {
    schema: u32,
    passed: bool,
    #[serde(flatten)]
    check: &'a Check,
}

/// Returns the document of `--format json`.
pub fn document(check: &Check) -> Document<'_> {
    Document { schema: SCHEMA, passed: !check.is_broken(), check }
}

/// Formats a check for the terminal.
pub fn page(check: &Check, style: Style) -> String {
    let mut page = String::new();
    let mut say = |text: &str| {
        page += text.trim_end();
        page.push('\n');
    };
    for item in &check.items {
        let word = match item.status {
            Status::Passed => "passed     ",
            Status::Broken => "FAILED     ",
            Status::NotJudged => "not checked",
        };
        let place = match item.status {
            Status::Broken => format!("  {}", place(&item.at)),
            _ => String::new(),
        };
        say(&format!("{word}  {}: {}{}", item.name, message(&item.message), style.faint(&place)));
    }
    if let Some(error) = &check.error {
        say(&format!("FAILED       {}", message(error)));
    } else if check.items.is_empty() {
        say("Nothing to check: no baseline and no budget were given.");
    }
    if let Some(device) = &check.device {
        say(&style.faint(&format!("Measured on {}", clean(&shorten(device, 100)))));
    }
    if !check.findings.is_empty() {
        say("");
    }
    for finding in &check.findings {
        let text = message(&finding.message);
        say(&format!(
            "{}  {} {}: {text}",
            place(&finding.at),
            finding.severity,
            clean(&finding.rule)
        ));
    }
    page
}

/// `train.py:12`.
fn place(at: &Location) -> String {
    match at.file.as_str() {
        "" => String::new(),
        file => format!("{}:{}", clean(&shorten(file, 200)), at.line),
    }
}

fn message(text: &str) -> String {
    clean(&shorten(text, MAX_MESSAGE))
}

/// Prepends `prefix`, the path from the working directory of the command to the project.
fn path(prefix: &str, file: &str) -> String {
    let file = clean(file);
    if prefix.is_empty() { file } else { format!("{}/{file}", prefix.trim_end_matches('/')) }
}

/// A hash that identifies a result across runs, so that a code host recognizes it: its name, its
/// file and its ordinal, but not its line, which moves.
fn fingerprint(name: &str, at: &Location, ordinal: usize) -> String {
    use sha2::{Digest as _, Sha256};
    let digest = Sha256::digest(format!("{name}\n{}\n{ordinal}", at.file).as_bytes());
    digest.into_iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Counts the earlier results with the same name and file.
fn ordinal<'a>(
    mut before: impl Iterator<Item = (&'a str, &'a Location)>,
    key: (&str, &Location),
) -> usize {
    let mut count = 0;
    before.by_ref().for_each(|(name, at)| {
        count += usize::from(name == key.0 && at.file == key.1.file);
    });
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use ridgeline_compare::check::{Item, ReportedFinding};

    /// A check whose texts are hard to escape.
    pub(super) fn check_with_special_characters() -> Check {
        let at = |file: &str, line| Location { file: file.to_owned(), line };
        let item = |name: &str, status, message: &str| Item {
            name: name.to_owned(),
            status,
            message: message.to_owned(),
            at: at("src/a b&c.py", 3),
        };
        let noted = |rule: &str, severity, line| ReportedFinding {
            rule: rule.to_owned(),
            severity,
            message: "\"waits\" <here> & there ]]> \u{1b}[2J \u{0} \u{fffe}".to_owned(),
            time_ns: Some(1e6),
            bytes: None,
            at: at("train.py", line),
        };
        Check {
            device: Some("NVIDIA H100 80GB HBM3 (simulated)".to_owned()),
            items: vec![
                item("time-budget", Status::Passed, "iteration time is 10 ms; the budget is 11 ms"),
                item("time-regression", Status::Broken, "slower by 20%, p < 0.01 & \"so on\""),
                item("memory-regression", Status::NotJudged, "they ran on a and on b"),
            ],
            findings: vec![
                noted("hidden-sync", "warning", 7),
                noted("hidden-sync", "hint", 9),
                noted("loader-workers", "information", 0),
            ],
            comparison: None,
            error: None,
        }
    }

    #[test]
    fn a_page() {
        let shown = page(&check_with_special_characters(), Style { color: false, width: 80 });
        expect![[r#"
            passed       time-budget: iteration time is 10 ms; the budget is 11 ms
            FAILED       time-regression: slower by 20%, p < 0.01 & "so on"  src/a b&c.py:3
            not checked  memory-regression: they ran on a and on b
            Measured on NVIDIA H100 80GB HBM3 (simulated)

            train.py:7  warning hidden-sync: "waits" <here> & there ]]> �[2J � ￾
            train.py:9  hint hidden-sync: "waits" <here> & there ]]> �[2J � ￾
            train.py:0  information loader-workers: "waits" <here> & there ]]> �[2J � ￾
        "#]]
        .assert_eq(&shown);
        let empty = page(&Check::default(), Style { color: false, width: 80 });
        assert!(empty.starts_with("Nothing to check"), "{empty}");
        let failed =
            page(&Check::failed("train.py:3: ValueError: x"), Style { color: false, width: 80 });
        assert_eq!(failed, "FAILED       train.py:3: ValueError: x\n");
    }
}
