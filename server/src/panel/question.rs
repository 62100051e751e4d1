//! What a page asks.

use std::sync::Arc;

use serde::Serialize;

use crate::pool::Reply;
use crate::scheduler::WorkspaceId;

/// A question with the way for its answer. Workspaces are named by their numbers.
#[derive(Debug)]
pub(crate) enum Question {
    /// The document, as JSON.
    Document(WorkspaceId, Reply<Arc<str>>),
    /// The timeline of a measurement (its generation), as JSON.
    Timeline(WorkspaceId, u64, Reply<Arc<str>>),
    /// Two runs of the project side by side, by when they were, as JSON: the earlier and the later one.
    Compare(WorkspaceId, u64, u64, Reply<Arc<str>>),
    /// Move the editor to a line.
    Jump(WorkspaceId, Line, Reply<Done>),
    /// Mark a line in the editor, or none any more.
    Highlight(WorkspaceId, Option<Line>, Reply<Done>),
    /// Do what a person wants.
    Command(WorkspaceId, Wish, Reply<Done>),
    /// Make the edit of an optimization, or measure it.
    WhatIf(WorkspaceId, String, Action, Reply<Done>),
    /// Make the edit of this name at lines: of a finding, or of what is to be computed again.
    Mend(WorkspaceId, String, Vec<Line>, Reply<Done>),
    /// Set the batch size in the text, of which the page shows this measurement (its generation).
    Batch(WorkspaceId, u64, u64, Reply<Done>),
}

/// A line of the text that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Line {
    /// Index into the document's `files`.
    pub file: u32,
    /// Counted from 1.
    pub line: u32,
    /// The measurement whose document the page shows; nothing where it does not say.
    pub generation: Option<u64>,
}

/// What a person can have done from the panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wish {
    /// Profile now.
    Profile,
    /// Stop the run that goes on.
    Stop,
    /// Let saves start no run.
    Pause,
    /// Let saves start runs again.
    Resume,
    /// Estimate other batch sizes, because the page shows what they cost.
    Explore,
    /// Run the program at other batch sizes.
    Measure,
}

/// What is to be done about an optimization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    /// Make its edit in the text.
    Apply,
    /// Run the text with it and without.
    Measure,
}

/// Whether something was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Done {
    /// It was.
    pub done: bool,
    /// Why it was not, or what should be known of it, for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Done {
    /// It was done.
    pub(crate) fn yes() -> Done {
        Done { done: true, message: None }
    }

    /// It was not, and why.
    pub(crate) fn no(message: impl Into<String>) -> Done {
        Done { done: false, message: Some(message.into()) }
    }
}
