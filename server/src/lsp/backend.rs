//! The handlers that tower-lsp calls. Each sends one event before its first await, so that events
//! arrive in the order of the messages (tower-lsp polls handlers first in arrival order). It then
//! waits until the event loop has handled the event. No handler awaits the client.

use std::fmt;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tower_lsp::LanguageServer;
use tower_lsp::jsonrpc::{Error, Result};
use tower_lsp::ls_types::{
    CodeActionParams, CodeActionResponse, CodeLens, CodeLensParams, DidChangeConfigurationParams,
    DidChangeNotebookDocumentParams, DidChangeTextDocumentParams, DidChangeWatchedFilesParams,
    DidChangeWorkspaceFoldersParams, DidCloseNotebookDocumentParams, DidCloseTextDocumentParams,
    DidOpenNotebookDocumentParams, DidOpenTextDocumentParams, DidSaveNotebookDocumentParams,
    DidSaveTextDocumentParams, DocumentDiagnosticParams, DocumentDiagnosticReportResult,
    ExecuteCommandParams, Hover, HoverParams, InitializeParams, InitializeResult,
    InitializedParams, InlayHint, InlayHintParams, NumberOrString, WorkDoneProgressCancelParams,
};

use super::ext::{HeatParams, HeatStatement};
use super::{capabilities, from_proto, to_proto};
use crate::event::{Event, Notification};
use crate::live::target_gpu;
use crate::pool::Reply;
use crate::requests::Request;

/// The capacity of the event queue. The transport admits fewer concurrent messages, so a client
/// cannot fill it.
pub(crate) const EVENT_LIMIT: usize = 4 * crate::transport::IN_FLIGHT_LIMIT;

/// Connects tower-lsp to the event loop.
pub(crate) struct Backend {
    events: mpsc::Sender<Event>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backend")
    }
}

impl Backend {
    /// Creates a backend that sends to `events`.
    pub(crate) fn new(events: mpsc::Sender<Event>) -> Backend {
        Backend { events }
    }

    async fn notify(&self, notification: Notification) {
        let (done, acknowledged) = oneshot::channel();
        self.send(Event::Notification(notification, done)).await;
        // The sender is dropped if the event loop has ended or the handler panicked.
        let _ = acknowledged.await;
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(Event::Request(request(reply))).await;
        match answer.await {
            Ok(result) => result.map_err(to_proto::error),
            Err(_) => Err(Error::internal_error()),
        }
    }

    async fn send(&self, event: Event) {
        // Sending before the first await keeps the order. The queue cannot be full (see
        // EVENT_LIMIT). If it were, a late event is better than a lost one.
        if let Err(mpsc::error::TrySendError::Full(event)) = self.events.try_send(event) {
            let _ = self.events.send(event).await;
        }
    }

    /// `window/workDoneProgress/cancel`, which tower-lsp has no handler for.
    pub(crate) async fn progress_cancelled(&self, params: WorkDoneProgressCancelParams) {
        let token = match params.token {
            NumberOrString::String(token) => token,
            NumberOrString::Number(number) => number.to_string(),
        };
        self.notify(Notification::ProgressCancelled(token)).await;
    }

    /// `ridgeline/heat`. The answer is empty for a document that the server does not handle.
    pub(crate) async fn heat(&self, params: HeatParams) -> Result<Vec<HeatStatement>> {
        let found = self.ask(|reply| Request::Heat(params, reply)).await?;
        Ok(found.unwrap_or_default())
    }

    /// `ridgeline/gpus`. It does not depend on the state, so it does not wait for the event loop.
    pub(crate) async fn gpus(&self) -> Result<Vec<String>> {
        Ok(target_gpu::names())
    }
}

impl LanguageServer for Backend {
    async fn initialize(&self, params: InitializeParams) -> Result<InitializeResult> {
        let client = from_proto::client(params);
        let result = capabilities::initialize_result(&client);
        self.notify(Notification::Initialize(Box::new(client))).await;
        Ok(result)
    }

    async fn initialized(&self, _: InitializedParams) {
        self.notify(Notification::Initialized).await;
    }

    async fn shutdown(&self) -> Result<()> {
        self.notify(Notification::Shutdown).await;
        Ok(())
    }

    async fn did_open(&self, params: DidOpenTextDocumentParams) {
        let document = params.text_document;
        if !from_proto::is_python(&document.uri, &document.language_id) {
            return;
        }
        self.notify(Notification::Opened {
            id: from_proto::document_id(&document.uri),
            uri: document.uri.as_str().to_owned(),
            text: document.text,
            version: document.version,
        })
        .await;
    }

    async fn did_change(&self, params: DidChangeTextDocumentParams) {
        let id = from_proto::document_id(&params.text_document.uri);
        let changes = from_proto::changes(params.content_changes);
        self.notify(Notification::Changed(id, params.text_document.version, changes)).await;
    }

    async fn did_save(&self, params: DidSaveTextDocumentParams) {
        self.notify(Notification::Saved(from_proto::document_id(&params.text_document.uri))).await;
    }

    async fn did_close(&self, params: DidCloseTextDocumentParams) {
        self.notify(Notification::Closed(from_proto::document_id(&params.text_document.uri))).await;
    }

    async fn notebook_did_open(&self, params: DidOpenNotebookDocumentParams) {
        for notification in from_proto::notebook_opened(params) {
            self.notify(notification).await;
        }
    }

    async fn notebook_did_change(&self, params: DidChangeNotebookDocumentParams) {
        for notification in from_proto::notebook_changed(params) {
            self.notify(notification).await;
        }
    }

    async fn notebook_did_save(&self, params: DidSaveNotebookDocumentParams) {
        let uri = params.notebook_document.uri.as_str().to_owned();
        self.notify(Notification::NotebookSaved(uri)).await;
    }

    async fn notebook_did_close(&self, params: DidCloseNotebookDocumentParams) {
        let uri = params.notebook_document.uri.as_str().to_owned();
        self.notify(Notification::NotebookClosed(uri)).await;
        for cell in params.cell_text_documents {
            self.notify(Notification::Closed(from_proto::document_id(&cell.uri))).await;
        }
    }

    // The server watches files itself, because some clients cannot.
    async fn did_change_watched_files(&self, _: DidChangeWatchedFilesParams) {}

    async fn did_change_configuration(&self, params: DidChangeConfigurationParams) {
        self.notify(Notification::SettingsChanged(params.settings)).await;
    }

    async fn did_change_workspace_folders(&self, params: DidChangeWorkspaceFoldersParams) {
        let added = from_proto::folders(&params.event.added);
        let removed = from_proto::folders(&params.event.removed);
        self.notify(Notification::FoldersChanged(added, removed)).await;
    }

    async fn inlay_hint(&self, params: InlayHintParams) -> Result<Option<Vec<InlayHint>>> {
        self.ask(|reply| Request::InlayHint(params, reply)).await
    }

    async fn code_lens(&self, params: CodeLensParams) -> Result<Option<Vec<CodeLens>>> {
        self.ask(|reply| Request::CodeLens(params, reply)).await
    }

    async fn code_action(&self, params: CodeActionParams) -> Result<Option<CodeActionResponse>> {
        self.ask(|reply| Request::CodeAction(params, reply)).await
    }

    async fn hover(&self, params: HoverParams) -> Result<Option<Hover>> {
        self.ask(|reply| Request::Hover(params, reply)).await
    }

    async fn diagnostic(
        &self,
        params: DocumentDiagnosticParams,
    ) -> Result<DocumentDiagnosticReportResult> {
        self.ask(|reply| Request::Diagnostic(params, reply)).await
    }

    async fn execute_command(&self, params: ExecuteCommandParams) -> Result<Option<Value>> {
        self.ask(|reply| Request::ExecuteCommand(params, reply)).await
    }
}
