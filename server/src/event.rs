//! Everything that can wake the server.

use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::batch::Exploration;
use crate::consent;
use crate::diagnostics::Placements;
use crate::documents::{Change, DocumentId};
use crate::findings::Kept;
use crate::jobs::Outcome;
use crate::lsp::position::ClientRange;
use crate::machine_load::Needed;
use crate::measured_rates::Target;
use crate::panel::question::Question;
use crate::profiler::{Profiled, ProgressEvent};
use crate::requests::Request;
use crate::scheduler::{JobId, Reason, WorkspaceId};
use crate::state::{Client, Saved};
use crate::trust::Answer;

/// What wakes the event loop. There is no other way in.
pub(crate) enum Event {
    /// The client tells something. It is acknowledged when it is done, so that the number of
    /// messages under way has the transport's limit.
    Told(Told, oneshot::Sender<()>),
    /// The client asks something.
    Asked(Request),
    /// A page of the panel asks something.
    PanelAsked(Question),

    /// `workspace/configuration` was answered; nothing where it was not.
    SettingsFetched(Option<Value>),
    /// Something happened to a workspace.
    Workspace(WorkspaceId, WorkspaceEvent),
    /// Files changed on the disk (Python files and configurations that git does not ignore).
    FilesChanged(Vec<PathBuf>),
    /// Which of them hold something new.
    ChangesRead(Vec<FileChange>),
    /// A run goes on.
    RunProgressed(JobId, ProgressEvent),
    /// A job ended.
    JobEnded(JobId, Box<Outcome>),
    /// Whether something else needs the machine.
    MachineSeen(Option<Needed>),
    /// What was seen of the machine is old.
    LookAgain,
    /// Somebody made a recording, perhaps of one of the workspaces.
    RecordingMade,
    /// A job of a workspace has ended, or does something else.
    WorkChanged,
    /// Who stopped a workspace, with this number, has waited long enough for its end.
    StopOverdue(u64),
    /// A job found out more about other batch sizes, of the measurement of this generation.
    BatchExplored(JobId, u64, Box<Exploration>),
}

/// A file that holds something new.
pub(crate) struct FileChange {
    /// Which.
    pub file: PathBuf,
    /// It holds the text of this open document, which the client has not said to be saved.
    pub saved: Option<(DocumentId, Saved)>,
}

/// What happens to a workspace. It is dropped where the workspace is gone.
pub(crate) enum WorkspaceEvent {
    /// A GPU is to be measured: the person agreed to that question, or the settings do.
    MeasureDevice(Target, consent::Question, consent::Cause),
    /// The person answered whether a workspace may run; nothing where they closed the question.
    TrustAnswered(consent::Question, Option<Answer>),
    /// The person said which script is the training run; nothing where they closed the question.
    ScriptChosen(consent::Question, Option<String>, Reason),
    /// What was measured in a workspace beside this session.
    NewerFound(Profiled),
    /// What an earlier session measured in a workspace.
    EarlierFound(Option<Profiled>),
    /// A workspace's zygote is ready, or was not to be had.
    Prepared,
    /// The pause after an edit is over: the unsaved text is to be estimated.
    EstimateDue,
    /// The person chose a GPU to estimate for, or none.
    TargetChosen(Option<String>),
    /// What is known of other batch sizes before one is tried, of the measurement of this generation.
    BatchLookedAt(u64, Box<Exploration>),
    /// The pause after an edit is over: the texts are to be read for what they show alone.
    ReadingDue,
    /// The texts were read; the number tells whether that is still wanted. Nothing where they are no
    /// Python at the moment.
    TextsRead(u64, Option<Vec<Kept>>),
    /// The pause after an edit is over: remarks are to be where their statements are.
    DiagnosticsDue,
    /// Where diagnostics are shown has been found; the number tells whether they are still the newest.
    DiagnosticsPlaced(u64, Placements),
}

/// What a client tells without asking.
pub(crate) enum Told {
    /// `initialize`: who the client is.
    Hello(Box<Client>),
    /// `initialized`: it takes requests from now on.
    Ready,
    /// A text was opened.
    Opened {
        /// Which.
        id: DocumentId,
        /// As the client writes it.
        uri: String,
        /// The text.
        text: String,
        /// The client's number for it.
        version: i32,
    },
    /// A text was changed, and has this number of the client's now.
    Changed(DocumentId, i32, Vec<Change<ClientRange>>),
    /// A text was saved.
    Saved(DocumentId),
    /// A text was closed.
    Closed(DocumentId),
    /// Settings changed; they are these, where the client says them.
    SettingsChanged(Value),
    /// Folders were added and removed.
    FoldersChanged(Vec<PathBuf>, Vec<PathBuf>),
    /// The person pressed cancel at a progress of ours.
    ProgressCancelled(String),
    /// `shutdown`.
    Goodbye,
}
