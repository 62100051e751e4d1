//! Edits of today's source as patches: those that fix findings, and those that apply optimizations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::diagnose::current_text::CurrentText;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::rewrite::{
    EditKind, FileEdits, Refusal, Request, Rewrite, rewrite,
};
use ridgeline_analysis::present::patch::unified_diff;
use ridgeline_analysis::python::SourceIndex;
use ridgeline_analysis::python::semantics::parts::notebook_of;
use ridgeline_analysis::python::semantics::{Entry, Project as _};

use crate::batch::Sources;
use crate::documents::real_path;
use crate::findings::FindingSet;
use crate::findings::entry::entry_of;
use crate::notebook;
use crate::profiler::Profiled;
use crate::what_if::worker_count;

/// The program that a run ran, as its files are now.
pub(super) struct Program {
    root: PathBuf,
    sources: Sources,
    entry: Entry,
}

/// A file before and after edits.
pub(super) struct EditedFile {
    /// Relative to the root.
    pub path: String,
    pub before: Arc<str>,
    pub after: String,
}

impl EditedFile {
    /// All changes of the file as one edit.
    pub(super) fn edits(&self) -> FileEdits {
        FileEdits {
            path: self.path.clone(),
            edits: vec![(0..self.before.len(), self.after.clone())],
        }
    }
}

/// An edit to apply.
pub(super) struct ToApply {
    pub kind: EditKind,
    /// The finding that it fixes: path, line in the text that ran, and that text's lines.
    finding: Option<(String, u32, Option<Vec<u32>>)>,
}

impl ToApply {
    /// An edit of the whole program.
    pub(super) fn everywhere(kind: EditKind) -> ToApply {
        ToApply { kind, finding: None }
    }

    /// The fix of a finding, if it has one.
    pub(super) fn of_finding(finding: &Finding, set: &FindingSet) -> Option<ToApply> {
        let path = finding.at.path.clone();
        let then = set.fingerprint_of(&path).map(<[u32]>::to_vec);
        Some(ToApply { kind: finding.fix?, finding: Some((path, finding.at.line, then)) })
    }

    /// The current line of the finding.
    ///
    /// # Errors
    /// If the line has changed.
    fn line(&self, sources: &Sources) -> Result<Option<(&str, u32)>, String> {
        let Some((path, line, then)) = &self.finding else { return Ok(None) };
        let index = sources.text(path).map(SourceIndex::new);
        let now = index.zip(then.as_deref());
        let now = now.and_then(|(index, then)| CurrentText::new(then, &index).line(*line));
        let now = now.ok_or_else(|| format!("{path}:{line} has changed since it was measured"))?;
        Ok(Some((path, now)))
    }
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
        Ok(Program { root, sources, entry })
    }

    /// Applies edits one after the other. Returns the changed files and notes for the user.
    ///
    /// # Errors
    /// The reason why one of the edits cannot be applied.
    pub(super) fn apply(
        &self,
        to_apply: &[ToApply],
    ) -> Result<(Vec<EditedFile>, Vec<String>), String> {
        let mut edited: BTreeMap<String, String> = BTreeMap::new();
        let mut all_notes: Vec<String> = Vec::new();
        for one in to_apply {
            let kind = one.kind;
            let texts = edited.iter().map(|(path, text)| {
                (notebook::real_path(&self.root.join(path)), text.as_str().into())
            });
            let sources = Sources::new(&self.root, texts);
            let line = one.line(&sources)?;
            let request = Request { kind, lines: line.as_slice(), count: Some(worker_count()) };
            let Rewrite { files, notes, .. } = match rewrite(&sources, &self.entry, &request) {
                // The fix of an earlier finding of the rule changed this line as well.
                Err(Refusal::Done(_)) if line.is_some() && !edited.is_empty() => continue,
                result => result.map_err(|refusal| format!("{}: {}", kind.name(), why(refusal)))?,
            };
            for file in files {
                let text = sources.text(&file.path).ok_or("the code has just changed")?;
                // The cells of a notebook are read together.
                for (path, cell) in sources.cells_beside(&file.path) {
                    edited.entry(path).or_insert_with(|| cell.to_string());
                }
                edited.insert(file.path.clone(), file.applied(&text));
            }
            all_notes.extend(notes.into_iter().map(|note| format!("{}: {note}", kind.name())));
        }
        let files = edited.into_iter().filter_map(|(path, after)| {
            let before = self.sources.text(&path).filter(|before| **before != after)?;
            Some(EditedFile { path, before, after })
        });
        Ok((files.collect(), all_notes))
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
        let Rewrite { files, mut notes, .. } =
            rewrite(&self.sources, &self.entry, &request).map_err(why)?;
        if let Some(cell) = files.iter().find(|file| notebook_of(&file.path).is_some()) {
            let note = "is a code cell of a notebook: edit that cell, because Git cannot apply the \
                        patch";
            notes.push(format!("{} {note}", cell.path));
        }
        let patches = files.iter().filter_map(|file| {
            let text = self.sources.text(&file.path)?;
            Some(unified_diff(file, &text))
        });
        Ok((patches.collect(), notes))
    }
}

fn why(refusal: Refusal) -> String {
    match refusal {
        Refusal::Done(what) => format!("already applied: {what}"),
        Refusal::NotUnderstood(why) => why,
    }
}
