//! The event loop: the only place where state changes. It handles one event after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ridgeline_analysis::python::SourceIndex;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::delayed_responses::Until;
use crate::documents::{Change, DocumentId, Refusal, SIZE_LIMIT};
use crate::event::{Event, Notification, WorkspaceEvent};
use crate::freed_memory;
use crate::lsp::client::Importance;
use crate::lsp::position::{self, ClientRange};
use crate::requests;
use crate::scheduler::{Reason, WorkspaceId};
use crate::settings::Settings;
use crate::state::{GlobalState, Saved};
use crate::trust::Trust;
use crate::watcher::Watcher;

/// Turns that take longer are logged, because edits wait behind them.
const SLOW_TURN: Duration = Duration::from_millis(100);

/// Handles events until all senders are gone.
pub(crate) async fn run(mut state: GlobalState, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        let started = Instant::now();
        let (name, text) = (name(&event), text_of(&event));
        // A panic costs one event. A request that waits for an answer gets an error, because its
        // sender is dropped.
        let turn = catch_unwind(AssertUnwindSafe(|| state.handle(event)));
        if turn.is_err() {
            tracing::error!("internal error: the event {name} was not handled completely");
            if catch_unwind(AssertUnwindSafe(|| state.recover(text))).is_err() {
                tracing::error!(
                    "internal error: the state could not be restored, so the session \
                    ends"
                );
                return;
            }
        }
        let took = started.elapsed();
        if took > SLOW_TURN {
            tracing::warn!("{name} took {} ms", took.as_millis());
        }
    }
}

/// Returns the document whose text the event changes.
fn text_of(event: &Event) -> Option<DocumentId> {
    match event {
        Event::Notification(
            Notification::Opened { id, .. }
            | Notification::Changed(id, ..)
            | Notification::Saved(id),
            _,
        ) => Some(id.clone()),
        _ => None,
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Notification(notification, _) => match notification {
            Notification::Initialize(_) => "initialize",
            Notification::Initialized => "initialized",
            Notification::Opened { .. } => "didOpen",
            Notification::Changed(..) => "didChange",
            Notification::Saved(_) => "didSave",
            Notification::NotebookOpened(..) => "notebook didOpen",
            Notification::CellsChanged(..) => "notebook didChange",
            Notification::NotebookSaved(_) => "notebook didSave",
            Notification::NotebookClosed(_) => "notebook didClose",
            Notification::Closed(_) => "didClose",
            Notification::SettingsChanged(_) => "didChangeConfiguration",
            Notification::FoldersChanged(..) => "didChangeWorkspaceFolders",
            Notification::ProgressCancelled(_) => "workDoneProgress/cancel",
            Notification::Shutdown => "shutdown",
        },
        Event::Request(_) => "a request",
        Event::PanelRequest(_) => "a panel request",
        Event::SettingsFetched(_) => "settings",
        Event::TrustAnswered(..) => "consent",
        Event::Workspace(_, event) => match event {
            WorkspaceEvent::ProgramFound(..) => "search for the program",
            WorkspaceEvent::ScriptChosen(..) => "choice of script",
            WorkspaceEvent::NewerProfile(..) => "newer profile",
            WorkspaceEvent::EarlierProfile(..) => "earlier profile",
            WorkspaceEvent::Prepared => "prepared",
            WorkspaceEvent::EstimateDue => "pause before an estimate",
            WorkspaceEvent::TargetChosen(..) => "choice of GPU",
            WorkspaceEvent::MeasureDevice(..) => "request to measure a GPU",
            WorkspaceEvent::BatchSiteFound(..) => "first batch-size lookup",
            WorkspaceEvent::ReadingDue => "pause before reading",
            WorkspaceEvent::TextsRead(..) => "end of reading",
            WorkspaceEvent::DiagnosticsDue => "diagnostics after an edit",
            WorkspaceEvent::DiagnosticsPlaced(..) => "diagnostics",
        },
        Event::FilesChanged(_) => "changed files",
        Event::ChangesRead(_) => "details of changed files",
        Event::RunProgressed(..) => "run progress",
        Event::JobEnded(..) => "end of a job",
        Event::MachineChecked(_) => "machine load",
        Event::MachineCheckOutdated => "outdated machine load",
        Event::RecordingAdded => "a recording",
        Event::WorkChanged => "job update",
        Event::ResponseOverdue(_) => "a late response",
        Event::BatchSweepProgressed(..) => "another batch size",
    }
}

/// Sends an event each time a job ends or moves on to something else.
async fn relay_jobs(mut jobs: watch::Receiver<u64>, events: mpsc::Sender<Event>) {
    while jobs.changed().await.is_ok() {
        if events.send(Event::WorkChanged).await.is_err() {
            return;
        }
    }
}

impl GlobalState {
    /// Handles one event.
    pub(crate) fn handle(&mut self, event: Event) {
        self.dispatch(event);
        self.run_jobs();
        let (gate, workspaces) = (&self.gate, &self.workspaces);
        self.delayed_responses.answer_due(|id, until| match until {
            Until::Stopped => !gate.is_busy(id),
            Until::ProgramFound => !workspaces.contains(id) || workspaces[id].searches == 0,
        });
    }

    /// Makes the state consistent again after a panic, which may have interrupted a change. Running
    /// jobs continue, and waiting ones start in the next turn. `text` is the document of the failed
    /// event: its text may differ from the client's.
    fn recover(&mut self, text: Option<DocumentId>) {
        let interrupted =
            self.starting.take().and_then(|id| self.scheduler.finish_job(id, Instant::now()));
        if let Some(job) = interrupted {
            job.token.cancel();
        }
        self.is_checking_changes = false;
        for workspace in self.workspaces.iter_mut() {
            workspace.forget_pending();
        }
        let mut message =
            "Ridgeline hit an internal error and recovered. See its log for details, and please \
            report them."
                .to_owned();
        if let Some(id) = text.filter(|id| self.documents.get(id).is_some()) {
            self.documents.close(&id);
            self.saved.remove(&id);
            self.cache.retain(|(other, _, _), _| *other != id);
            message += " Costs of this file are hidden until you reopen it.";
        }
        self.mark_stale();
        if !std::mem::replace(&mut self.reported_internal_error, true) {
            self.to_client.show_message(Importance::Error, &message);
        }
        // Triggers the next turn. If the queue is full, there is one anyway.
        let _ = self.events.try_send(Event::WorkChanged);
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Notification(notification, done) => {
                self.handle_notification(notification);
                // The client may have disconnected.
                let _ = done.send(());
            }
            Event::Request(request) => requests::start(self, request),
            Event::PanelRequest(question) => self.handle_panel_request(question),
            Event::SettingsFetched(Some(value)) => self.take_settings(&value),
            Event::SettingsFetched(None) => {}
            Event::Workspace(id, event) => {
                if self.workspaces.contains(id) {
                    self.handle_workspace(id, event);
                }
            }
            Event::TrustAnswered(root, question, answer) => {
                self.trust_answered(&root, question, answer);
            }
            Event::FilesChanged(files) => self.files_changed(files),
            Event::ChangesRead(changes) => self.changes_read(changes),
            Event::RunProgressed(id, progress) => self.run_progressed(id, progress),
            Event::JobEnded(id, outcome) => self.job_ended(id, *outcome),
            Event::MachineChecked(needed) => {
                self.scheduler.machine_checked(needed);
                self.work_changed();
            }
            Event::MachineCheckOutdated => self.scheduler.machine_check_outdated(),
            Event::RecordingAdded => self.load_newer_profiles(),
            Event::WorkChanged => self.work_changed(),
            Event::ResponseOverdue(number) => self.delayed_responses.overdue(number),
            Event::BatchSweepProgressed(id, generation, found) => {
                self.add_sweep_results(id, generation, *found);
            }
        }
    }

    fn handle_workspace(&mut self, id: WorkspaceId, event: WorkspaceEvent) {
        match event {
            WorkspaceEvent::ProgramFound(question, found, reason) => {
                self.program_found(id, question, *found, reason)
            }
            WorkspaceEvent::ScriptChosen(question, script, reason) => {
                self.script_chosen(id, question, script, reason);
            }
            WorkspaceEvent::NewerProfile(newer) => {
                self.add_newer_profile(id, newer);
                self.send_status(id);
                self.study_what_ifs(None);
            }
            WorkspaceEvent::EarlierProfile(earlier) => {
                let earlier = earlier.filter(|_| self.workspaces[id].measured.is_empty());
                if let Some(earlier) = earlier {
                    self.add_profile(id, earlier);
                }
                self.send_status(id);
                self.study_what_ifs(None);
            }
            WorkspaceEvent::Prepared => self.prepared(id),
            WorkspaceEvent::EstimateDue => self.estimate_due(id),
            WorkspaceEvent::TargetChosen(name) => self.set_target(id, name),
            WorkspaceEvent::MeasureDevice(target, question, cause) => {
                self.request_measurement(id, target, question, cause);
            }
            WorkspaceEvent::BatchSiteFound(generation, found) => {
                self.set_batch_site(id, generation, *found);
            }
            WorkspaceEvent::ReadingDue => self.reading_due(id),
            WorkspaceEvent::TextsRead(number, found) => self.texts_read(id, number, found),
            WorkspaceEvent::DiagnosticsDue => self.diagnostics_due(id),
            WorkspaceEvent::DiagnosticsPlaced(number, placements) => {
                self.diagnostics_placed(id, number, placements);
            }
        }
    }

    fn handle_notification(&mut self, notification: Notification) {
        match notification {
            Notification::Initialize(client) => {
                tracing::info!("client: {}", client.name.chars().take(80).collect::<String>());
                self.gate.set_trust(Trust::new(self.store.clone(), client.vouched));
                self.client = (*client).into();
                let (settings, _) = Settings::read(&self.client.options, &self.client);
                self.scheduler.set_budget(settings.background);
                self.settings = settings.into();
            }
            Notification::Initialized => self.ready(),
            Notification::Opened { id, uri, text, version } => {
                self.opened(id.clone(), uri, text);
                self.documents.set_version(&id, version);
            }
            Notification::Changed(id, version, changes) => {
                self.changed(&id, changes);
                self.documents.set_version(&id, version);
            }
            Notification::Saved(id) => self.saved(&id),
            Notification::NotebookOpened(uri, path, cells, texts) => {
                self.notebook_opened(uri, path, cells, texts);
            }
            Notification::CellsChanged(uri, start, deleted, cells, texts) => {
                self.cells_changed(&uri, start, deleted, cells, texts);
            }
            Notification::NotebookSaved(uri) => self.notebook_saved(&uri),
            Notification::NotebookClosed(uri) => self.notebook_closed(&uri),
            Notification::Closed(id) => {
                let real = self.documents.get(&id).and_then(|document| document.real.clone());
                let bytes = self.documents.bytes(&id);
                self.documents.close(&id);
                if bytes >= freed_memory::LARGE {
                    freed_memory::release_soon();
                }
                self.saved.remove(&id);
                self.cache.retain(|(other, _, _), _| *other != id);
                if let Some(file) = real {
                    self.show_diagnostics_soon(&file);
                    self.text_changed(&file);
                    self.schedule_reading(&file, false);
                }
            }
            Notification::SettingsChanged(value) => self.settings_changed(&value),
            Notification::FoldersChanged(added, removed) => {
                removed.iter().for_each(|root| self.remove_workspace(root));
                for root in &added {
                    self.add_workspace(root, true);
                }
            }
            Notification::ProgressCancelled(token) => self.progress_cancelled(&token),
            Notification::Shutdown => {
                self.close();
                self.panel = None;
            }
        }
    }

    /// Starts the background tasks and adds the client's folders: the client accepts requests from
    /// now on.
    fn ready(&mut self) {
        let sending = self.refresh.clone();
        let repeats_hints = self.client.name == "Neovim";
        let (to_client, wanted) = (self.to_client.clone(), self.client.refreshes());
        tokio::spawn(sending.keep_sending(to_client, wanted, repeats_hints));
        self.watcher = Watcher::start(self.events.clone());
        tokio::spawn(relay_jobs(self.gate.follow(), self.events.clone()));
        for root in self.client.roots.clone() {
            // A misconfigured client names the root of the file system, which is never intended.
            if root.parent().is_some() {
                self.add_workspace(&root, true);
            }
        }
        self.fetch_settings();
    }

    fn opened(&mut self, id: DocumentId, uri: String, text: String) {
        let real = id.path().map(|path| self.disk.real_path(path));
        self.opened_as(id, uri, real, text);
    }

    /// Opens a text. `real` is its file without symbolic links.
    pub(crate) fn opened_as(
        &mut self,
        id: DocumentId,
        uri: String,
        real: Option<PathBuf>,
        text: String,
    ) {
        let opened = self.documents.open(id.clone(), uri, real, text);
        self.report_refusal(&id, opened);
        let Some(document) = self.documents.get(&id) else { return };
        if document.index.as_ref().is_some_and(SourceIndex::is_too_large_to_parse) {
            tracing::info!(
                "{id:?} is not parsed because it, or one of its lines, is too large. Its costs are \
                shown by line"
            );
        }
        let saved = Saved::of(document, false);
        self.saved.insert(id.clone(), saved);
        let Some(path) = document.real.clone() else { return };
        self.last_touched = Some(path.clone());
        let id = self.workspaces.around(&path).or_else(|| self.add_folder_of(&path));
        if let Some(id) = id {
            self.prepare(id);
            self.send_status(id);
            self.estimate_when_idle(id);
        }
        self.show_diagnostics_soon(&path);
        self.schedule_reading(&path, true);
    }

    fn changed(&mut self, id: &DocumentId, changes: Vec<Change<ClientRange>>) {
        let encoding = self.client.encoding;
        let changed = self.documents.change(id, changes, |text, lines, range| {
            position::to_span(text, lines, encoding, range)
        });
        self.report_refusal(id, changed);
        if let Some(path) = self.documents.get(id).and_then(|document| document.real.clone()) {
            self.show_diagnostics_soon(&path);
            self.last_touched = Some(path.clone());
            let owner = self.workspaces.around(&path);
            self.scheduler.edited(owner);
            self.text_changed(&path);
            self.schedule_reading(&path, false);
        }
    }

    fn report_refusal(&mut self, id: &DocumentId, opened: Result<(), Refusal>) {
        let name = id.path().map(|path| path.display().to_string()).unwrap_or_default();
        let why = match opened {
            Ok(()) => return,
            Err(Refusal::Size) => format!("it is larger than {} MB", SIZE_LIMIT >> 20),
            Err(Refusal::Edits) => {
                "too many edits came at once. Close the file and open it again".to_owned()
            }
            Err(Refusal::OpenFiles) if self.reported_too_many => return,
            Err(Refusal::OpenFiles) => {
                self.reported_too_many = true;
                "too many files are open".to_owned()
            }
        };
        let message = format!("Ridgeline ignores {name}: {why}.");
        self.to_client.show_message(Importance::Info, &message);
    }

    fn saved(&mut self, id: &DocumentId) {
        self.documents.catch_up(id);
        let Some(document) = self.documents.get(id) else { return };
        let saved = Saved::of(document, false);
        let before = self.saved.insert(id.clone(), saved);
        // The file may have been renamed, or a symbolic link may have changed its target.
        let Some(path) = document.real.clone() else { return };
        self.last_touched = Some(path.clone());
        // If the file event came before `didSave`, the save has its run already.
        let has_run =
            before.is_some_and(|before| before.known_from_disk && before.edition == saved.edition);
        if !self.settings.run_on_save || has_run {
            return;
        }
        if let Some(id) = self.workspaces.around(&path) {
            self.request_run(id, Reason::Saved(path));
        }
    }

    fn settings_changed(&mut self, value: &Value) {
        // Most clients send an empty value here and expect the server to fetch the settings.
        if self.client.configuration {
            self.fetch_settings();
        } else if value.is_object() {
            self.take_settings(value);
        }
    }

    fn fetch_settings(&mut self) {
        if !self.client.configuration {
            return;
        }
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        tokio::spawn(async move {
            let fetched = to_client.settings().await;
            let _ = events.send(Event::SettingsFetched(fetched)).await;
        });
    }

    fn take_settings(&mut self, value: &Value) {
        // A client without this section answers null: its initial settings still apply.
        if value.is_null() {
            return;
        }
        let (settings, complaints) = Settings::read(value, &self.client);
        for complaint in complaints {
            self.to_client.show_message(Importance::Warning, &complaint);
        }
        if *self.settings == settings {
            return;
        }
        self.scheduler.set_budget(settings.background);
        let before = std::mem::replace(&mut self.settings, settings.into());
        self.mark_stale();
        for id in self.workspaces.ids() {
            self.show_diagnostics(id);
            self.live_settings_changed(id, &before);
            self.findings_settings_changed(id);
        }
    }

    /// Returns the workspace a command applies to: the one of its argument, else the one of the
    /// document touched last, else the only one.
    pub(crate) fn target_workspace(&self, argument: Option<PathBuf>) -> Option<WorkspaceId> {
        if let Some(path) = argument {
            return self.workspaces.around(&self.disk.real_path(&path));
        }
        let touched = self.last_touched.as_deref().and_then(|path| self.workspaces.around(path));
        touched.or_else(|| self.workspaces.iter().next().map(|workspace| workspace.id))
    }
}
