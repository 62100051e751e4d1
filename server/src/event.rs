//! Everything that can wake the server.

use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::batch::Exploration;
use crate::consent;
use crate::documents::{Change, DocumentId};
use crate::findings::Kept;
use crate::live::EstimateOutcome;
use crate::lsp::position::ClientRange;
use crate::measured_rates::Target;
use crate::panel::question::Question;
use crate::profiler::{ProfileOutcome, Profiled, ProgressEvent};
use crate::requests::Request;
use crate::requests::diagnostic::Placements;
use crate::run_queue::{Reason, RunId};
use crate::state::Client;
use crate::trust::Answer;
use crate::what_if::Found;

/// What wakes the event loop. There is no other way in.
pub enum Event {
    /// The client tells something. It is acknowledged when it is done, so that the number of
    /// messages under way has the transport's limit.
    Told(Told, oneshot::Sender<()>),
    /// The client asks something.
    Asked(Request),
    /// A page of the panel asks something.
    PanelAsked(Question),

    /// `workspace/configuration` was answered; nothing where it was not.
    SettingsFetched(Option<Value>),
    /// The person answered whether a workspace may run; nothing where they closed the question.
    TrustAnswered(PathBuf, consent::Question, Option<Answer>),
    /// The person said which script is the training run; nothing where they closed the question.
    ScriptChosen(PathBuf, consent::Question, Option<PathBuf>, Reason),
    /// Files changed on the disk (Python files and configurations that git does not ignore).
    FilesChanged(Vec<PathBuf>),
    /// A run goes on.
    RunProgressed(RunId, ProgressEvent),
    /// A run ended.
    RunEnded(RunId, Box<ProfileOutcome>),
    /// Somebody made a recording, perhaps of one of the workspaces.
    RecordingMade,
    /// What was measured in a workspace beside this session.
    NewerFound(PathBuf, Profiled),
    /// What an earlier session measured in a workspace.
    EarlierFound(PathBuf, Option<Profiled>),
    /// A workspace's zygote is ready, or was not to be had.
    Prepared(PathBuf),
    /// A job of a workspace has ended, or does something else.
    WorkChanged,
    /// Who stopped a workspace, with this number, has waited long enough for its end.
    StopOverdue(u64),
    /// The pause after an edit is over: the unsaved text is to be estimated.
    EstimateDue(PathBuf),
    /// An estimate ended; the number tells whether it is still wanted.
    EstimateEnded(PathBuf, u64, Box<EstimateOutcome>),
    /// The person chose a GPU to estimate for, or none.
    TargetChosen(PathBuf, Option<String>),
    /// A GPU is to be measured: the person agreed to that question, or the settings do.
    MeasureDevice(Target, consent::Question, consent::Cause),
    /// The measurement of a GPU ended, with what to tell the person; nothing where it was stopped.
    DeviceMeasured(Option<Result<String, String>>),
    /// What is known of other batch sizes before one is tried, of the measurement of this generation.
    BatchLookedAt(PathBuf, u64, Box<Exploration>),
    /// More is known of other batch sizes: the number of the search, and the generation of the
    /// measurement that it is about.
    BatchExplored(PathBuf, u64, u64, Box<Exploration>),
    /// A search for that ended.
    BatchExploring(PathBuf, u64),
    /// A measurement, which its generation names, was looked at: what optimizations would bring to it;
    /// nothing where that was not wanted.
    WhatIfsFound(PathBuf, u64, Option<Found>),
    /// What a measurement shows, which its generation names; nothing where nothing can be said of it.
    FindingsFound(PathBuf, u64, Option<Kept>),
    /// The pause after an edit is over: the texts are to be read for what they show alone.
    ReadingDue(PathBuf),
    /// The texts were read; the number tells whether that is still wanted. Nothing where they are no
    /// Python at the moment.
    TextsRead(PathBuf, u64, Option<Vec<Kept>>),
    /// The pause after an edit is over: remarks are to be where their statements are.
    DiagnosticsDue(PathBuf),
    /// Where diagnostics are shown has been found; the number tells whether they are still the newest.
    DiagnosticsPlaced(PathBuf, u64, Placements),
}

/// What a client tells without asking.
pub enum Told {
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
