//! Edits of today's source as patches: those that fix findings, and those that apply optimizations.

use std::path::Path;

use ridgeline_analysis::diagnose::current_text::CurrentText;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::rewrite::{EditKind, Refusal, Request, Rewrite, rewrites};
use ridgeline_analysis::present::patch::unified_diff;
use ridgeline_analysis::python::SourceIndex;
use ridgeline_analysis::python::semantics::parts::notebook_of;
use ridgeline_analysis::python::semantics::{Entry, Project as _};

use crate::batch::Sources;
use crate::documents::real_path;
use crate::findings::FindingSet;
use crate::findings::entry::entry_of;
use crate::profiler::Profiled;
use crate::what_if::worker_count;

/// The program that a run ran, as its files are now.
pub(super) struct Program {
    sources: Sources,
    entry: Entry,
}

impl Program {
    /// # Errors
    /// If the recording does not say what ran.
    pub(super) fn of(profiled: &Profiled) -> Result<Program, String> {
        let root = real_path(&profiled.root);
        let sources = Sources::new(&root, []);
        let recording = profiled.recording.as_deref();
        let entry = recording.and_then(|recording: &Path| entry_of(recording, &sources));
        let entry = entry.ok_or("the recording does not name the program's entry point")?;
        Ok(Program { sources, entry })
    }

    /// The patch that fixes a finding, or why there is none. `None` if the finding has no automatic fix.
    pub(super) fn fix(
        &self,
        finding: &Finding,
        set: &FindingSet,
    ) -> Option<Result<String, String>> {
        let kind = finding.fix?;
        let path = finding.at.path.as_str();
        let index = self.sources.text(path).map(SourceIndex::new);
        let line = index
            .zip(set.fingerprint_of(path))
            .and_then(|(index, then)| CurrentText::new(then, &index).line(finding.at.line));
        let Some(line) = line else {
            return Some(Err("the line has changed since it was measured".to_owned()));
        };
        Some(self.patch(kind, &[(path, line)]).map(|(patch, _)| patch))
    }

    /// The patch that applies an optimization everywhere, with notes for its user.
    pub(super) fn patch(
        &self,
        kind: EditKind,
        lines: &[(&str, u32)],
    ) -> Result<(String, Vec<String>), String> {
        let request = Request { kind, lines, count: Some(worker_count()) };
        let made = rewrites(&self.sources, &self.entry, &[request]).pop();
        match made {
            Some(Ok(Rewrite { files, mut notes, .. })) => {
                if let Some(cell) = files.iter().find(|file| notebook_of(&file.path).is_some()) {
                    let note = "is a code cell of a notebook: edit that cell, because Git cannot \
                                apply the patch";
                    notes.push(format!("{} {note}", cell.path));
                }
                let patches = files.iter().filter_map(|file| {
                    let text = self.sources.text(&file.path)?;
                    Some(unified_diff(file, &text))
                });
                Ok((patches.collect(), notes))
            }
            Some(Err(Refusal::Done(what))) => Err(format!("already applied: {what}")),
            Some(Err(Refusal::NotUnderstood(why))) => Err(why),
            None => Err("no edit was made".to_owned()),
        }
    }
}
