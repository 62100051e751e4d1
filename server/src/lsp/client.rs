//! Messages from the server to the client: one plain function for each, on top of the outbox.

use std::time::Duration;

use serde_json::{Value, json};
use tower_lsp::ls_types::notification::{Notification, Progress, PublishDiagnostics, ShowMessage};
use tower_lsp::ls_types::request::{
    ApplyWorkspaceEdit, CodeLensRefresh, InlayHintRefreshRequest, Request, ShowDocument,
    ShowMessageRequest, WorkDoneProgressCreate, WorkspaceConfiguration, WorkspaceDiagnosticRefresh,
};
use tower_lsp::ls_types::{MessageType, WorkspaceEdit};

use super::ext::{HIGHLIGHT, HighlightParams, OPEN_PANEL, OpenPanelParams, STATUS, StatusParams};
use super::position::ClientRange;
use crate::outbox::{NoAnswer, Outbox};
use crate::refresh::Refreshable;
use crate::settings::SECTION;

/// The timeout for a response that the client gives by itself.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout for a response from the user. Until then the question is shown and nothing runs.
const USER_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Importance {
    /// Something does not work.
    Error,
    /// Something may differ from what the user expects.
    Warning,
    /// A response to an action of the user.
    Info,
}

impl Importance {
    fn kind(self) -> MessageType {
        match self {
            Importance::Error => MessageType::ERROR,
            Importance::Warning => MessageType::WARNING,
            Importance::Info => MessageType::INFO,
        }
    }
}

/// Result of a question to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuestionResult {
    /// The user's choice.
    Chosen(String),
    /// The user dismissed the question.
    Closed,
    /// The client does not show questions.
    NotShown,
}

/// A handle for sending to the client. Clones send to the same client.
#[derive(Clone, Debug)]
pub(crate) struct ToClient {
    outbox: Outbox,
}

impl ToClient {
    /// Creates a handle that sends through `outbox`.
    pub(crate) fn new(outbox: Outbox) -> ToClient {
        ToClient { outbox }
    }

    /// Shows a message.
    pub(crate) fn show_message(&self, importance: Importance, message: &str) {
        let params = json!({"type": importance.kind(), "message": message});
        self.outbox.notify(ShowMessage::METHOD, &params);
    }

    /// Asks the user to choose. Clients need not announce support for questions, so support only
    /// shows in the result.
    pub(crate) fn ask(
        &self,
        message: &str,
        titles: &[String],
    ) -> impl Future<Output = QuestionResult> + Send + use<> {
        let actions: Vec<Value> = titles.iter().map(|title| json!({"title": title})).collect();
        let params = json!({"type": MessageType::INFO, "message": message, "actions": actions});
        let answer = self.outbox.request(ShowMessageRequest::METHOD, &params, USER_TIMEOUT);
        async {
            match answer.await {
                Ok(answer) => match answer.get("title").and_then(Value::as_str) {
                    Some(title) => QuestionResult::Chosen(title.to_owned()),
                    None => QuestionResult::Closed,
                },
                Err(error) => {
                    tracing::info!("{error}");
                    match error {
                        NoAnswer::Error { .. } => QuestionResult::NotShown,
                        NoAnswer::TooLate { .. } | NoAnswer::NotSent { .. } => {
                            QuestionResult::Closed
                        }
                    }
                }
            }
        }
    }

    /// Shows a document, outside the editor if `external`. If the client cannot or does not show
    /// it, shows a message instead.
    pub(crate) fn show_document(
        &self,
        uri: &str,
        external: bool,
        can_show: bool,
        fallback_message: String,
    ) {
        if !can_show {
            return self.show_message(Importance::Info, &fallback_message);
        }
        let shown = self.show(&json!({"uri": uri, "external": external, "takeFocus": true}));
        let to_client = self.clone();
        tokio::spawn(async move {
            if !shown.await {
                to_client.show_message(Importance::Info, &fallback_message);
            }
        });
    }

    /// Shows a place in a file and puts the cursor there. Returns whether it was shown.
    pub(crate) async fn show_place(&self, uri: &str, range: ClientRange) -> bool {
        let params = json!({"uri": uri, "external": false, "takeFocus": true, "selection": range});
        self.show(&params).await
    }

    fn show(&self, params: &Value) -> impl Future<Output = bool> + Send + use<> {
        let answer = self.request(ShowDocument::METHOD, params, CLIENT_TIMEOUT);
        async {
            let answer = answer.await;
            answer.is_some_and(|answer| answer.get("success") == Some(&Value::Bool(true)))
        }
    }

    /// Asks a client with panel support to show the panel.
    pub(crate) fn open_panel(&self, uri: String, root: String) {
        self.outbox.notify(OPEN_PANEL, &json!(OpenPanelParams { uri, root }));
    }

    /// Applies an edit in the editor, as one undo step.
    ///
    /// # Errors
    /// The reason why it was not applied, as a sentence.
    pub(crate) fn apply_edit(
        &self,
        label: &str,
        edit: &WorkspaceEdit,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let params = json!({"label": label, "edit": edit});
        let answer = self.request(ApplyWorkspaceEdit::METHOD, &params, CLIENT_TIMEOUT);
        async {
            let Some(answer) = answer.await else {
                return Err("The editor did not confirm the edit.".to_owned());
            };
            if answer.get("applied") == Some(&Value::Bool(true)) {
                return Ok(());
            }
            let reason = answer.get("failureReason").and_then(Value::as_str);
            let reason = reason.map(|reason| reason.chars().take(200).collect::<String>());
            Err(match reason {
                Some(reason) => format!("The editor did not apply the edit: {reason}"),
                None => "The editor did not apply the edit.".to_owned(),
            })
        }
    }

    /// Highlights a place, or removes the highlight.
    pub(crate) fn highlight(&self, place: Option<(String, ClientRange)>) {
        let (uri, range) = place.unzip();
        self.outbox.notify(HIGHLIGHT, &json!(HighlightParams { uri, range }));
    }

    /// Requests the settings. Returns `None` if the client does not send them.
    pub(crate) async fn settings(&self) -> Option<Value> {
        let params = json!({"items": [{"section": SECTION}]});
        let answer = self.request(WorkspaceConfiguration::METHOD, &params, CLIENT_TIMEOUT).await?;
        answer.get(0).cloned()
    }

    /// Requests a refresh, and waits for the client's response.
    pub(crate) async fn refresh(&self, what: Refreshable) {
        let method = match what {
            Refreshable::Hints => InlayHintRefreshRequest::METHOD,
            Refreshable::Lenses => CodeLensRefresh::METHOD,
            Refreshable::Diagnostics => WorkspaceDiagnosticRefresh::METHOD,
        };
        self.request(method, &Value::Null, CLIENT_TIMEOUT).await;
    }

    /// Replaces the diagnostics of a file. They name no document version, because clients drop
    /// diagnostics of another version, and a user who kept typing would not see why the run failed.
    pub(crate) fn publish(&self, uri: &str, diagnostics: &Value) {
        let params = json!({"uri": uri, "diagnostics": diagnostics});
        self.outbox.notify(PublishDiagnostics::METHOD, &params);
    }

    /// Sends the status of a workspace.
    pub(crate) fn status(&self, status: &StatusParams) {
        self.outbox.notify(STATUS, &json!(status));
    }

    /// Asks the client to create a progress. Returns whether it may be shown.
    pub(crate) fn create_progress(&self, token: &str) -> impl Future<Output = bool> + Send + use<> {
        let params = json!({"token": token});
        let answer = self.request(WorkDoneProgressCreate::METHOD, &params, CLIENT_TIMEOUT);
        async { answer.await.is_some() }
    }

    /// Begins a cancellable progress.
    pub(crate) fn begin_progress(&self, token: &str, title: &str, message: &str) {
        let value = json!({
            "kind": "begin", "title": title, "message": message, "cancellable": true, "percentage": 0,
        });
        self.outbox.notify(Progress::METHOD, &json!({"token": token, "value": value}));
    }

    /// Updates a progress.
    pub(crate) fn report_progress(&self, token: &str, message: &str, percentage: Option<u32>) {
        let mut value = json!({"kind": "report", "message": message});
        if let (Some(percentage), Some(value)) = (percentage, value.as_object_mut()) {
            value.insert("percentage".to_owned(), percentage.into());
        }
        self.outbox.notify(Progress::METHOD, &json!({"token": token, "value": value}));
    }

    /// Ends a progress.
    pub(crate) fn end_progress(&self, token: &str, message: &str) {
        let value = json!({"kind": "end", "message": message});
        self.outbox.notify(Progress::METHOD, &json!({"token": token, "value": value}));
    }

    fn request(
        &self,
        method: &'static str,
        params: &Value,
        limit: Duration,
    ) -> impl Future<Output = Option<Value>> + Send + use<> {
        let answer = self.outbox.request(method, params, limit);
        async {
            match answer.await {
                Ok(answer) => Some(answer),
                Err(error @ NoAnswer::NotSent { .. }) => {
                    tracing::debug!("{error}");
                    None
                }
                Err(error) => {
                    tracing::info!("{error}");
                    None
                }
            }
        }
    }
}
