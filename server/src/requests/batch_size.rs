//! Edits of the batch size: code actions at its site and at the loop, the command, and the panel's
//! handles. Each is one ordinary edit of the current text, which the editor can undo.

use std::collections::HashMap;
use std::path::Path;

use ridgeline_analysis::base::units;
use ridgeline_analysis::predict::batch_size::{Curve, Reason, Suggestion, suggestions};
use ridgeline_analysis::python::Lines;
pub(super) use ridgeline_analysis::python::batch_site::{BatchSite, Project as _};
use tower_lsp::ls_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, DocumentChanges, OneOf,
    OptionalVersionedTextDocumentIdentifier, Range, TextDocumentEdit, TextEdit, Uri, WorkspaceEdit,
};

use super::CommandReply;
use crate::batch::{BatchView, MAX_BATCH_SIZE, Sources};
use crate::documents::DocumentId;
use crate::lsp::client::{Importance, ToClient};
use crate::lsp::position::{Encoding, to_range};
use crate::lsp::to_proto;
use crate::panel::request::ActionResult;
use crate::pool::{Reply, RequestError};
use crate::scheduler::WorkspaceId;
use crate::state::GlobalState;
use crate::view::View;

/// The client's capabilities for edits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edits {
    /// The unit of positions.
    pub encoding: Encoding,
    /// Whether it supports versioned edits.
    pub versioned: bool,
}

/// The actions for a range: at the number, and at the loop or loader that uses it.
pub(super) fn actions(view: &View, batch: &BatchView, range: Range) -> Vec<CodeActionOrCommand> {
    let sources = batch.sources();
    let Ok(site) = batch.results.current_site(&sources) else { return Vec::new() };
    let own = batch.open.iter().find(|(_, open)| open.id == view.document.id);
    let Some((own, _)) = own else { return Vec::new() };
    let here = own.strip_prefix(&batch.results.root).unwrap_or(own).to_string_lossy();
    let here = here.replace('\\', "/");
    let is_in = |line: u32| (range.start.line..=range.end.line).contains(&line.saturating_sub(1));
    let is_here = |at: &(String, u32)| at.0 == here && is_in(at.1);
    let at_site = is_here(&(site.file.clone(), site.line));
    let at_loader = site.taken_at.as_ref().is_some_and(is_here);
    let loop_line = view.loop_line().filter(|line| is_in(*line));
    if !(at_site || at_loader || loop_line.is_some()) {
        return Vec::new();
    }
    let edits = Edits { encoding: view.encoding, versioned: view.client.versioned_edits };
    let offers = offers(batch, &site).into_iter();
    let actions = offers.filter_map(|(value, why)| {
        let edit = edit(batch, &sources, &site, value, edits)?;
        let title = format!("Ridgeline: set batch size to {value}{why}");
        let kind = Some(CodeActionKind::REFACTOR_REWRITE);
        Some(CodeActionOrCommand::CodeAction(CodeAction {
            title,
            kind,
            edit: Some(edit),
            ..CodeAction::default()
        }))
    });
    actions.collect()
}

/// The suggested values, with their descriptions.
fn offers(batch: &BatchView, site: &BatchSite) -> Vec<(u64, String)> {
    let sweep = &batch.results;
    let curve = Curve::fit(&sweep.evidence).ok();
    let suggested = suggestions(curve.as_ref(), sweep.capacity, site.value);
    let suggested = suggested.into_iter().filter(|suggestion| suggestion.batch <= MAX_BATCH_SIZE);
    let with_reason = suggested.map(|Suggestion { batch, reason }| {
        let reason_text = match reason {
            Reason::Saturation => " (throughput saturates, ~)".to_owned(),
            Reason::Largest(capacity) => {
                format!(
                    " (largest that fits in {}, ~)",
                    units::bytes(capacity.available_bytes() as f64)
                )
            }
            Reason::Near => String::new(),
        };
        (batch, reason_text)
    });
    with_reason.collect()
}

/// The edit that sets a batch size. It names the document's version if the document is open.
pub(super) fn edit(
    batch: &BatchView,
    sources: &Sources,
    site: &BatchSite,
    value: u64,
    edits: Edits,
) -> Option<WorkspaceEdit> {
    let path = batch.results.root.join(Path::new(&site.file));
    let open = batch.open.iter().find(|(real, _)| *real == path).map(|(_, open)| open);
    let text = sources.text(&site.file)?;
    let lines = Lines::new(&text);
    let range = to_range(&text, &lines, edits.encoding, site.span.clone());
    let change = TextEdit::new(range, value.to_string());
    let uri: Uri = match open {
        Some(open) => open.uri.parse().ok()?,
        None => to_proto::uri(&path)?,
    };
    if !edits.versioned {
        let changes = HashMap::from([(uri, vec![change])]);
        return Some(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() });
    }
    let version = open.map(|open| open.version);
    let document = TextDocumentEdit {
        text_document: OptionalVersionedTextDocumentIdentifier { uri, version },
        edits: vec![OneOf::Left(change)],
    };
    let changes = DocumentChanges::Edits(vec![document]);
    Some(WorkspaceEdit { document_changes: Some(changes), ..WorkspaceEdit::default() })
}

impl GlobalState {
    /// The data for an edit of the batch size of a document's project.
    pub(crate) fn batch_view_of(&self, id: &DocumentId) -> Option<BatchView> {
        let real = self.documents.get(id)?.real.clone()?;
        self.batch_view(self.workspaces.around(&real)?)
    }

    /// Sets the batch size in the current text, for the panel's handles. The page must show the
    /// newest measurement.
    pub(crate) fn panel_batch(
        &self,
        id: WorkspaceId,
        generation: u64,
        value: u64,
        reply: Reply<ActionResult>,
    ) {
        let Some(workspace) = self.workspaces.find(id) else {
            let gone = RequestError::Invalid("unknown workspace".to_owned());
            let _ = reply.send(Err(gone));
            return;
        };
        if workspace.measured.first().is_none_or(|(newest, _)| *newest != generation) {
            let _ = reply.send(Ok(ActionResult::failure("The panel shows an older measurement.")));
            return;
        }
        let to_client = self.to_client.clone();
        let finding = self.batch_edit(id, value);
        tokio::spawn(async move {
            let result = match finding.await {
                Ok(edit) => make(&to_client, value, edit).await,
                Err(why) => Err(why),
            };
            let done = match result {
                Ok(()) => ActionResult::success(),
                Err(why) => ActionResult::failure(why),
            };
            // Sending fails if the page was closed.
            let _ = reply.send(Ok(done));
        });
    }

    /// Handles the command that sets the batch size. The response is sent when the edit was sent or
    /// refused. Without a value, explains the usage.
    pub(crate) fn set_batch_by_command(
        &self,
        id: WorkspaceId,
        value: Option<u64>,
        reply: CommandReply,
    ) {
        let to_client = self.to_client.clone();
        let Some(value) = value else {
            let message = "ridgeline.setBatchSize takes the number in the `batch` argument; the \
                code actions at the training loop offer some.";
            to_client.show_message(Importance::Info, message);
            // Sending fails if the client has cancelled.
            let _ = reply.send(Ok(None));
            return;
        };
        let finding = self.batch_edit(id, value);
        tokio::spawn(async move {
            let result = finding.await.map(|edit| make(&to_client, value, edit));
            let result = result.inspect_err(|why| to_client.show_message(Importance::Warning, why));
            let _ = reply.send(Ok(None));
            let Ok(result) = result else { return };
            if let Err(why) = result.await {
                to_client.show_message(Importance::Warning, &why);
            }
        });
    }

    /// Finds the edit that sets the batch size in the current text. Returns `None` if it already
    /// has that value.
    fn batch_edit(
        &self,
        id: WorkspaceId,
        value: u64,
    ) -> impl Future<Output = Result<Option<WorkspaceEdit>, String>> + use<> {
        let batch = self.batch_view(id);
        let client = self.client.clone();
        let edits = Edits { encoding: client.encoding, versioned: client.versioned_edits };
        async move {
            if !(1..=MAX_BATCH_SIZE).contains(&value) {
                return Err(format!("The batch size must be a number from 1 to {MAX_BATCH_SIZE}."));
            }
            let batch =
                batch.ok_or("The location of the batch size in the code is not known yet.")?;
            if !client.applies_edits {
                return Err("This editor does not accept edits from the server.".to_owned());
            }
            let sought = tokio::task::spawn_blocking(move || found(&batch, value, edits));
            sought.await.map_err(|error| format!("internal error of Ridgeline: {error}"))?
        }
    }
}

/// Sends the edit to the editor, if there is one.
fn make(
    to_client: &ToClient,
    value: u64,
    edit: Option<WorkspaceEdit>,
) -> impl Future<Output = Result<(), String>> + Send + use<> {
    let label = format!("Set batch size to {value}");
    let result = edit.map(|edit| to_client.apply_edit(&label, &edit));
    async {
        match result {
            Some(result) => result.await,
            None => Ok(()),
        }
    }
}

/// The edit for a value. Returns `None` if the text already has it.
fn found(batch: &BatchView, value: u64, edits: Edits) -> Result<Option<WorkspaceEdit>, String> {
    let sources = batch.sources();
    let site = batch.results.current_site(&sources).map_err(|refusal| refusal.message)?;
    if site.value == value {
        return Ok(None);
    }
    let edit = edit(batch, &sources, &site, value, edits).ok_or(
        "The code has just changed. Try \
        again.",
    )?;
    // The user may have typed meanwhile.
    if batch.open.iter().any(|(_, open)| !open.is_current()) {
        return Err("The code has just changed. Try again.".to_owned());
    }
    Ok(Some(edit))
}
