//! Stored findings, and their place in the current text.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::diagnose;
use ridgeline_analysis::diagnose::current_text::CurrentText;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::diagnose::severity::{Severity, severity};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::semantics::Entry;
pub(super) use ridgeline_analysis::python::semantics::Project as _;
use ridgeline_analysis::python::{SourceIndex, fingerprint};

use crate::batch::Sources;

/// Findings of a project, with the state of its texts at that time.
#[derive(Clone, Debug, Default)]
pub(crate) struct FindingSet {
    /// The project's root, with links resolved.
    pub root: PathBuf,
    /// The findings, highest cost first.
    pub findings: Vec<Finding>,
    /// The measurement they come from, or `None` if they come from source text only.
    pub profile: Option<Arc<Profile>>,
    /// The entry point, for findings from source text.
    pub entry: Option<Entry>,
    /// The line checksums of the analyzed texts, by path relative to the root.
    texts: Vec<(String, Vec<u32>)>,
}

impl FindingSet {
    /// Stores findings from a measurement, or from `sources`.
    pub(crate) fn new(
        root: &Path,
        findings: Vec<Finding>,
        profile: Option<Arc<Profile>>,
        sources: &Sources,
    ) -> FindingSet {
        let files = profile.iter().flat_map(|profile| &profile.files);
        let mut texts: Vec<(String, Vec<u32>)> =
            files.map(|file| (file.path.clone(), file.fingerprint.clone())).collect();
        for finding in &findings {
            let related = finding.related.iter().map(|(place, _)| place);
            for place in std::iter::once(&finding.at).chain(related) {
                if !texts.iter().any(|(path, _)| *path == place.path) {
                    let then = sources.text(&place.path).map(|text| fingerprint(&text));
                    texts.extend(then.map(|then| (place.path.clone(), then)));
                }
            }
        }
        FindingSet { root: root.to_owned(), findings, profile, entry: None, texts }
    }

    /// Stores findings from the source text of a program.
    pub(crate) fn of_source(
        root: &Path,
        findings: Vec<Finding>,
        entry: Entry,
        sources: &Sources,
    ) -> FindingSet {
        FindingSet { entry: Some(entry), ..FindingSet::new(root, findings, None, sources) }
    }

    /// The line checksums of an analyzed text, by its path relative to the root.
    pub(crate) fn fingerprint_of(&self, path: &str) -> Option<&[u32]> {
        self.texts.iter().find(|(known, _)| known == path).map(|(_, then)| then.as_slice())
    }

    /// The path of a file relative to the root, with `/` as separator.
    pub(crate) fn relative(&self, file: &Path) -> Option<String> {
        Some(file.strip_prefix(&self.root).ok()?.to_string_lossy().replace('\\', "/"))
    }

    /// Whether a line of the current text ran in the measured iteration.
    fn ran(&self, path: &str, current: &CurrentText<'_>, line: u32) -> bool {
        let Some(profile) = &self.profile else { return false };
        let at = profile.files.iter().position(|file| file.path == path);
        let lines = at.and_then(|at| profile.lines.get(at)).map_or(&[][..], Vec::as_slice);
        lines.iter().any(|one| one.calls > 0.0 && current.line(one.line) == Some(line))
    }

    /// The files with findings.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            self.findings.iter().map(|one| self.root.join(&one.at.path)).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

/// A finding at its place in the current text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedFinding<'a> {
    pub finding: &'a Finding,
    /// The set it belongs to.
    pub set: &'a FindingSet,
    /// The line in the current text, 1-based.
    pub line: u32,
    /// The first and the last line of its statement.
    pub statement: (u32, u32),
    pub severity: Severity,
}

impl PlacedFinding<'_> {
    /// The measurement it comes from, if any.
    pub(crate) fn profile(&self) -> Option<&Profile> {
        self.set.profile.as_deref()
    }
}

/// The findings in a current text, in their order. Measured findings replace findings from source
/// text. Findings whose statement changed and suppressed findings are omitted.
pub(crate) fn in_text<'a>(
    all: &'a [Arc<FindingSet>],
    file: &Path,
    index: &SourceIndex,
    minimum: Severity,
) -> Vec<PlacedFinding<'a>> {
    let sides = all.iter().filter_map(|set| {
        let path = set.relative(file)?;
        let then = set.fingerprint_of(&path)?;
        Some((&**set, path, CurrentText::new(then, index)))
    });
    let sides: Vec<(&FindingSet, String, CurrentText<'_>)> = sides.collect();
    let (measured, read): (Vec<_>, Vec<_>) =
        sides.iter().partition(|(set, ..)| set.profile.is_some());
    let mut found: Vec<PlacedFinding<'a>> = Vec::new();
    for (set, path, current) in measured.iter().chain(&read) {
        for finding in set.findings.iter().filter(|finding| finding.at.path == *path) {
            let Some(line) = current.line(finding.at.line) else { continue };
            let is_known =
                found.iter().any(|one| one.finding.rule == finding.rule && one.line == line);
            // Some rules let a measurement decide only about lines that ran.
            let decides = diagnose::measurement_decides(finding.rule);
            let is_decided = set.profile.is_none()
                && measured.iter().any(|(run, path, then)| {
                    then.is_unchanged(line) && (decides || run.ran(path, then, line))
                });
            if is_known || is_decided || current.is_suppressed(finding.rule, line) {
                continue;
            }
            let severity = severity(finding, set.profile.as_deref());
            let statement = current.statement(line);
            if severity >= minimum {
                found.push(PlacedFinding { finding, set, line, statement, severity });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use ridgeline_analysis::diagnose::finding::{Cost, SourceLine};
    use ridgeline_analysis::profile::{FileFacts, LineCost};

    use super::*;

    const THEN: &str = "a()\nb()\nc()\n";

    fn finding(rule: &'static str, line: u32, cost: Option<Cost>) -> Finding {
        let at = SourceLine { path: "train.py".to_owned(), line };
        Finding { rule, at, cost, ..Finding::default() }
    }

    fn sources() -> Sources {
        Sources::new(Path::new("/nowhere"), [])
    }

    fn measured(findings: Vec<Finding>) -> Arc<FindingSet> {
        let file = FileFacts { path: "train.py".to_owned(), fingerprint: fingerprint(THEN) };
        let mut profile = Profile { files: vec![file], ..Profile::default() };
        profile.iteration.time_ns = 100.0;
        Arc::new(FindingSet::new(Path::new("/w"), findings, Some(profile.into()), &sources()))
    }

    fn read(findings: Vec<Finding>, text: &str) -> Arc<FindingSet> {
        let set = FindingSet::new(Path::new("/w"), findings, None, &sources());
        let texts = vec![("train.py".to_owned(), fingerprint(text))];
        Arc::new(FindingSet { texts, ..set })
    }

    #[track_caller]
    fn check(all: &[Arc<FindingSet>], now: &str, minimum: Severity, expected: &[(&str, u32)]) {
        let index = SourceIndex::new(now);
        let found = in_text(all, Path::new("/w/train.py"), &index, minimum);
        let found: Vec<(&str, u32)> =
            found.iter().map(|one| (one.finding.rule, one.line)).collect();
        assert_eq!(found, expected, "{now}");
    }

    #[test]
    fn measured_findings_follow_their_statements() {
        let all = [measured(vec![finding("x", 2, Some(Cost::time(10.0)))])];
        check(&all, THEN, Severity::Hint, &[("x", 2)]);
        check(&all, "z()\na()\nb()\nc()\n", Severity::Hint, &[("x", 3)]);
        check(&all, "a()\nbb()\nc()\n", Severity::Hint, &[]);
        check(&all, "# ridgeline: ignore[x]\na()\nb()\nc()\n", Severity::Hint, &[("x", 3)]);
        check(&all, "a()\n# ridgeline: ignore[x]\nb()\nc()\n", Severity::Hint, &[]);
    }

    #[test]
    fn findings_below_the_minimum_severity_are_hidden() {
        let all = [measured(vec![
            finding("x", 1, Some(Cost::time(10.0))),
            finding("y", 2, Some(Cost::time(2.0))),
            finding("z", 3, None),
        ])];
        check(&all, THEN, Severity::Warning, &[("x", 1)]);
        check(&all, THEN, Severity::Information, &[("x", 1), ("y", 2)]);
        check(&all, THEN, Severity::Hint, &[("x", 1), ("y", 2), ("z", 3)]);
    }

    #[test]
    fn measured_findings_replace_those_from_source_text() {
        // The rule is unknown, so a measurement decides.
        let now = "a()\nb()\nnew()\n";
        let of_text = read(vec![finding("x", 1, None), finding("x", 3, None)], now);
        check(std::slice::from_ref(&of_text), now, Severity::Hint, &[("x", 1), ("x", 3)]);
        check(&[of_text.clone(), measured(vec![])], now, Severity::Hint, &[("x", 3)]);
        let both = [of_text, measured(vec![finding("x", 1, Some(Cost::time(10.0)))])];
        check(&both, now, Severity::Hint, &[("x", 1), ("x", 3)]);
        check(&both, now, Severity::Warning, &[("x", 1)]);
    }

    #[test]
    fn a_line_that_did_not_run_is_not_decided() {
        let rule = "gradients-in-validation";
        let of_text = read(vec![finding(rule, 2, None)], THEN);
        let run = |calls: f64| {
            let set = Arc::unwrap_or_clone(measured(vec![]));
            let mut profile = set.profile.as_deref().cloned().unwrap_or_default();
            profile.lines = vec![vec![LineCost { line: 2, calls, ..LineCost::default() }]];
            Arc::new(FindingSet { profile: Some(Arc::new(profile)), ..set })
        };
        check(&[of_text.clone(), measured(vec![])], THEN, Severity::Hint, &[(rule, 2)]);
        check(&[of_text.clone(), run(0.0)], THEN, Severity::Hint, &[(rule, 2)]);
        check(&[of_text, run(4.0)], THEN, Severity::Hint, &[]);
    }

    #[test]
    fn other_projects_are_ignored() {
        let all = [measured(vec![finding("x", 1, None)])];
        let index = SourceIndex::new(THEN);
        assert!(in_text(&all, Path::new("/v/train.py"), &index, Severity::Hint).is_empty());
        assert!(in_text(&all, Path::new("/w/other.py"), &index, Severity::Hint).is_empty());
    }
}
