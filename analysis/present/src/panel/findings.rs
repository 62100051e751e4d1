//! The findings of a measurement: `findings` of the document.

use serde::Serialize;

use super::{Place, finite, name};
use crate::findings::cost;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_diagnose::finding::Finding;
use ridgeline_diagnose::severity::severity;
use ridgeline_profile::{FileId, Profile};

/// The maximum number of findings in the document.
const MAX_FINDINGS: usize = 200;
/// The maximum number of related places of a finding.
const MAX_RELATED: usize = 16;
/// Maximum length of a sentence, in characters.
const MAX_SENTENCE: usize = 1000;

/// The findings of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Most expensive first.
    pub found: Vec<PanelFinding>,
    /// The current activity, or why there are no findings: a sentence.
    pub message: Option<String>,
}

/// A finding and its edit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PanelFinding {
    pub finding: Finding,
    /// Whether the edit that fixes it can be applied to the current text, or why not. `None` if
    /// there is no edit.
    pub edit: Option<Result<(), String>>,
}

/// `findings`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FindingsEntry {
    message: Option<String>,
    rows: Vec<Row>,
    left_out: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    rule: String,
    severity: &'static str,
    text: String,
    why: String,
    cost: Option<String>,
    time_ns: Option<f64>,
    bytes: Option<f64>,
    is_predicted: bool,
    r#where: String,
    place: Option<Place>,
    related: Vec<Related>,
    fix: Option<Fix>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Related {
    text: String,
    r#where: String,
    place: Option<Place>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Fix {
    name: &'static str,
    title: &'static str,
    possible: bool,
    why: Option<String>,
}

impl FindingsEntry {
    pub(super) fn of(findings: &Findings, profile: &Profile) -> FindingsEntry {
        FindingsEntry {
            message: findings.message.as_deref().map(sentence),
            rows: findings
                .found
                .iter()
                .take(MAX_FINDINGS)
                .map(|found| Row::of(found, profile))
                .collect(),
            left_out: findings.found.len().saturating_sub(MAX_FINDINGS),
        }
    }
}

impl Row {
    fn of(found: &PanelFinding, profile: &Profile) -> Row {
        let finding = &found.finding;
        let known = |value: f64| Some(finite(value)).filter(|value| *value > 0.0);
        let related = finding.related.iter().take(MAX_RELATED);
        Row {
            rule: name(finding.rule),
            severity: severity(finding, Some(profile)).name(),
            text: sentence(&finding.message),
            why: sentence(&finding.why),
            cost: cost(finding, profile),
            time_ns: finding.cost.and_then(|cost| known(cost.time_ns)),
            bytes: finding.cost.and_then(|cost| known(cost.bytes)),
            is_predicted: finding.cost.is_some_and(|cost| cost.is_predicted),
            r#where: place_text(&finding.at.path, finding.at.line),
            place: place(profile, &finding.at.path, finding.at.line),
            related: related
                .map(|(at, text)| Related {
                    text: sentence(text),
                    r#where: place_text(&at.path, at.line),
                    place: place(profile, &at.path, at.line),
                })
                .collect(),
            fix: finding.fix.map(|fix| {
                let why = match &found.edit {
                    Some(Ok(())) => None,
                    Some(Err(why)) => Some(sentence(why)),
                    None => Some("available in the editor".to_owned()),
                };
                Fix { name: fix.name(), title: fix.title(), possible: why.is_none(), why }
            }),
        }
    }
}

/// `train.py:12`.
fn place_text(path: &str, line: u32) -> String {
    format!("{}:{line}", name(path))
}

/// Returns `None` if the profile has no such file.
fn place(profile: &Profile, path: &str, line: u32) -> Option<Place> {
    let file = profile.files.iter().position(|file| file.path == path)?;
    Place::of(profile, FileId(u32::try_from(file).ok()?), line)
}

fn sentence(text: &str) -> String {
    clean(&shorten(text, MAX_SENTENCE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_diagnose::finding::{Cost, SourceLine as At};
    use ridgeline_optimize::rewrite::EditKind;
    use ridgeline_profile::FileFacts;

    #[test]
    fn a_finding_in_the_document() {
        let file = FileFacts { path: "train.py".to_owned(), ..FileFacts::default() };
        let mut profile = Profile { files: vec![file], ..Profile::default() };
        profile.iteration.time_ns = 10e6;
        let at = |path: &str, line: u32| At { path: path.to_owned(), line };
        let finding = Finding {
            rule: "hidden-sync",
            at: at("train.py", 12),
            loop_lines: Vec::new(),
            related: vec![(at("gone.py", 3), "made here".to_owned())],
            message: "it waits\u{1b}[2J".to_owned(),
            why: "x".repeat(5000),
            cost: Some(Cost { time_ns: 1e6, bytes: f64::NAN, is_predicted: false }),
            fix: Some(EditKind::DetachAccumulated),
            is_measured: true,
        };
        let edit = Some(Err("the line has changed".to_owned()));
        let mut findings = Findings { found: vec![PanelFinding { finding, edit }], message: None };
        let shown = serde_json::to_value(FindingsEntry::of(&findings, &profile)).expect("JSON");
        let row = &shown["rows"][0];
        assert_eq!((&row["severity"], &row["place"]["line"]), (&"warning".into(), &12.into()));
        assert_eq!(row["cost"], "1.0 ms per iteration (10%)");
        assert_eq!((&row["bytes"], &row["related"][0]["place"]), (&().into(), &().into()));
        assert!(!row["text"].as_str().expect("a text").contains('\u{1b}'));
        assert!(row["why"].as_str().expect("a text").chars().count() <= MAX_SENTENCE);
        assert_eq!(
            (&row["fix"]["possible"], &row["fix"]["why"]),
            (&false.into(), &"the line has changed".into())
        );
        findings.found = vec![findings.found[0].clone(); MAX_FINDINGS + 3];
        assert_eq!(FindingsEntry::of(&findings, &profile).left_out, 3);
    }
}
