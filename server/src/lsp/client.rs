//! What the server says to the client: one plain function for each message, on top of the outbox.

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

/// For what a program answers.
const MACHINE_LIMIT: Duration = Duration::from_secs(5);

/// For what a person answers. Until then the question is on the screen and nothing runs.
const PERSON_LIMIT: Duration = Duration::from_secs(60 * 60);

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Importance {
    /// Something does not work.
    Error,
    /// Something is not as the person may think.
    Warning,
    /// An answer to what the person did.
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

/// What became of a question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// They chose this.
    Chosen(String),
    /// They chose nothing.
    Closed,
    /// The client shows no questions.
    NotShown,
}

/// The client, to talk to. Clones are the same client.
#[derive(Clone, Debug)]
pub(crate) struct ToClient {
    outbox: Outbox,
}

impl ToClient {
    /// Talks through `outbox`.
    pub(crate) fn new(outbox: Outbox) -> ToClient {
        ToClient { outbox }
    }

    /// Shows a message.
    pub(crate) fn show_message(&self, importance: Importance, message: &str) {
        let params = json!({"type": importance.kind(), "message": message});
        self.outbox.notify(ShowMessage::METHOD, &params);
    }

    /// Asks a person to choose. Clients that put questions need not announce it, so what becomes of
    /// one is all that tells.
    pub(crate) fn ask(
        &self,
        message: &str,
        titles: &[String],
    ) -> impl Future<Output = Asked> + Send + use<> {
        let actions: Vec<Value> = titles.iter().map(|title| json!({"title": title})).collect();
        let params = json!({"type": MessageType::INFO, "message": message, "actions": actions});
        let answer = self.outbox.request(ShowMessageRequest::METHOD, &params, PERSON_LIMIT);
        async {
            match answer.await {
                Ok(answer) => match answer.get("title").and_then(Value::as_str) {
                    Some(title) => Asked::Chosen(title.to_owned()),
                    None => Asked::Closed,
                },
                Err(error) => {
                    tracing::info!("{error}");
                    match error {
                        NoAnswer::Error { .. } => Asked::NotShown,
                        NoAnswer::TooLate { .. } | NoAnswer::NotSent { .. } => Asked::Closed,
                    }
                }
            }
        }
    }

    /// Shows a document, outside the editor where that is wanted. One that cannot or does not is told.
    pub(crate) fn show_or_tell(&self, uri: &str, external: bool, can_show: bool, told: String) {
        if !can_show {
            return self.show_message(Importance::Info, &told);
        }
        let shown = self.show(&json!({"uri": uri, "external": external, "takeFocus": true}));
        let to_client = self.clone();
        tokio::spawn(async move {
            if !shown.await {
                to_client.show_message(Importance::Info, &told);
            }
        });
    }

    /// Shows a place in a file and puts the cursor there; says whether it was shown.
    pub(crate) async fn show_place(&self, uri: &str, range: ClientRange) -> bool {
        let params = json!({"uri": uri, "external": false, "takeFocus": true, "selection": range});
        self.show(&params).await
    }

    fn show(&self, params: &Value) -> impl Future<Output = bool> + Send + use<> {
        let answer = self.request(ShowDocument::METHOD, params, MACHINE_LIMIT);
        async {
            let answer = answer.await;
            answer.is_some_and(|answer| answer.get("success") == Some(&Value::Bool(true)))
        }
    }

    /// Has the panel shown, by a client that shows it itself.
    pub(crate) fn open_panel(&self, uri: String, root: String) {
        self.outbox.notify(OPEN_PANEL, &json!(OpenPanelParams { uri, root }));
    }

    /// Has the editor make an edit, as one step that can be undone.
    ///
    /// # Errors
    /// Why it was not made, in a sentence.
    pub(crate) fn apply_edit(
        &self,
        label: &str,
        edit: &WorkspaceEdit,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let params = json!({"label": label, "edit": edit});
        let answer = self.request(ApplyWorkspaceEdit::METHOD, &params, MACHINE_LIMIT);
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

    /// Marks a place, or nothing any more.
    pub(crate) fn highlight(&self, place: Option<(String, ClientRange)>) {
        let (uri, range) = place.unzip();
        self.outbox.notify(HIGHLIGHT, &json!(HighlightParams { uri, range }));
    }

    /// Asks for the settings; nothing where the client does not tell.
    pub(crate) async fn settings(&self) -> Option<Value> {
        let params = json!({"items": [{"section": SECTION}]});
        let answer = self.request(WorkspaceConfiguration::METHOD, &params, MACHINE_LIMIT).await?;
        answer.get(0).cloned()
    }

    /// Tells that something is out of date, and waits for the client to take note.
    pub(crate) async fn refresh(&self, what: Refreshable) {
        let method = match what {
            Refreshable::Hints => InlayHintRefreshRequest::METHOD,
            Refreshable::Lenses => CodeLensRefresh::METHOD,
            Refreshable::Diagnostics => WorkspaceDiagnosticRefresh::METHOD,
        };
        self.request(method, &Value::Null, MACHINE_LIMIT).await;
    }

    /// Shows the diagnostics of a file in place of those before. They name no version of the text:
    /// clients drop what is about another one, and who typed on would not see why the run failed.
    pub(crate) fn publish(&self, uri: &str, diagnostics: &Value) {
        let params = json!({"uri": uri, "diagnostics": diagnostics});
        self.outbox.notify(PublishDiagnostics::METHOD, &params);
    }

    /// Sends the status of a workspace.
    pub(crate) fn status(&self, status: &StatusParams) {
        self.outbox.notify(STATUS, &json!(status));
    }

    /// Asks whether a progress may be shown.
    pub(crate) fn create_progress(&self, token: &str) -> impl Future<Output = bool> + Send + use<> {
        let params = json!({"token": token});
        let answer = self.request(WorkDoneProgressCreate::METHOD, &params, MACHINE_LIMIT);
        async { answer.await.is_some() }
    }

    /// Begins a progress that may be cancelled.
    pub(crate) fn begin_progress(&self, token: &str, title: &str, message: &str) {
        let value = json!({
            "kind": "begin", "title": title, "message": message, "cancellable": true, "percentage": 0,
        });
        self.outbox.notify(Progress::METHOD, &json!({"token": token, "value": value}));
    }

    /// Goes on with a progress.
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
