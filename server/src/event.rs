//! The events that wake the server.

use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::batch::SweepResults;
use crate::consent;
use crate::diagnostics::Placements;
use crate::documents::{Change, DocumentId};
use crate::findings::FindingSet;
use crate::jobs::Outcome;
use crate::lsp::position::ClientRange;
use crate::machine_load::BusyReason;
use crate::measured_rates::Target;
use crate::open_notebooks::{Cell, OpenedCell};
use crate::panel::request::PanelRequest;
use crate::profiler::{ProfileOutcome, Profiled, Program, ProgressEvent};
use crate::requests::Request;
use crate::scheduler::{JobId, Reason, WorkspaceId};
use crate::state::{Client, Saved};
use crate::trust::Answer;

/// An event for the event loop, which has no other input.
pub(crate) enum Event {
    /// A notification from the client. It is acknowledged through the sender once it is handled, so
    /// the transport's limit applies to the number of messages in flight.
    Notification(Notification, oneshot::Sender<()>),
    /// A request from the client.
    Request(Request),
    /// A request from a page of the panel.
    PanelRequest(PanelRequest),

    /// The answer to `workspace/configuration`; `None` if the client did not answer.
    SettingsFetched(Option<Value>),
    /// An event of one workspace.
    Workspace(WorkspaceId, WorkspaceEvent),
    /// The user's answer to the trust question about a folder; `None` if they closed it.
    TrustAnswered(PathBuf, consent::Question, Option<Answer>),
    /// Files changed on disk (Python files and configurations that git does not ignore).
    FilesChanged(Vec<PathBuf>),
    /// The changed files whose content is new to the server.
    ChangesRead(Vec<FileChange>),
    /// A run reports progress.
    RunProgressed(JobId, ProgressEvent),
    JobEnded(JobId, Box<Outcome>),
    /// What else needs the machine, if anything.
    MachineChecked(Option<BusyReason>),
    /// The last check of the machine's load is outdated.
    MachineCheckOutdated,
    /// There is a new recording, possibly of one of the workspaces and by another process.
    RecordingAdded,
    /// A job has ended or moved on to something else.
    WorkChanged,
    /// The response with this number has waited long enough.
    ResponseOverdue(u64),
    /// A job has new results for other batch sizes, for the measurement with this generation.
    BatchSweepProgressed(JobId, u64, Box<SweepResults>),
}

/// A file on disk whose content is new to the server.
pub(crate) struct FileChange {
    pub file: PathBuf,
    /// The open document with the same text, for which the client has not sent `didSave` yet.
    pub saved: Option<(DocumentId, Saved)>,
}

/// An event of one workspace. It is dropped if the workspace no longer exists.
pub(crate) enum WorkspaceEvent {
    /// Measure a GPU: the user agreed to that question, or the settings say so.
    MeasureDevice(Target, consent::Question, consent::Cause),
    /// What a run would run, or why nothing, before the trust question.
    ProgramFound(consent::Question, Box<Result<Program, ProfileOutcome>>, Reason),
    /// The training script that the user chose; `None` if they closed the question.
    ScriptChosen(consent::Question, Option<String>, Reason),
    /// A newer profile from outside this session (a terminal or another editor).
    NewerProfile(Profiled),
    /// The last profile of an earlier session.
    EarlierProfile(Option<Profiled>),
    /// The workspace's zygote is ready or failed to start.
    Prepared,
    /// Typing has paused: estimate the unsaved text.
    EstimateDue,
    /// The GPU to estimate for that the user chose, if any.
    TargetChosen(Option<String>),
    /// What is known about other batch sizes before any is tried, for the measurement with this
    /// generation.
    BatchSiteFound(u64, Box<SweepResults>),
    /// Typing has paused: look for findings in the source text.
    ReadingDue,
    /// Findings from source text, with the number of the request to tell whether it is still
    /// current. `None` if the text is not valid Python at the moment.
    TextsRead(u64, Option<Vec<FindingSet>>),
    /// Typing has paused: move diagnostics to their statements.
    DiagnosticsDue,
    /// Where to show diagnostics, with the number of the request to tell whether it is still
    /// current.
    DiagnosticsPlaced(u64, Placements),
}

/// A notification from the client.
pub(crate) enum Notification {
    /// `initialize`, with the client's capabilities.
    Initialize(Box<Client>),
    /// `initialized`: the client accepts requests from now on.
    Initialized,
    /// `didOpen`.
    Opened {
        id: DocumentId,
        /// The URI as the client wrote it.
        uri: String,
        text: String,
        /// The client's version number of the text.
        version: i32,
    },
    /// `didChange`, with the new version number.
    Changed(DocumentId, i32, Vec<Change<ClientRange>>),
    /// `didSave`.
    Saved(DocumentId),
    /// A notebook was opened: its URI, its file, its cells in order, and the texts to open.
    NotebookOpened(String, PathBuf, Vec<Cell>, Vec<OpenedCell>),
    /// From this index on, so many cells of a notebook were replaced.
    CellsChanged(String, usize, usize, Vec<Cell>, Vec<OpenedCell>),
    /// A notebook was saved.
    NotebookSaved(String),
    /// A notebook was closed. Its cells follow as [`Notification::Closed`].
    NotebookClosed(String),
    /// `didClose`.
    Closed(DocumentId),
    /// The settings, if the client sends them; otherwise an empty value.
    SettingsChanged(Value),
    /// The folders that were added and those that were removed.
    FoldersChanged(Vec<PathBuf>, Vec<PathBuf>),
    /// The user pressed cancel on a progress with this token.
    ProgressCancelled(String),
    /// `shutdown`.
    Shutdown,
}
