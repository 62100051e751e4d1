//! Requests of the client, one file each, named as in the protocol. The event loop takes a snapshot
//! for each, and the pool computes the response.

use tower_lsp::ls_types::{
    CodeActionParams, CodeActionResponse, CodeLens, CodeLensParams, DocumentDiagnosticParams,
    DocumentDiagnosticReportResult, ExecuteCommandParams, Hover, HoverParams, InlayHint,
    InlayHintParams, Uri,
};

use crate::lsp::ext::{HeatParams, HeatStatement};
use crate::lsp::from_proto::document_id;
use crate::pool::Reply;
use crate::state::GlobalState;
use crate::view::View;

mod apply;
pub(crate) use apply::EditContext;
mod batch_size;
mod code_action;
mod code_lens;
pub(crate) mod diagnostic;
mod execute_command;
mod heat;
mod hover;
mod inlay_hint;
mod panel;
mod quick_fix;

/// The channel for a command's response.
type CommandReply = Reply<Option<serde_json::Value>>;

/// A request of the client.
pub(crate) enum Request {
    /// `textDocument/inlayHint`
    InlayHint(InlayHintParams, Reply<Option<Vec<InlayHint>>>),
    /// `textDocument/codeLens`
    CodeLens(CodeLensParams, Reply<Option<Vec<CodeLens>>>),
    /// `textDocument/codeAction`
    CodeAction(CodeActionParams, Reply<Option<CodeActionResponse>>),
    /// `textDocument/hover`
    Hover(HoverParams, Reply<Option<Hover>>),
    /// `textDocument/diagnostic`
    Diagnostic(DocumentDiagnosticParams, Reply<DocumentDiagnosticReportResult>),
    /// `ridgeline/heat`
    Heat(HeatParams, Reply<Option<Vec<HeatStatement>>>),
    /// `workspace/executeCommand`
    ExecuteCommand(ExecuteCommandParams, CommandReply),
}

/// Starts a request. Snapshots are taken here, in the order of the edits.
pub(crate) fn start(state: &mut GlobalState, request: Request) {
    match request {
        Request::InlayHint(params, reply) => {
            let uri = params.text_document.uri.clone();
            answer(state, &uri, reply, move |view| inlay_hint::inlay_hints(view, params.range));
        }
        Request::CodeLens(params, reply) => {
            answer(state, &params.text_document.uri, reply, code_lens::code_lenses);
        }
        Request::CodeAction(params, reply) => {
            let uri = params.text_document.uri.clone();
            let is_wanted = state.awaits_consent(&document_id(&uri));
            let edited = code_action::Edited {
                batch: state.batch_view_of(&document_id(&uri)),
                edit_context: state.edit_context_of(&document_id(&uri)),
            };
            answer(state, &uri, reply, move |view| {
                let (range, context) = (params.range, &params.context);
                code_action::code_actions(view, range, context, is_wanted, &edited)
            });
        }
        Request::Hover(params, reply) => {
            let place = params.text_document_position_params;
            let uri = place.text_document.uri;
            answer(state, &uri, reply, move |view| hover::hover(view, place.position));
        }
        Request::Heat(params, reply) => {
            answer(state, &params.text_document.uri, reply, heat::heat);
        }
        Request::Diagnostic(params, reply) => {
            let id = document_id(&params.text_document.uri);
            let report = diagnostic::report(state, &id);
            state.pool.answer(reply, move || Ok(report.finish()));
        }
        Request::ExecuteCommand(params, reply) => execute_command::execute(state, params, reply),
    }
}

/// Computes the response for a document. The response is null if the server does not handle the
/// document (not open, too large, a notebook, another language).
fn answer<T: Send + 'static>(
    state: &GlobalState,
    uri: &Uri,
    reply: Reply<Option<T>>,
    work: impl FnOnce(&View) -> Option<T> + Send + 'static,
) {
    let Some(view) = state.view(&document_id(uri)) else {
        // Sending fails if the client has cancelled.
        let _ = reply.send(Ok(None));
        return;
    };
    state.pool.answer(reply, move || {
        // The document may have been edited while the request was queued.
        view.checked(())?;
        let answer = work(&view);
        view.checked(answer)
    });
}
