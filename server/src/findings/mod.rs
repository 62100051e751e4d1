//! Findings from a measurement or from source text, and their place in the current text.
//!
//! Nothing of the workspace runs, so no consent is needed. The functions read files and compute, so
//! call them on a background thread.

pub(crate) mod entry;
mod finding_set;
mod flow;

use std::path::Path;
use std::sync::Arc;

use ridgeline_analysis::diagnose;
use ridgeline_analysis::diagnose::current_text::CurrentText;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::diagnose::severity::{Severity, severity};
use ridgeline_analysis::diagnose::suppression::ConfiguredSuppressions;
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::study::RecordedRun;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::SourceIndex;
use ridgeline_analysis::python::semantics::Entry;
pub(crate) use ridgeline_analysis::python::semantics::Project as _;

use crate::batch::Sources;
use crate::config;
use crate::documents::real_path;
use crate::pipeline;
use crate::profiler::Profiled;
pub(crate) use finding_set::{FindingSet, PlacedFinding, in_text};
pub(crate) use flow::Findings;

/// The findings of a measured iteration, highest cost first, without those that the project's
/// configuration suppresses. `probes` are timings of single operators, `sources` the current texts.
pub(crate) fn measured(
    recorded_run: &RecordedRun,
    probes: &Probes,
    sources: &Sources,
    root: &Path,
) -> Vec<Finding> {
    let manifest_entry =
        recorded_run.manifest.as_ref().and_then(|manifest| manifest.entry.as_ref());
    let entry = manifest_entry
        .and_then(|manifest_entry| entry::entry_point(manifest_entry, sources))
        .unwrap_or_default();
    let ignored = ignored(root);
    let found = diagnose::diagnose(recorded_run, probes, sources, &entry);
    found.into_iter().filter(|one| !ignored.suppresses(one.rule, &one.at.path)).collect()
}

/// The findings from the source text of a program, ordered and filtered in the same way.
pub(crate) fn of_source(
    sources: &Sources,
    entry: &Entry,
    root: &Path,
    stop: &dyn Fn() -> bool,
) -> Vec<Finding> {
    let ignored = ignored(root);
    let found = diagnose::diagnose_source_until(sources, entry, stop);
    found.into_iter().filter(|one| !ignored.suppresses(one.rule, &one.at.path)).collect()
}

/// The findings of a finished run without those suppressed in the current texts, for the command
/// line.
///
/// # Errors
/// The error of `subject`.
pub(crate) fn of_run(
    profiled: &Profiled,
    recorded_run: &Result<RecordedRun, String>,
) -> Result<Vec<Finding>, String> {
    let recorded_run = recorded_run.as_ref().map_err(Clone::clone)?;
    Ok(of_recorded_run(profiled, recorded_run).findings)
}

/// The findings of a measurement without those suppressed in the current texts.
pub(crate) fn of_recorded_run(profiled: &Profiled, recorded_run: &RecordedRun) -> FindingSet {
    let root = real_path(&profiled.root);
    let sources = Sources::new(&root, []);
    let recording = profiled.recording.as_deref();
    let probes = recording.map(|recording| pipeline::stored_probes(recording, recorded_run));
    let found = measured(recorded_run, &probes.unwrap_or_default(), &sources, &root);
    let found = without_suppressed(found, &profiled.profile, &sources);
    FindingSet::new(&root, found, Some(profiled.profile.clone()), &sources)
}

/// The findings from source text at lines that a measurement did not reach, for the command line. A
/// rule that already has a measured finding in a file is omitted there, and in a file that the
/// iteration did not use, only those that affect correctness are kept: the program may never use it.
pub(crate) fn at_unreached_lines(
    profiled: &Profiled,
    recorded_run: &RecordedRun,
    found: &[Finding],
) -> Vec<Finding> {
    let root = real_path(&profiled.root);
    let sources = Sources::new(&root, []);
    let manifest_entry =
        recorded_run.manifest.as_ref().and_then(|manifest| manifest.entry.as_ref());
    let Some(entry) =
        manifest_entry.and_then(|manifest_entry| entry::entry_point(manifest_entry, &sources))
    else {
        return Vec::new();
    };
    let mut of_texts = of_source(&sources, &entry, &root, &|| false);
    of_texts.retain(|one| {
        !found.iter().any(|known| known.rule == one.rule && known.at.path == one.at.path)
            && is_relevant(one, &profiled.profile)
    });
    let measured = FindingSet::new(&root, Vec::new(), Some(profiled.profile.clone()), &sources);
    let all = [measured, FindingSet::new(&root, of_texts, None, &sources)].map(Arc::new);
    let mut shown = Vec::new();
    for file in all[1].files() {
        let text = all[1].relative(&file).and_then(|path| sources.text(&path));
        let Some(text) = text else { continue };
        let placed = in_text(&all, &file, &SourceIndex::new(text), Severity::Hint);
        shown.extend(placed.into_iter().map(|one| one.finding.clone()));
    }
    shown
}

/// Whether a finding from source text is about a file that the measured iteration used, or affects
/// correctness. The program may never use the other files.
fn is_relevant(finding: &Finding, profile: &Profile) -> bool {
    is_used(profile, &finding.at.path) || severity(finding, None) == Severity::Warning
}

/// Whether the measured iteration ran lines of a file.
fn is_used(profile: &Profile, path: &str) -> bool {
    let mut files = profile.files.iter().zip(&profile.lines);
    files.any(|(file, lines)| file.path == path && !lines.is_empty())
}

/// Omits findings that comments in the current texts suppress.
fn without_suppressed(found: Vec<Finding>, profile: &Profile, sources: &Sources) -> Vec<Finding> {
    let mut kept = Vec::with_capacity(found.len());
    let mut texts: Vec<(String, Option<SourceIndex>)> = Vec::new();
    for finding in found {
        let path = &finding.at.path;
        if !texts.iter().any(|(known, _)| known == path) {
            texts.push((path.clone(), sources.text(path).map(SourceIndex::new)));
        }
        let index =
            texts.iter().find(|(known, _)| known == path).and_then(|(_, index)| index.as_ref());
        let file = profile.files.iter().find(|file| file.path == *path);
        let ran = file.map_or(&[][..], |file| &file.fingerprint);
        let is_silenced = index.is_some_and(|index| {
            let current = CurrentText::new(ran, index);
            let line = current.line(finding.at.line);
            line.is_some_and(|line| current.is_suppressed(finding.rule, line))
        });
        if !is_silenced {
            kept.push(finding);
        }
    }
    kept
}

/// The findings that the project's configuration suppresses. A broken configuration suppresses nothing.
/// It is reported when something is to run.
fn ignored(root: &Path) -> ConfiguredSuppressions {
    let config = config::load(root).map(|loaded| loaded.config).unwrap_or_default();
    ConfiguredSuppressions::new(config.findings.ignore.iter().map(|entry| entry.as_str()))
}
