//! The one place where state changes: events in, one after the other.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ridgeline_analysis::source::SourceIndex;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::documents::{Change, DocumentId, Refusal, SIZE_LIMIT, real_path};
use crate::event::{Event, Told};
use crate::freed_memory;
use crate::lsp::client::Importance;
use crate::lsp::position::{self, ClientRange};
use crate::requests;
use crate::run_queue::Reason;
use crate::settings::Settings;
use crate::state::{GlobalState, Saved};
use crate::trust::Trust;
use crate::watcher::Watcher;

/// A turn that takes longer is logged: edits wait behind it.
const SLOW_TURN: Duration = Duration::from_millis(100);

/// Handles events until there are no more senders, or the client said goodbye and has gone.
pub async fn run(mut state: GlobalState, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        let started = Instant::now();
        let name = name(&event);
        // A panic costs one event. Whoever waits for its answer gets an error, because what would
        // have sent it is dropped.
        let turn = catch_unwind(AssertUnwindSafe(|| state.handle(event)));
        if turn.is_err() {
            tracing::error!("a defect: the event {name} was not handled to its end");
        }
        let took = started.elapsed();
        if took > SLOW_TURN {
            tracing::warn!("{name} took {} ms", took.as_millis());
        }
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Told(told, _) => match told {
            Told::Hello(_) => "initialize",
            Told::Ready => "initialized",
            Told::Opened { .. } => "didOpen",
            Told::Changed(..) => "didChange",
            Told::Saved(_) => "didSave",
            Told::Closed(_) => "didClose",
            Told::SettingsChanged(_) => "didChangeConfiguration",
            Told::FoldersChanged(..) => "didChangeWorkspaceFolders",
            Told::ProgressCancelled(_) => "workDoneProgress/cancel",
            Told::Goodbye => "shutdown",
        },
        Event::Asked(_) => "a request",
        Event::PanelAsked(_) => "a question of the panel",
        Event::SettingsFetched(_) => "settings",
        Event::TrustAnswered(..) => "consent",
        Event::ScriptChosen(..) => "choice of script",
        Event::FilesChanged(_) => "changed files",
        Event::RunProgressed(..) => "progress of a run",
        Event::RunEnded(..) => "end of a run",
        Event::RecordingMade => "a recording",
        Event::NewerFound(..) => "newer profile",
        Event::EarlierFound(..) => "earlier profile",
        Event::Prepared(_) => "prepared",
        Event::WorkChanged => "change of a job",
        Event::StopOverdue(_) => "a stop that takes long",
        Event::EstimateDue(_) => "pause before an estimate",
        Event::EstimateEnded(..) => "end of an estimate",
        Event::TargetChosen(..) => "choice of GPU",
        Event::MeasureDevice(..) => "wish to measure a GPU",
        Event::DeviceMeasured(_) => "end of measuring a GPU",
        Event::BatchLookedAt(..) => "first look at the batch size",
        Event::BatchExplored(..) => "another batch size",
        Event::BatchExploring(..) => "end of other batch sizes",
        Event::WhatIfsFound(..) => "what-ifs",
        Event::FindingsFound(..) => "findings",
        Event::ReadingDue(_) => "pause before a reading",
        Event::TextsRead(..) => "end of a reading",
        Event::DiagnosticsDue(_) => "diagnostics after an edit",
        Event::DiagnosticsPlaced(..) => "diagnostics",
    }
}

/// Brings it to the event loop that jobs have ended, or do something else.
async fn relay_jobs(mut jobs: watch::Receiver<u64>, events: mpsc::Sender<Event>) {
    while jobs.changed().await.is_ok() {
        if events.send(Event::WorkChanged).await.is_err() {
            return;
        }
    }
}

impl GlobalState {
    /// One turn.
    pub fn handle(&mut self, event: Event) {
        self.take_up(event);
        self.stopping.answer_ended(&self.gate);
    }

    fn take_up(&mut self, event: Event) {
        match event {
            Event::Told(told, done) => {
                self.handle_told(told);
                // The client may have gone.
                let _ = done.send(());
            }
            Event::Asked(request) => requests::take_up(self, request),
            Event::PanelAsked(question) => self.panel_asked(question),
            Event::SettingsFetched(Some(value)) => self.take_settings(&value),
            Event::SettingsFetched(None) => {}
            Event::TrustAnswered(root, question, answer) => {
                self.trust_answered(&root, question, answer);
            }
            Event::ScriptChosen(root, question, script, reason) => {
                self.script_chosen(&root, question, script, reason);
            }
            Event::FilesChanged(files) => self.files_changed(files),
            Event::RunProgressed(id, progress) => self.run_progressed(id, progress),
            Event::RunEnded(id, outcome) => self.run_ended(id, *outcome),
            Event::RecordingMade => self.look_for_newer(),
            Event::NewerFound(root, newer) => {
                self.take_newer_in(&root, newer);
                self.send_status(&root);
                self.study_what_ifs(None);
            }
            Event::EarlierFound(root, Some(earlier)) => {
                let known = self.workspace(&root).is_some_and(|found| !found.measured.is_empty());
                if !known {
                    self.take_in(&root, earlier);
                }
                self.send_status(&root);
                self.study_what_ifs(None);
            }
            Event::EarlierFound(root, None) => self.send_status(&root),
            Event::Prepared(root) => self.prepared(&root),
            Event::WorkChanged => self.work_changed(),
            Event::StopOverdue(number) => self.stopping.overdue(number),
            Event::EstimateDue(root) => self.estimate_due(&root),
            Event::EstimateEnded(root, number, outcome) => {
                self.estimate_ended(&root, number, *outcome);
            }
            Event::TargetChosen(root, name) => self.set_target(&root, name),
            Event::MeasureDevice(target, question, cause) => {
                self.device_wanted(target, question, cause);
            }
            Event::DeviceMeasured(measured) => self.device_measured(measured),
            Event::BatchLookedAt(root, generation, found) => {
                self.batch_looked_at(&root, generation, *found);
            }
            Event::BatchExplored(root, number, generation, found) => {
                self.batch_explored(&root, number, generation, *found);
            }
            Event::BatchExploring(root, number) => self.batch_exploring_ended(&root, number),
            Event::WhatIfsFound(root, generation, found) => {
                self.what_ifs_found(&root, generation, found);
            }
            Event::FindingsFound(root, generation, found) => {
                self.findings_found(&root, generation, found);
            }
            Event::ReadingDue(root) => self.reading_due(&root),
            Event::TextsRead(root, number, found) => self.texts_read(&root, number, found),
            Event::DiagnosticsDue(root) => self.diagnostics_due(&root),
            Event::DiagnosticsPlaced(root, number, placements) => {
                self.diagnostics_placed(&root, number, placements);
            }
        }
    }

    fn handle_told(&mut self, told: Told) {
        match told {
            Told::Hello(client) => {
                tracing::info!(
                    "the client is {}",
                    client.name.chars().take(80).collect::<String>()
                );
                self.gate.set_trust(Trust::new(self.store.clone(), client.vouched));
                self.client = (*client).into();
                let (settings, _) = Settings::read(&self.client.options, &self.client);
                self.settings = settings.into();
            }
            Told::Ready => self.ready(),
            Told::Opened { id, uri, text, version } => {
                self.opened(id.clone(), uri, text);
                self.documents.set_version(&id, version);
            }
            Told::Changed(id, version, changes) => {
                self.changed(&id, changes);
                self.documents.set_version(&id, version);
            }
            Told::Saved(id) => self.saved(&id),
            Told::Closed(id) => {
                let real = self.documents.get(&id).and_then(|document| document.real.clone());
                let bytes = self.documents.bytes(&id);
                self.documents.close(&id);
                if bytes >= freed_memory::LARGE {
                    freed_memory::give_back_soon();
                }
                self.saved.remove(&id);
                self.cache.retain(|(other, _, _), _| *other != id);
                if let Some(file) = real {
                    self.show_remarks_soon(&file);
                    self.text_changed(&file);
                    self.read_after_pause(&file, false);
                }
            }
            Told::SettingsChanged(value) => self.settings_changed(&value),
            Told::FoldersChanged(added, removed) => {
                removed.iter().for_each(|root| self.remove_workspace(root));
                for root in &added {
                    self.add_workspace(root, true);
                }
            }
            Told::ProgressCancelled(token) => self.progress_cancelled(&token),
            Told::Goodbye => {
                self.close();
                self.panel = None;
            }
        }
    }

    /// The client takes requests from now on.
    fn ready(&mut self) {
        let sending = self.refresh.clone();
        let forgets_hints = self.client.name == "Neovim";
        let (to_client, wanted) = (self.to_client.clone(), self.client.refreshes());
        tokio::spawn(sending.keep_sending(to_client, wanted, forgets_hints));
        self.watcher = Watcher::start(self.events.clone());
        tokio::spawn(relay_jobs(self.gate.follow(), self.events.clone()));
        for root in self.client.roots.clone() {
            // A client that mistook its configuration names the whole file system, which nobody means.
            if root.parent().is_some() {
                self.add_workspace(&root, true);
            }
        }
        self.fetch_settings();
    }

    fn opened(&mut self, id: DocumentId, uri: String, text: String) {
        let opened = self.documents.open(id.clone(), uri, text);
        self.tell_refusal(&id, opened);
        let Some(document) = self.documents.get(&id) else { return };
        if document.index.as_ref().is_some_and(SourceIndex::is_too_large_to_parse) {
            tracing::info!(
                "{id:?} is not parsed: it is larger than a program is, or has a line that is. Its \
                 costs are shown by line"
            );
        }
        let saved = Saved::of(document, false);
        self.saved.insert(id.clone(), saved);
        let Some(path) = document.real.clone() else { return };
        self.last_touched = Some(path.clone());
        let root = self.root_of(&path).or_else(|| self.add_folder_of(&path));
        if let Some(root) = root {
            self.prepare(&root);
            self.send_status(&root);
            self.estimate_when_idle(&root);
        }
        self.show_remarks_soon(&path);
        self.read_after_pause(&path, true);
    }

    fn changed(&mut self, id: &DocumentId, changes: Vec<Change<ClientRange>>) {
        let encoding = self.client.encoding;
        let changed = self.documents.change(id, changes, |text, lines, range| {
            position::to_span(text, lines, encoding, range)
        });
        self.tell_refusal(id, changed);
        if let Some(path) = self.documents.get(id).and_then(|document| document.real.clone()) {
            self.show_remarks_soon(&path);
            self.last_touched = Some(path.clone());
            self.stop_exploring();
            self.stop_probing();
            self.text_changed(&path);
            self.read_after_pause(&path, false);
        }
    }

    fn tell_refusal(&self, id: &DocumentId, opened: Result<(), Refusal>) {
        let name = id.path().map(|path| path.display().to_string()).unwrap_or_default();
        let why = match opened {
            Ok(()) => return,
            Err(Refusal::TooLarge) => format!("it is larger than {} MB", SIZE_LIMIT >> 20),
            Err(Refusal::TooMany) => "too many files are open".to_owned(),
        };
        let message = format!("Ridgeline leaves {name} alone: {why}.");
        self.to_client.show_message(Importance::Info, &message);
    }

    fn saved(&mut self, id: &DocumentId) {
        self.documents.catch_up(id);
        let Some(document) = self.documents.get(id) else { return };
        let saved = Saved::of(document, false);
        let before = self.saved.insert(id.clone(), saved);
        // The file may have been renamed to something else, or a link may lead elsewhere now.
        let Some(path) = document.real.clone() else { return };
        self.last_touched = Some(path.clone());
        // The file was written before the client said so, and has its run.
        let has_run =
            before.is_some_and(|before| before.seen_first && before.edition == saved.edition);
        if !self.settings.run_on_save || has_run {
            return;
        }
        if let Some(root) = self.root_of(&path) {
            self.want_run(&root, Reason::Saved(path));
        }
    }

    /// Something wrote files. What the editor saved itself comes this way as well, and a client that
    /// sends no `didSave` has no other.
    fn files_changed(&mut self, files: Vec<PathBuf>) {
        if !self.settings.watch_files {
            return;
        }
        let mut wanted: HashMap<PathBuf, Reason> = HashMap::new();
        for file in files {
            let Some(root) = self.root_of(&file) else { continue };
            if let Some(reason) = self.reason_for(&file) {
                wanted.insert(root, reason);
            }
        }
        for (root, reason) in wanted {
            self.want_run(&root, reason);
        }
    }

    fn reason_for(&mut self, file: &Path) -> Option<Reason> {
        let open = self.documents.iter().find(|(_, open)| open.real.as_deref() == Some(file));
        let Some((id, document)) = open else {
            return Some(Reason::ChangedOutside(file.to_owned()));
        };
        let now = Saved::of(document, true);
        let before = self.saved.get(id);
        if !now.is_on_disk(file) {
            // Somebody who types on after a save is ahead of the news of it.
            let is_known = before.is_some_and(|before| before.is_on_disk(file));
            return (!is_known).then(|| Reason::ChangedOutside(file.to_owned()));
        }
        if before.is_some_and(|before| before.edition == now.edition) {
            return None;
        }
        self.saved.insert(id.clone(), now);
        Some(Reason::Saved(file.to_owned()))
    }

    fn settings_changed(&mut self, value: &Value) {
        // Most clients send an empty value here and want to be asked.
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
        // A client that has no such section answers null: what it said at first still holds.
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
        let before = std::mem::replace(&mut self.settings, settings.into());
        self.mark_stale();
        let roots: Vec<PathBuf> =
            self.workspaces.iter().map(|workspace| workspace.root.clone()).collect();
        for root in &roots {
            self.show_diagnostics(root);
            self.live_settings_changed(root, &before);
            self.findings_settings_changed(root);
        }
    }

    /// The workspaces that a command means: that of its argument, else that of the document touched
    /// last, else the only one.
    pub fn meant(&mut self, argument: Option<PathBuf>) -> Option<PathBuf> {
        if let Some(path) = argument {
            return self.root_of(&real_path(&path));
        }
        let touched = self.last_touched.as_deref().and_then(|path| self.root_of(path));
        touched.or_else(|| self.workspaces.first().map(|workspace| workspace.root.clone()))
    }
}
