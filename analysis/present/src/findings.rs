//! Findings in the terminal, in a hover, in a diagnostic, and as JSON.

use serde::Serialize;

use super::page::{Page, name, strong, text, with_code};
use super::share::share_of;
use super::terminal::Style;
use ridgeline_base::printable::clean;
use ridgeline_base::units;
use ridgeline_diagnose::finding::{Cost, Finding, SourceLine};
use ridgeline_diagnose::severity::{Severity, severity, weight};
use ridgeline_profile::Profile;

/// The maximum number of groups in the summary of a run.
const MAX_IN_SUMMARY: usize = 3;
/// The maximum number of groups in the terminal if all are requested.
const MAX_IN_TERMINAL: usize = 50;
/// The maximum number of related places shown for a finding.
const MAX_RELATED: usize = 4;
/// The maximum number of findings in a hover.
const MAX_IN_HOVER: usize = 2;

/// A finding in JSON. Unknown values are `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    rule: String,
    severity: &'static str,
    file: String,
    line: u32,
    message: String,
    why: String,
    time_ms: Option<f64>,
    bytes: Option<f64>,
    is_predicted: bool,
    fix: Option<&'static str>,
    related: Vec<RelatedPlace>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct RelatedPlace {
    file: String,
    line: u32,
    message: String,
}

impl Entry {
    /// Returns the entry of a finding in a measured iteration.
    pub fn of(finding: &Finding, profile: &Profile) -> Entry {
        let cost = finding.cost.map(finite);
        // A cost with neither time nor bytes is reported as zero time.
        let time_ns = cost.filter(|cost| cost.time_ns > 0.0 || cost.bytes == 0.0);
        let bytes = cost.filter(|cost| cost.bytes > 0.0);
        Entry {
            rule: finding.rule.to_owned(),
            severity: severity(finding, Some(profile)).name(),
            file: finding.at.path.clone(),
            line: finding.at.line,
            message: finding.message.clone(),
            why: finding.why.clone(),
            time_ms: time_ns.map(|cost| cost.time_ns.round() / 1e6),
            bytes: bytes.map(|cost| cost.bytes.round()),
            is_predicted: cost.is_some_and(|cost| cost.is_predicted),
            fix: finding.fix.map(|fix| fix.name()),
            related: finding.related.iter().map(related).collect(),
        }
    }

    /// Returns the entries of all findings, in the same order.
    pub fn all(findings: &[Finding], profile: &Profile) -> Vec<Entry> {
        findings.iter().map(|finding| Entry::of(finding, profile)).collect()
    }
}

fn related((place, message): &(SourceLine, String)) -> RelatedPlace {
    RelatedPlace { file: place.path.clone(), line: place.line, message: message.clone() }
}

/// Replaces invalid numbers in a cost by 0.
fn finite(cost: Cost) -> Cost {
    let finite = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
    Cost { time_ns: finite(cost.time_ns), bytes: finite(cost.bytes), ..cost }
}

/// `1.2 ms per iteration (12%)`, `~340 MB of peak memory (4%)`, or both. `None` if the cost was not
/// measured.
pub fn cost(finding: &Finding, profile: &Profile) -> Option<String> {
    let cost = finite(finding.cost?);
    let mark = if cost.is_predicted { "~" } else { "" };
    let mut parts = Vec::new();
    if cost.time_ns > 0.0 {
        let share = units::percent(share_of(cost.time_ns, profile.iteration.mean_ns()));
        parts.push(format!("{mark}{} per iteration ({share})", units::duration(cost.time_ns)));
    }
    if cost.bytes > 0.0 {
        let share = units::percent(share_of(cost.bytes, profile.memory.peak_bytes as f64));
        parts.push(format!("{mark}{} of peak memory ({share})", units::bytes(cost.bytes)));
    }
    Some(if parts.is_empty() { "no time saved".to_owned() } else { parts.join(", ") })
}

/// Formats a finding as plain text: the problem with its cost, and the reason on a second line.
/// Says so if nothing was measured.
pub fn plain_text(finding: &Finding, profile: Option<&Profile>) -> String {
    let why = clean(&finding.why);
    let gap = if why.is_empty() { "" } else { "\n" };
    format!("{}.{gap}{why}", heading(finding, profile))
}

fn heading(finding: &Finding, profile: Option<&Profile>) -> String {
    let message = clean(&finding.message);
    match profile.and_then(|profile| cost(finding, profile)) {
        Some(cost) => format!("{message}: {cost}"),
        None => format!("{message} ({})", no_cost(finding)),
    }
}

/// The text in place of an unknown cost.
fn no_cost(finding: &Finding) -> &'static str {
    if finding.is_measured { "cost unknown" } else { "not measured" }
}

/// Adds findings to a hover.
pub(super) fn in_hover(page: &mut Page, findings: &[(&Finding, Option<&Profile>)]) {
    for (finding, profile) in findings.iter().take(MAX_IN_HOVER) {
        page.line(&[strong(heading(finding, *profile)), text(" · "), name(finding.rule)]);
        if !finding.why.is_empty() {
            page.line(&with_code(&finding.why));
        }
        let related = finding.related.iter().take(MAX_RELATED);
        let related: Vec<String> =
            related.map(|(place, what)| format!("{}:{} {what}", place.path, place.line)).collect();
        if !related.is_empty() {
            page.line(&[text(related.join(" · "))]);
        }
        if let Some(fix) = finding.fix {
            page.line(&[text(format!("Fix available as a code action: {}", fix.title()))]);
        }
    }
    if let Some(more) = findings.len().checked_sub(MAX_IN_HOVER).filter(|more| *more > 0) {
        page.line(&[text(format!("and {more} more in the panel"))]);
    }
}

/// The mark before a finding in the terminal.
fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "!!",
        Severity::Information => " !",
        Severity::Hint => " ·",
    }
}

/// Findings of one rule, either all measured or all predicted.
struct Group<'a> {
    findings: Vec<&'a Finding>,
    is_predicted: bool,
    severity: Severity,
    weight: f64,
}

impl<'a> Group<'a> {
    /// Groups findings, most severe first. Of equal severity, measured groups come first, then the
    /// most expensive.
    fn all(findings: &'a [Finding], profile: &Profile) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for finding in findings {
            let is_predicted = finding.cost.is_some_and(|cost| cost.is_predicted);
            let is_same = |group: &&mut Group<'_>| {
                group.is_predicted == is_predicted
                    && group.findings.first().is_some_and(|first| first.rule == finding.rule)
            };
            let (severity, weight) = (severity(finding, Some(profile)), weight(finding, profile));
            match groups.iter_mut().find(is_same) {
                Some(group) => {
                    group.findings.push(finding);
                    group.severity = group.severity.max(severity);
                    group.weight += weight;
                }
                None => {
                    groups.push(Group { findings: vec![finding], is_predicted, severity, weight });
                }
            }
        }
        groups.sort_by(|one, other| {
            let by_severity = other.severity.cmp(&one.severity);
            by_severity
                .then(one.is_predicted.cmp(&other.is_predicted))
                .then(other.weight.total_cmp(&one.weight))
        });
        groups
    }
}

/// Formats findings for the terminal; empty if there are none. `all` shows more than the first few.
pub fn page(findings: &[Finding], profile: &Profile, style: Style, all: bool) -> String {
    let groups = Group::all(findings, profile);
    let shown = groups.get(..if all { MAX_IN_TERMINAL } else { MAX_IN_SUMMARY }).unwrap_or(&groups);
    let mut page = String::new();
    for (title, is_predicted) in [("Findings", false), ("Findings (~ = predicted savings)", true)] {
        let mut groups_of_kind =
            shown.iter().filter(|group| group.is_predicted == is_predicted).peekable();
        if groups_of_kind.peek().is_some() {
            page += &format!("\n{}\n", style.bold(title));
        }
        groups_of_kind.for_each(|group| page += &in_terminal(group, profile, style));
    }
    let more: usize = groups.iter().skip(shown.len()).map(|group| group.findings.len()).sum();
    if more > 0 {
        let hint = if all { "--json has" } else { "--findings shows" };
        page += &format!("   {}\n", style.faint(&format!("and {more} more: {hint} all of them")));
    }
    page
}

fn in_terminal(group: &Group<'_>, profile: &Profile, style: Style) -> String {
    let Some((first, others)) = group.findings.split_first() else { return String::new() };
    let SourceLine { path, line } = &first.at;
    let cost = cost(first, profile);
    let cost = cost.map_or_else(|| format!(" ({})", no_cost(first)), |cost| format!(" · {cost}"));
    let mark = mark(group.severity);
    let message = clean(&first.message);
    let mut text = format!("{mark} {}:{line}  {message}{cost}\n", clean(path));
    let mut details = first.rule.to_owned();
    if let Some(fix) = first.fix {
        details += &format!(" · fix: {}", fix.name());
    }
    if !others.is_empty() {
        let places: Vec<String> = others
            .iter()
            .take(MAX_RELATED)
            .map(|other| format!("{}:{}", clean(&other.at.path), other.at.line))
            .collect();
        details += &format!(" · also at {}", places.join(", "));
        if let Some(more) = others.len().checked_sub(MAX_RELATED).filter(|more| *more > 0) {
            details += &format!(" and {more} more");
        }
    }
    text += &format!("   {}\n", style.faint(&details));
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use ridgeline_optimize::rewrite::EditKind;

    fn profile() -> Profile {
        let mut profile = Profile::default();
        profile.iteration.time_ns = 10e6;
        profile.memory.peak_bytes = 1_000_000_000;
        profile
    }

    fn finding(cost: Option<Cost>) -> Finding {
        Finding {
            rule: "hidden-sync",
            at: SourceLine { path: "train.py".to_owned(), line: 12 },
            loop_lines: Vec::new(),
            related: vec![(
                SourceLine { path: "net.py".to_owned(), line: 3 },
                "it is made here".to_owned(),
            )],
            message: ".item() waits for the GPU".to_owned(),
            why: "Python stands still until the GPU is done.".to_owned(),
            cost,
            fix: Some(EditKind::DetachAccumulated),
            is_measured: cost.is_some(),
        }
    }

    #[test]
    fn in_a_terminal() {
        let other = |rule, line, cost| Finding {
            rule,
            at: SourceLine { path: "train.py".to_owned(), line },
            fix: None,
            ..finding(Some(cost))
        };
        let findings = [
            other("float64", 3, Cost::time(5e6).predicted()),
            finding(Some(Cost::time(1.2e6))),
            other("hidden-sync", 14, Cost::time(0.3e6)),
            Finding { fix: None, rule: "graph-kept", ..finding(None) },
            Finding { fix: None, rule: "python-loop", is_measured: true, ..finding(None) },
        ];
        let style = Style { color: false, width: 80 };
        expect![[r#"

            Findings
            !! train.py:12  .item() waits for the GPU · 1.2 ms per iteration (12%)
               hidden-sync · fix: detach-accumulated · also at train.py:14
            !! train.py:12  .item() waits for the GPU (not measured)
               graph-kept

            Findings (~ = predicted savings)
            !! train.py:3  .item() waits for the GPU · ~5.0 ms per iteration (50%)
               float64
               and 1 more: --findings shows all of them
        "#]]
        .assert_eq(&page(&findings, &profile(), style, false));
        assert!(
            page(&findings, &profile(), style, true).contains("(cost unknown)\n   python-loop")
        );
        assert_eq!(page(&[], &profile(), style, false), "");
    }

    #[test]
    fn in_plain_text() {
        let both = Cost { time_ns: 1e6, bytes: 1e7, is_predicted: false };
        expect![[r#"
            .item() waits for the GPU: 1.0 ms per iteration (10%), 10 MB of peak memory (1%).
            Python stands still until the GPU is done."#]]
        .assert_eq(&plain_text(&finding(Some(both)), Some(&profile())));
        expect![[r#"
            .item() waits for the GPU (not measured).
            Python stands still until the GPU is done."#]]
        .assert_eq(&plain_text(&finding(None), None));
    }

    #[test]
    fn as_json() {
        let entry_of =
            |cost| serde_json::to_value(Entry::of(&finding(cost), &profile())).expect("JSON");
        expect![[r#"
            {
              "bytes": null,
              "file": "train.py",
              "fix": "detach-accumulated",
              "is_predicted": false,
              "line": 12,
              "message": ".item() waits for the GPU",
              "related": [
                {
                  "file": "net.py",
                  "line": 3,
                  "message": "it is made here"
                }
              ],
              "rule": "hidden-sync",
              "severity": "warning",
              "time_ms": 1.2,
              "why": "Python stands still until the GPU is done."
            }"#]]
        .assert_eq(
            &serde_json::to_string_pretty(&entry_of(Some(Cost::time(1.2e6)))).expect("JSON"),
        );
        let memory_cost = entry_of(Some(Cost::bytes(5e6).predicted()));
        assert_eq!((&memory_cost["time_ms"], &memory_cost["bytes"]), (&().into(), &5e6.into()));
        assert_eq!(memory_cost["is_predicted"], true);
        let unmeasured = entry_of(None);
        assert_eq!((&unmeasured["time_ms"], &unmeasured["bytes"]), (&().into(), &().into()));
        assert_eq!(unmeasured["severity"], "hint");
        let broken = entry_of(Some(Cost { time_ns: f64::NAN, bytes: -1.0, is_predicted: false }));
        assert_eq!((&broken["time_ms"], &broken["bytes"]), (&0.0.into(), &().into()));
    }
}
