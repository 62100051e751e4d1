//! Whether a tool may run code of a project.
//!
//! The rules are those of the editor: a decision is about a folder, is stored in the user's state folder, and is
//! shared with the language server. Where there is none, the user is asked through the client ("elicitation"). A
//! client that cannot ask gets an error that says how the user can allow it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, InputRequests,
    InputRequiredResult, InputResponses, ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::super::exit::Failure;
use crate::store::Store;
use crate::trust::{Answer, Decision, Trust};

/// How long a question may stay unanswered.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The name of the question in an answer that asks for input.
const QUESTION: &str = "consent";

pub(super) struct Consent {
    trust: Mutex<Trust>,
    /// Folders that the user allowed on the command line.
    allowed: Vec<PathBuf>,
}

/// What the client sends along with a tool call that it repeats with the user's answer.
pub(super) struct Reply {
    pub state: Option<String>,
    pub responses: Option<InputResponses>,
}

/// Why a tool may not run code now.
#[derive(Debug)]
pub(super) enum ConsentError {
    /// The client has to put this question to its user, and to call again with the answer.
    Ask(Box<InputRequiredResult>),
    /// The user said no, or cannot be asked.
    Refused(Failure),
}

impl Consent {
    pub(super) fn new(store: Store, allowed: Vec<PathBuf>) -> Consent {
        let allowed = allowed.into_iter().map(|folder| folder.canonicalize().unwrap_or(folder));
        let trust = Mutex::new(Trust::new(Some(store), false));
        Consent { trust, allowed: allowed.collect() }
    }

    /// Returns if code of the project at `root` (without links) may run. Asks the user where nothing is decided.
    pub(super) async fn permit(
        &self,
        root: &Path,
        what: &str,
        reply: Reply,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ConsentError> {
        match self.decision(root) {
            Decision::Allowed => return Ok(()),
            Decision::Refused => return Err(ConsentError::Refused(refused(root))),
            Decision::Unknown => {}
        }
        let question = question(root, what);
        // From this version on a server sends no requests: the answer to the call asks for input.
        let returns_questions = context
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let can_ask =
            context.client_capabilities().is_some_and(|client| client.elicitation.is_some());
        let answer = if !can_ask {
            return Err(ConsentError::Refused(cannot_ask(root)));
        } else if returns_questions {
            let state = root.to_string_lossy().into_owned();
            let answers = reply.responses.filter(|_| reply.state.as_ref() == Some(&state));
            match answers.and_then(|mut answers| answers.remove(QUESTION)) {
                Some(answer) => chosen(&answer),
                None => {
                    let question = InputRequest::Elicitation(ElicitRequest::new(question));
                    let requests = InputRequests::from([(QUESTION.to_owned(), question)]);
                    let ask = InputRequiredResult::new(Some(requests), Some(state));
                    return Err(ConsentError::Ask(Box::new(ask)));
                }
            }
        } else {
            let answer =
                context.peer.create_elicitation_with_timeout(question, Some(TIMEOUT)).await;
            answer.ok().and_then(|answer| chosen(&json!(answer)))
        };
        match answer {
            Some(Answer::Once) => Ok(()),
            Some(Answer::Always) => {
                self.decide(root, true);
                Ok(())
            }
            Some(Answer::Never) => {
                self.decide(root, false);
                Err(ConsentError::Refused(refused(root)))
            }
            None => Err(ConsentError::Refused(Failure::failed(
                format!("the user did not allow to run code in {}", root.display()),
                "Use the tools that read the latest run, or ask the user",
            ))),
        }
    }

    /// The decision about the nearest folder around `root` that has one.
    fn decision(&self, root: &Path) -> Decision {
        let mut trust = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = root.ancestors().map(|folder| trust.decision(folder).0);
        match decided.into_iter().find(|decision| *decision != Decision::Unknown) {
            Some(decision) => decision,
            None if self.allowed.iter().any(|folder| root.starts_with(folder)) => Decision::Allowed,
            None => Decision::Unknown,
        }
    }

    fn decide(&self, root: &Path, allowed: bool) {
        let mut trust = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = trust.decide(root, allowed) {
            tracing::warn!("could not save the decision; it applies to this process only: {error}");
        }
    }
}

/// What the user is asked, with a form of one choice.
fn question(root: &Path, what: &str) -> ElicitRequestParams {
    let message =
        format!("Run a few training steps of {what} to profile it? Folder: {}", root.display());
    let requested_schema = ElicitationSchema::builder()
        .required_enum_schema(
            "answer",
            rmcp::model::EnumSchema::builder(
                Answer::ALL.map(|answer| answer.title().to_owned()).to_vec(),
            )
            .build(),
        )
        .build()
        .unwrap_or_else(|_| ElicitationSchema::new(Default::default()));
    ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }
}

/// The choice in a response: `{"action": "accept", "content": {"answer": "Run once"}}`.
fn chosen(response: &Value) -> Option<Answer> {
    if response.get("action")?.as_str()? != "accept" {
        return None;
    }
    Answer::of_title(response.get("content")?.get("answer")?.as_str()?)
}

fn refused(root: &Path) -> Failure {
    Failure::failed(
        format!("the user does not allow Ridgeline to run code in {}", root.display()),
        "The user can change this in the editor with the command \"Ridgeline: Trust Workspace\"",
    )
}

fn cannot_ask(root: &Path) -> Failure {
    Failure::failed(
        format!(
            "Ridgeline may not run code in {} yet, and this client cannot ask its user",
            root.display()
        ),
        "The user can allow it by starting the server with `ridgeline mcp --allow FOLDER`, or in the editor with the \
        command \"Ridgeline: Trust Workspace\"",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_accepted_choice_counts() {
        let response =
            |action: &str, answer: &str| json!({"action": action, "content": {"answer": answer}});
        assert_eq!(chosen(&response("accept", "Run once")), Some(Answer::Once));
        assert_eq!(chosen(&response("accept", "Always for this workspace")), Some(Answer::Always));
        for other in [
            response("decline", "Run once"),
            response("accept", "run once"),
            json!({"action": "accept"}),
            json!(null),
            json!([]),
        ] {
            assert_eq!(chosen(&other), None, "{other}");
        }
    }

    #[test]
    fn the_nearest_decision_counts_before_the_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let inner = root.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let store = Store::at(root.join("cache"), root.join("state"));
        let consent = Consent::new(store.clone(), vec![root.join("a")]);
        assert_eq!(consent.decision(&root), Decision::Unknown);
        assert_eq!(consent.decision(&inner), Decision::Allowed);
        consent.decide(&root.join("a"), false);
        assert_eq!(consent.decision(&inner), Decision::Refused);
        // The editor's server and later processes know it too.
        let later = Consent::new(store, Vec::new());
        assert_eq!(later.decision(&inner), Decision::Refused);
        consent.decide(&inner, true);
        assert_eq!(consent.decision(&inner), Decision::Allowed);
    }
}
