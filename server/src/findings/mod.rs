//! Findings from a measurement or from source text, and their place in the current text.
//!
//! Nothing of the workspace runs, so no consent is needed. The functions read files and compute, so
//! call them on a background thread.

pub(crate) mod entry;
mod flow;
mod kept;

use std::path::Path;
use std::sync::Arc;

use ridgeline_analysis::diagnose;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::diagnose::severity::Severity;
use ridgeline_analysis::diagnose::silence::Ignored;
use ridgeline_analysis::diagnose::today::Today;
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::study::Subject;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::SourceIndex;
use ridgeline_analysis::python::semantics::Entry;
pub(crate) use ridgeline_analysis::python::semantics::Project as _;

use crate::batch::Sources;
use crate::config;
use crate::documents::real_path;
use crate::pipeline;
use crate::profiler::Profiled;
pub(crate) use flow::Findings;
pub(crate) use kept::{Kept, Placed, in_text};

/// The findings of a measured iteration, highest cost first, without those that the project's
/// configuration silences. `probes` are timings of single operators, `sources` the current texts.
pub(crate) fn measured(
    subject: &Subject,
    probes: &Probes,
    sources: &Sources,
    root: &Path,
) -> Vec<Finding> {
    let manifest_entry = subject.manifest.as_ref().and_then(|manifest| manifest.entry.as_ref());
    let entry = manifest_entry
        .and_then(|manifest_entry| entry::entry_told(manifest_entry, sources))
        .unwrap_or_default();
    let ignored = ignored(root);
    let found = diagnose::diagnose(subject, probes, sources, &entry);
    found.into_iter().filter(|one| !ignored.silence(one.rule, &one.at.path)).collect()
}

/// The findings from the source text of a program, ordered and filtered in the same way.
pub(crate) fn read(
    sources: &Sources,
    entry: &Entry,
    root: &Path,
    stop: &dyn Fn() -> bool,
) -> Vec<Finding> {
    let ignored = ignored(root);
    let found = diagnose::read_until(sources, entry, stop);
    found.into_iter().filter(|one| !ignored.silence(one.rule, &one.at.path)).collect()
}

/// The findings of a finished run without those silenced in the current texts, for the command
/// line.
///
/// # Errors
/// The error of `subject`.
pub(crate) fn of_run(
    profiled: &Profiled,
    subject: &Result<Subject, String>,
) -> Result<Vec<Finding>, String> {
    let subject = subject.as_ref().map_err(Clone::clone)?;
    Ok(of_subject(profiled, subject).findings)
}

/// The findings of a measurement without those silenced in the current texts.
pub(crate) fn of_subject(profiled: &Profiled, subject: &Subject) -> Kept {
    let root = real_path(&profiled.root);
    let sources = Sources::new(&root, []);
    let recording = profiled.recording.as_deref();
    let probes = recording.map(|recording| pipeline::kept_probes(recording, subject));
    let found = measured(subject, &probes.unwrap_or_default(), &sources, &root);
    let found = unsilenced(found, &profiled.profile, &sources);
    Kept::new(&root, found, Some(profiled.profile.clone()), &sources)
}

/// The findings from source text at lines that a measurement did not reach, for the command line. A
/// rule that already has a measured finding in a file is omitted there.
pub(crate) fn unreached(profiled: &Profiled, subject: &Subject, found: &[Finding]) -> Vec<Finding> {
    let root = real_path(&profiled.root);
    let sources = Sources::new(&root, []);
    let manifest_entry = subject.manifest.as_ref().and_then(|manifest| manifest.entry.as_ref());
    let Some(entry) =
        manifest_entry.and_then(|manifest_entry| entry::entry_told(manifest_entry, &sources))
    else {
        return Vec::new();
    };
    let mut of_texts = read(&sources, &entry, &root, &|| false);
    of_texts.retain(|one| {
        !found.iter().any(|known| known.rule == one.rule && known.at.path == one.at.path)
    });
    let measured = Kept::new(&root, Vec::new(), Some(profiled.profile.clone()), &sources);
    let all = [measured, Kept::new(&root, of_texts, None, &sources)].map(Arc::new);
    let mut shown = Vec::new();
    for file in all[1].files() {
        let text = all[1].relative(&file).and_then(|path| sources.text(&path));
        let Some(text) = text else { continue };
        let placed = in_text(&all, &file, &SourceIndex::new(text), Severity::Hint);
        shown.extend(placed.into_iter().map(|one| one.finding.clone()));
    }
    shown
}

/// Omits findings that comments in the current texts silence.
fn unsilenced(found: Vec<Finding>, profile: &Profile, sources: &Sources) -> Vec<Finding> {
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
            let today = Today::new(ran, index);
            let line = today.line(finding.at.line);
            line.is_some_and(|line| today.is_silenced(finding.rule, line))
        });
        if !is_silenced {
            kept.push(finding);
        }
    }
    kept
}

/// The findings that the project's configuration silences. A broken configuration silences nothing.
/// It is reported when something is to run.
fn ignored(root: &Path) -> Ignored {
    let config = config::load(root).map(|loaded| loaded.config).unwrap_or_default();
    Ignored::new(config.findings.ignore.iter().map(|entry| entry.as_str()))
}
