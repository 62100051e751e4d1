//! Edits that apply an optimization: code actions at the training loop and at the affected lines,
//! and the command. Each is one ordinary edit of the current text, which the editor can undo.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::base::printable::one_line;
use ridgeline_analysis::diagnose::current_text::CurrentText;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::rewrite::{EditKind, Refusal, Request, Rewrite, rewrites};
use ridgeline_analysis::optimize::study::Study;
use ridgeline_analysis::present::edit_gain::{Gain, predicted_gain};
use ridgeline_analysis::present::panel;
use ridgeline_analysis::profile::{FileId, Profile};
use ridgeline_analysis::python::semantics::Entry;
pub(super) use ridgeline_analysis::python::semantics::Project as _;
use ridgeline_analysis::python::semantics::module::Module;
use ridgeline_analysis::python::syntax::cell_magics::python_of_cell;
use ridgeline_analysis::python::{
    LineMap, Lines, SourceIndex, TrainingScript, fingerprint, training_script,
};
use tower_lsp::ls_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, DocumentChanges, OneOf,
    OptionalVersionedTextDocumentIdentifier, Range, TextDocumentEdit, TextEdit, Uri, WorkspaceEdit,
};

use super::CommandReply;
use super::batch_size::Edits;
use crate::batch::Sources;
use crate::documents::{DocumentId, DocumentSnapshot};
use crate::findings::FindingSet;
use crate::findings::entry::entry_of;
use crate::lsp::client::{Importance, ToClient};
use crate::lsp::position::to_range;
use crate::lsp::to_proto;
use crate::notebook;
use crate::profiler::Profiled;
use crate::scheduler::WorkspaceId;
use crate::state::GlobalState;
use crate::view::View;
use crate::what_if::worker_count;

/// The maximum number of lines of one edit.
const MAX_LINES: usize = 64;

/// The data for an edit of a program.
#[derive(Clone, Debug)]
pub(crate) struct EditContext {
    /// The project's root, with links resolved.
    root: PathBuf,
    /// The file from which the edit is requested.
    file: Option<PathBuf>,
    /// The newest measurement of the project, which has the entry point.
    measured: Option<Arc<Profiled>>,
    /// The estimated savings for it, if known.
    what_ifs: Option<Arc<Study>>,
    /// The open documents of the project, by path.
    open: Vec<(PathBuf, DocumentSnapshot)>,
}

/// A requested edit, and its lines in the current texts.
pub(super) type RequestedEdit = (EditKind, Vec<(String, u32)>);

/// An edit in the client's form, and the rewrite it applies.
pub(super) type PreparedEdit = (WorkspaceEdit, Rewrite);

/// The inputs of edits of a program.
struct Program {
    sources: Sources,
    entry: Entry,
}

impl EditContext {
    /// The project's root, the current texts and the entry point, if known. Reads files.
    pub(crate) fn read(&self) -> Option<(&Path, Sources, Entry)> {
        let Program { sources, entry } = self.program(None).ok()?;
        Some((&self.root, sources, entry))
    }

    /// The newest measurement of the project.
    pub(crate) fn profile(&self) -> Option<&Profile> {
        self.measured.as_ref().map(|measured| &*measured.profile)
    }

    /// Whether the editor has a file of the project open.
    pub(crate) fn is_open(&self, path: &str) -> bool {
        let file = self.root.join(path);
        self.open.iter().any(|(open, _)| *open == file)
    }

    /// The open Python texts of the project.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Arc<str>> {
        self.open.iter().filter_map(|(path, open)| {
            let text = open.index.shared_text();
            if notebook::cell_of(path).is_some() {
                return Some(python_of_cell(&text).into());
            }
            path.extension().is_some_and(|ending| ending == "py").then_some(text)
        })
    }

    /// The current texts and the entry point: that of the measurement, else `read`, else the file
    /// itself. Reads files.
    ///
    /// # Errors
    /// If the entry point is unknown.
    fn program(&self, read: Option<&Entry>) -> Result<Program, String> {
        let texts = self.open.iter().map(|(path, open)| (path.clone(), open.index.shared_text()));
        let sources = Sources::new(&self.root, texts);
        let recording = self.measured.as_ref().and_then(|measured| measured.recording.as_deref());
        let entry = recording.and_then(|recording| entry_of(recording, &sources));
        let entry = entry.or_else(|| read.cloned()).or_else(|| self.own_entry(&sources)).ok_or(
            "The training script is unknown: profile it once, or run the command from that script.",
        )?;
        Ok(Program { sources, entry })
    }

    /// The file itself as entry point, if it trains.
    fn own_entry(&self, sources: &Sources) -> Option<Entry> {
        let path = self.relative(&notebook::file_of(self.file.as_deref()?))?;
        let script = training_script(&Module::read(sources, &path)?.index);
        let trains = script.score >= TrainingScript::LIKELY || script.provider;
        trains.then(|| Entry { path, provider: script.provider, ..Entry::default() })
    }

    fn relative(&self, file: &Path) -> Option<String> {
        let inside = file.strip_prefix(&self.root).ok()?;
        Some(inside.to_string_lossy().replace('\\', "/"))
    }

    /// The lines of a prediction, mapped to the current texts.
    fn lines(&self, sources: &Sources, kind: EditKind) -> Vec<(String, u32)> {
        let study = self.what_ifs.as_deref();
        let prediction = study.and_then(|study| study.prediction(kind.name()));
        let Some((prediction, measured)) = prediction.zip(self.measured.as_deref()) else {
            return Vec::new();
        };
        let mut maps: HashMap<FileId, Option<LineMap>> = HashMap::new();
        let lines = prediction.lines.iter().filter_map(|(id, line)| {
            let file = measured.profile.files.get(id.0 as usize)?;
            let map = maps.entry(*id).or_insert_with(|| {
                let text = sources.text(&file.path)?;
                Some(LineMap::new(&file.fingerprint, &fingerprint(&text)))
            });
            let place = map.as_ref()?.place(*line).filter(|place| !place.changed)?;
            Some((file.path.clone(), place.line))
        });
        lines.take(MAX_LINES).collect()
    }

    /// The edits of all these kinds in the current texts, each separately.
    fn all(&self, program: &Program, kinds: &[EditKind]) -> Vec<Result<Rewrite, Refusal>> {
        let lines: Vec<Vec<(String, u32)>> = kinds
            .iter()
            .map(|kind| match kind {
                // The other edits find their lines themselves.
                EditKind::Checkpoint => self.lines(&program.sources, *kind),
                _ => Vec::new(),
            })
            .collect();
        let lines: Vec<Vec<(&str, u32)>> = lines
            .iter()
            .map(|lines| lines.iter().map(|(path, line)| (path.as_str(), *line)).collect())
            .collect();
        let requests: Vec<Request<'_>> = kinds
            .iter()
            .zip(&lines)
            .map(|(kind, lines)| Request { kind: *kind, lines, count: Some(worker_count()) })
            .collect();
        rewrites(&program.sources, &program.entry, &requests)
    }

    /// For each optimization, by name, whether its edit can be applied to the current texts, or the
    /// reason why not: a sentence without a full stop. Reads files.
    pub(crate) fn applicable_edits(&self) -> Vec<(String, Result<(), String>)> {
        let names = EditKind::ALL.map(|kind| kind.name().to_owned());
        match self.program(None) {
            Ok(program) => {
                let all = self.all(&program, &EditKind::ALL).into_iter();
                let all =
                    all.map(|results| results.map(|_| ()).map_err(|refusal| refusal.to_string()));
                names.into_iter().zip(all).collect()
            }
            Err(why) => {
                let why = why.trim_end_matches('.').to_owned();
                names.into_iter().map(|name| (name, Err(why.clone()))).collect()
            }
        }
    }

    /// Converts a rewrite to an edit of the client's texts. It names the versions of open
    /// documents.
    ///
    /// # Errors
    /// If a cell's notebook is not open, or a text has gone.
    fn edit(
        &self,
        sources: &Sources,
        rewrite: &Rewrite,
        edits: Edits,
    ) -> Result<WorkspaceEdit, Refusal> {
        let gone = || Refusal::NotUnderstood("the code has just changed".to_owned());
        let mut changes = HashMap::new();
        let mut documents = Vec::new();
        for file in &rewrite.files {
            let path = self.root.join(Path::new(&file.path));
            let open = self.open.iter().find(|(real, _)| *real == path).map(|(_, open)| open);
            let uri: Uri = match open {
                Some(open) => open.uri.parse().map_err(|_| gone())?,
                None => to_proto::uri(&path).ok_or_else(|| {
                    Refusal::NotUnderstood(format!("the notebook of {} is not open", file.path))
                })?,
            };
            let text = sources.text(&file.path).ok_or_else(gone)?;
            let lines = Lines::new(&text);
            let texts = file.edits.iter().map(|(range, new)| {
                TextEdit::new(to_range(&text, &lines, edits.encoding, range.clone()), new.clone())
            });
            let texts: Vec<TextEdit> = texts.collect();
            let version = open.map(|open| open.version);
            documents.push(TextDocumentEdit {
                text_document: OptionalVersionedTextDocumentIdentifier {
                    uri: uri.clone(),
                    version,
                },
                edits: texts.iter().cloned().map(OneOf::Left).collect(),
            });
            changes.insert(uri, texts);
        }
        Ok(match edits.versioned {
            true => {
                let documents = Some(DocumentChanges::Edits(documents));
                WorkspaceEdit { document_changes: documents, ..WorkspaceEdit::default() }
            }
            false => WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() },
        })
    }

    /// The edits that fix findings at lines of the current texts, each separately: the kind of
    /// edit, and its lines. `read` is the entry point of findings from source text.
    ///
    /// # Errors
    /// If the entry point is unknown.
    pub(crate) fn fix_findings(
        &self,
        requested: &[RequestedEdit],
        read: Option<&Entry>,
        edits: Edits,
    ) -> Result<Vec<Result<PreparedEdit, Refusal>>, String> {
        let program = self.program(read)?;
        let lines: Vec<Vec<(&str, u32)>> = requested
            .iter()
            .map(|(_, lines)| lines.iter().map(|(path, line)| (path.as_str(), *line)).collect())
            .collect();
        let requests: Vec<Request<'_>> = requested
            .iter()
            .zip(&lines)
            .map(|((kind, _), lines)| Request { kind: *kind, lines, count: Some(worker_count()) })
            .collect();
        let results = rewrites(&program.sources, &program.entry, &requests);
        let results = results.into_iter().map(|results| {
            let rewrite = results?;
            Ok((self.edit(&program.sources, &rewrite, edits)?, rewrite))
        });
        Ok(results.collect())
    }

    /// Whether this is the project at `root`.
    pub(crate) fn is_about(&self, root: &Path) -> bool {
        self.root == root
    }

    /// The current line of a measured line. Returns `None` if its statement changed.
    fn current_line(&self, sources: &Sources, path: &str, line: u32) -> Option<u32> {
        let measured = self.measured.as_deref()?;
        let file = measured.profile.files.iter().find(|file| file.path == path)?;
        let index = SourceIndex::new(sources.text(path)?);
        CurrentText::new(&file.fingerprint, &index).line(line)
    }

    /// The findings for the panel, without those suppressed in the current texts. Each has its edit,
    /// or the reason why it cannot be applied: a sentence without a full stop. Reads files.
    pub(crate) fn panel_findings(&self, set: &FindingSet) -> Vec<panel::PanelFinding> {
        let program = match self.program(None) {
            Ok(program) => program,
            Err(why) => {
                let why = why.trim_end_matches('.').to_owned();
                let all = set.findings.iter().map(|finding| panel::PanelFinding {
                    finding: finding.clone(),
                    edit: finding.fix.map(|_| Err(why.clone())),
                });
                return all.collect();
            }
        };
        let mut texts: HashMap<&str, Option<SourceIndex>> = HashMap::new();
        for finding in &set.findings {
            let path = finding.at.path.as_str();
            let text = || program.sources.text(path).map(SourceIndex::new);
            texts.entry(path).or_insert_with(text);
        }
        let current_texts: HashMap<&str, CurrentText<'_>> = texts
            .iter()
            .filter_map(|(path, index)| {
                Some((*path, CurrentText::new(set.fingerprint_of(path)?, index.as_ref()?)))
            })
            .collect();
        let placed = set.findings.iter().filter_map(|finding| {
            let current = current_texts.get(finding.at.path.as_str());
            let line = current.and_then(|current| current.line(finding.at.line));
            let is_suppressed = current
                .zip(line)
                .is_some_and(|(current, line)| current.is_suppressed(finding.rule, line));
            (!is_suppressed).then_some((finding, line))
        });
        let placed: Vec<(&Finding, Option<u32>)> = placed.collect();
        let lines: Vec<[(&str, u32); 1]> = placed
            .iter()
            .map(|(finding, line)| [(finding.at.path.as_str(), line.unwrap_or_default())])
            .collect();
        let requested = placed.iter().zip(&lines).take(MAX_LINES);
        let requested = requested.filter_map(|((finding, line), lines)| {
            line.and(finding.fix).map(|kind| Request { kind, lines, count: Some(worker_count()) })
        });
        let requested: Vec<Request<'_>> = requested.collect();
        let mut results = rewrites(&program.sources, &program.entry, &requested).into_iter();
        let found = placed.iter().map(|(finding, line)| {
            let edit = finding.fix.map(|_| match line {
                None => Err("the line has changed since it was measured".to_owned()),
                Some(_) => match results.next() {
                    Some(results) => results.map(|_| ()).map_err(|refusal| refusal.to_string()),
                    None => Err("too many findings before it".to_owned()),
                },
            });
            panel::PanelFinding { finding: (*finding).clone(), edit }
        });
        found.collect()
    }

    /// Builds the edit of one optimization: everywhere, or at lines of the text that ran.
    fn build_edit(
        &self,
        name: &str,
        at: &[(String, u32)],
        edits: Edits,
    ) -> Result<(WorkspaceEdit, Rewrite), String> {
        let kind = EditKind::from_name(name)
            .ok_or_else(|| format!("`{}` has no automatic edit.", one_line(name, 60)))?;
        let program = self.program(None)?;
        let results = if at.is_empty() {
            self.all(&program, &[kind]).pop()
        } else {
            let lines = at.iter().map(|(path, line)| {
                let current_line = self
                    .current_line(&program.sources, path, *line)
                    .ok_or_else(|| format!("{path}:{line} has changed since it was measured."))?;
                Ok((path.as_str(), current_line))
            });
            let lines: Vec<(&str, u32)> = lines.collect::<Result<_, String>>()?;
            let request = Request { kind, lines: &lines, count: Some(worker_count()) };
            rewrites(&program.sources, &program.entry, &[request]).pop()
        };
        let edited = results
            .ok_or("No edit was requested.")?
            .and_then(|rewrite| Ok((self.edit(&program.sources, &rewrite, edits)?, rewrite)));
        // The user may have typed meanwhile.
        if !self.open.iter().all(|(_, open)| open.is_current()) {
            return Err("The code has just changed. Try again.".to_owned());
        }
        edited.map_err(|refusal| match refusal {
            Refusal::Done(what) => format!("Already applied: {what}."),
            Refusal::NotUnderstood(why) => format!("Could not apply the edit: {why}."),
        })
    }
}

/// The actions for a range: at the training loop, and at the lines that an edit changes. None
/// before the project was measured: until then the savings are unknown, and the command is
/// available.
pub(super) fn actions(
    view: &View,
    edit_context: &EditContext,
    range: Range,
) -> Vec<CodeActionOrCommand> {
    if edit_context.measured.is_none() {
        return Vec::new();
    }
    let Ok(program) = edit_context.program(None) else { return Vec::new() };
    let Some(here) = edit_context.file.as_deref().and_then(|file| edit_context.relative(file))
    else {
        return Vec::new();
    };
    let is_in = |line: u32| (range.start.line..=range.end.line).contains(&line.saturating_sub(1));
    let at_loop = view.loop_line().is_some_and(is_in);
    let text = view.document.index.text();
    let on_gpu = edit_context.measured.as_ref().is_some_and(|one| one.profile.device.kind != "cpu");
    let study = edit_context.what_ifs.as_deref();
    let gains = EditKind::ALL.into_iter().filter_map(|kind| {
        let gain = match study {
            Some(study) => predicted_gain(study, kind)?,
            // Before the simulation, optimizations that need a GPU are not offered on a CPU.
            None if !on_gpu && kind.needs_gpu() => return None,
            None => Gain::default(),
        };
        Some((kind, gain))
    });
    let mut gains: Vec<(EditKind, Gain)> = gains.collect();
    gains.sort_by(|(_, a), (_, b)| b.speedup.total_cmp(&a.speedup));
    let (kinds, gains): (Vec<EditKind>, Vec<Gain>) = gains.into_iter().unzip();
    let results = edit_context.all(&program, &kinds);
    let edits = Edits { encoding: view.encoding, versioned: view.client.versioned_edits };
    let results = results.into_iter().zip(gains);
    let actions = results.filter_map(|(rewrite, gain)| {
        let rewrite = rewrite.ok()?;
        let touches = rewrite
            .files
            .iter()
            .any(|file| file.path == here && file.lines(text).into_iter().any(is_in));
        if !(at_loop || touches) {
            return None;
        }
        Some(CodeActionOrCommand::CodeAction(CodeAction {
            title: format!("{}{}", named(rewrite.title), gain.text),
            kind: Some(CodeActionKind::REFACTOR_REWRITE),
            edit: Some(edit_context.edit(&program.sources, &rewrite, edits).ok()?),
            ..CodeAction::default()
        }))
    });
    actions.collect()
}

/// Adds the prefix that distinguishes our actions from those of other servers: `Ridgeline: use the
/// fused optimizer` for `Use the fused optimizer`.
pub(super) fn named(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    let small: String = first.into_iter().chain(letters).collect();
    format!("Ridgeline: {small}")
}

impl GlobalState {
    /// The data for an edit of a document's program.
    pub(crate) fn edit_context_of(&self, id: &DocumentId) -> Option<EditContext> {
        let real = self.documents.get(id)?.real.clone()?;
        Some(self.edit_context(self.workspaces.around(&real)?, Some(&real)))
    }

    pub(crate) fn edit_context(&self, id: WorkspaceId, file: Option<&Path>) -> EditContext {
        let workspace = &self.workspaces[id];
        // Another project of the workspace may have been measured more recently than the file's.
        let is_about =
            |profiled: &Profiled| file.is_none_or(|file| file.starts_with(&profiled.real_root));
        let mut all = workspace.measured.iter();
        let measured = all.find(|(_, profiled)| is_about(profiled));
        let generation = measured.map(|(generation, _)| *generation);
        let what_ifs = generation.and_then(|generation| self.what_ifs_of(generation));
        let measured = measured.map(|(_, profiled)| profiled.clone());
        let root = measured.as_ref().map_or(&workspace.root, |profiled| &profiled.real_root);
        let root = root.clone();
        let open = self.open_texts(&root);
        EditContext { root, file: file.map(Path::to_owned), measured, what_ifs, open }
    }

    /// Handles the command that applies an optimization. The response is sent when the edit was
    /// sent or refused.
    pub(crate) fn apply_by_command(
        &self,
        id: WorkspaceId,
        file: Option<&Path>,
        name: Option<&str>,
        reply: CommandReply,
    ) {
        let to_client = self.to_client.clone();
        let Some(name) = name else {
            let message = "ridgeline.applyWhatIf takes the optimization in the `name` argument; \
                the code actions at the training loop list some.";
            to_client.show_message(Importance::Info, message);
            // Sending fails if the client has cancelled.
            let _ = reply.send(Ok(None));
            return;
        };
        let root = &self.workspaces[id].root;
        let file = file.or(self.last_touched.as_deref()).filter(|file| file.starts_with(root));
        let finding = self.what_if_edit(id, file, name, Vec::new());
        tokio::spawn(async move {
            let results = finding.await.map(|found| make(&to_client, found));
            let results =
                results.inspect_err(|why| to_client.show_message(Importance::Warning, why));
            let _ = reply.send(Ok(None));
            let Ok(results) = results else { return };
            match results.await {
                Ok(notes) if notes.is_empty() => {}
                Ok(notes) => {
                    let message = format!("Edit applied; {}.", notes.join("; "));
                    to_client.show_message(Importance::Info, &message);
                }
                Err(why) => to_client.show_message(Importance::Warning, &why),
            }
        });
    }

    /// Finds the edit of an optimization in the current text, everywhere or at lines of the text
    /// that ran.
    pub(crate) fn what_if_edit(
        &self,
        id: WorkspaceId,
        file: Option<&Path>,
        name: &str,
        at: Vec<(String, u32)>,
    ) -> impl Future<Output = Result<(WorkspaceEdit, Rewrite), String>> + use<> {
        let edit_context = self.edit_context(id, file);
        let client = self.client.clone();
        let edits = Edits { encoding: client.encoding, versioned: client.versioned_edits };
        let name = name.to_owned();
        async move {
            if !client.applies_edits {
                return Err("This editor does not accept edits from the server.".to_owned());
            }
            let sought =
                tokio::task::spawn_blocking(move || edit_context.build_edit(&name, &at, edits));
            sought.await.map_err(|error| format!("internal error of Ridgeline: {error}"))?
        }
    }
}

/// Sends the edit to the editor. Returns a note for the user.
pub(super) fn make(
    to_client: &ToClient,
    (edit, rewrite): (WorkspaceEdit, Rewrite),
) -> impl Future<Output = Result<Vec<String>, String>> + Send + use<> {
    let results = to_client.apply_edit(rewrite.title, &edit);
    async {
        results.await?;
        Ok(rewrite.notes)
    }
}
