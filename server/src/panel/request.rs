//! Requests of a page.

use std::sync::Arc;

use serde::Serialize;

use crate::pool::Reply;
use crate::scheduler::WorkspaceId;

/// A request with the channel for its response. Workspaces are identified by their numbers.
#[derive(Debug)]
pub(crate) enum PanelRequest {
    /// The document, as JSON.
    Document(WorkspaceId, Reply<Arc<str>>),
    /// The timeline of a measurement (its generation), as JSON.
    Timeline(WorkspaceId, u64, Reply<Arc<str>>),
    /// The comparison of two runs, given by their times (earlier, later), as JSON.
    Compare(WorkspaceId, u64, u64, Reply<Arc<str>>),
    /// Move the editor to a line.
    Jump(WorkspaceId, Line, Reply<ActionResult>),
    /// Highlight a line in the editor, or remove the highlight.
    Highlight(WorkspaceId, Option<Line>, Reply<ActionResult>),
    /// Run a command.
    Command(WorkspaceId, PanelCommand, Reply<ActionResult>),
    /// Apply an optimization's edit, or measure it.
    WhatIf(WorkspaceId, String, OptimizationAction, Reply<ActionResult>),
    /// Apply the edit of this name at lines: those of a finding, or of activations to recompute.
    Fix(WorkspaceId, String, Vec<Line>, Reply<ActionResult>),
    /// Set the batch size in the text: the generation of the measurement that the page shows, and
    /// the batch size.
    Batch(WorkspaceId, u64, u64, Reply<ActionResult>),
}

/// A line of the text that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Line {
    /// Index into the document's `files`.
    pub file: u32,
    /// The line, 1-based.
    pub line: u32,
    /// The generation of the measurement that the page shows, if given.
    pub generation: Option<u64>,
}

/// A command that the panel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PanelCommand {
    /// Profile now.
    Profile,
    /// Stop the current run.
    Stop,
    /// Stop starting runs on save.
    Pause,
    /// Start runs on save again.
    Resume,
    /// Estimate other batch sizes, because the page shows them.
    Explore,
    /// Run the program at other batch sizes.
    Measure,
}

/// An action for an optimization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OptimizationAction {
    /// Apply its edit to the text.
    Apply,
    /// Run the text with and without it.
    Measure,
}

/// Result of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ActionResult {
    /// Whether it succeeded.
    pub done: bool,
    /// The reason for a failure, or a note for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ActionResult {
    /// Creates a success.
    pub(crate) fn success() -> ActionResult {
        ActionResult { done: true, message: None }
    }

    /// Creates a failure with its reason.
    pub(crate) fn failure(message: impl Into<String>) -> ActionResult {
        ActionResult { done: false, message: Some(message.into()) }
    }
}
