//! The server's state. Only the event loop has it; everything else gets snapshots.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ridgeline_analysis::python::SourceIndex;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::consent::Gate;
use crate::delayed_responses::DelayedResponses;
use crate::disk::Disk;
use crate::documents::{Document, DocumentId, Documents};
use crate::event::{Event, WorkspaceEvent};
use crate::lsp::client::{Importance, ToClient};
use crate::lsp::position::Encoding;
use crate::measured_rates::DeviceMeasurement;
use crate::open_notebooks::OpenNotebooks;
use crate::panel::Panel;
use crate::panel::answer::Timelines;
use crate::panel::feed::Feed;
use crate::pool::Pool;
use crate::profiler::{Profiled, Profiler};
use crate::refresh::{Refresh, Refreshable};
use crate::scheduler::{JobId, Reason, Scheduler, Slot, WorkspaceId};
use crate::settings::Settings;
use crate::store::Store;
use crate::text_mark::TextMark;
use crate::trust::Trust;
use crate::view::{Cache, DocumentProfile, View};
use crate::watcher::Watcher;
use crate::workspace::Workspaces;

/// The maximum number of projects of one workspace whose profiles are kept.
const PROFILE_LIMIT: usize = 8;

/// The client and its capabilities.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    /// The name it sends.
    pub name: String,
    /// Its open folders.
    pub roots: Vec<PathBuf>,
    /// Whether it guarantees that the user trusts these folders.
    pub vouched: bool,
    /// `initializationOptions`.
    pub options: Value,
    /// The unit of positions.
    pub encoding: Encoding,
    /// Supports `workspace/inlayHint/refresh`.
    pub refreshes_hints: bool,
    /// Supports `workspace/codeLens/refresh`.
    pub refreshes_lenses: bool,
    /// Supports `workspace/diagnostic/refresh`.
    pub refreshes_diagnostics: bool,
    pub shows_lenses: bool,
    /// Shows diagnostics that the server publishes.
    pub takes_diagnostics: bool,
    /// Only shows diagnostics that it pulls.
    pub pulls_diagnostics: bool,
    /// Shows related information of diagnostics.
    pub related_information: bool,
    /// Shows markdown in hovers.
    pub takes_markdown: bool,
    /// Announces that it shows plain text in hovers.
    pub takes_plain_text: bool,
    /// Answers `workspace/configuration`.
    pub configuration: bool,
    /// Shows progress that the server begins.
    pub shows_progress: bool,
    /// Supports `window/showDocument`.
    pub shows_documents: bool,
    /// Supports `workspace/applyEdit`.
    pub applies_edits: bool,
    /// Supports edits that name the version of their text.
    pub versioned_edits: bool,
    /// Supports `ridgeline/openPanel`.
    pub shows_panel: bool,
    /// Supports `ridgeline/highlight`.
    pub highlights: bool,
    /// Knows the state `background`.
    pub knows_background: bool,
    /// Shows diagnostics that are more severe than hints in hovers.
    pub hovers_diagnostics: bool,
    /// Runs `command:` links in hovers.
    pub runs_links: bool,
}

impl Client {
    /// Returns what it can be asked to refresh.
    pub(crate) fn refreshes(&self) -> Vec<Refreshable> {
        let mut wanted = Vec::new();
        for (what, takes) in [
            (Refreshable::Hints, self.refreshes_hints),
            (Refreshable::Lenses, self.refreshes_lenses),
            (Refreshable::Diagnostics, self.refreshes_diagnostics && self.pulls_diagnostics),
        ] {
            if takes {
                wanted.push(what);
            }
        }
        wanted
    }
}

/// The edition of a document that is on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    pub edition: u64,
    /// The file event came first: the client has not sent `didSave` yet.
    pub known_from_disk: bool,
    /// Identifies the text; `None` for a document that is ignored.
    text: Option<TextMark>,
}

impl Saved {
    /// Creates it from the document's current text.
    pub(crate) fn of(document: &Document, known_from_disk: bool) -> Saved {
        let text = document.index.as_ref().map(|index| TextMark::of(index.text()));
        Saved { edition: document.edition(), known_from_disk, text }
    }

    pub(crate) fn mark(&self) -> Option<TextMark> {
        self.text
    }

    /// Returns whether both are the same text.
    pub(crate) fn is_same(&self, other: &Saved) -> bool {
        self.text.is_some() && self.text == other.text
    }

    /// Returns whether the file has this text.
    pub(crate) fn is_on_disk(&self, file: &Path) -> bool {
        self.text.is_some_and(|text| text.is_on_disk(file))
    }
}

/// All state of a session.
pub(crate) struct GlobalState {
    /// Sends events to the event loop, for tasks that take time.
    pub events: mpsc::Sender<Event>,
    pub to_client: ToClient,
    pub client: Arc<Client>,
    /// Runs training loops.
    pub profiler: Arc<dyn Profiler>,
    /// Where data is stored; `None` if the user has no folders for it.
    pub store: Option<Store>,
    /// What may run, and all jobs that run code.
    pub gate: Gate,
    /// Commands that stopped something and wait for its end.
    pub delayed_responses: DelayedResponses,
    /// Queries the disk without blocking for long.
    pub disk: Disk,
    pub documents: Documents,
    /// The open notebooks, whose cells are among the documents.
    pub notebooks: OpenNotebooks,
    /// The document touched last, which commands without an argument apply to.
    pub last_touched: Option<PathBuf>,
    pub workspaces: Workspaces,
    /// Which job runs, and when.
    pub scheduler: Scheduler,
    /// The job that is being started in this turn.
    pub starting: Option<JobId>,
    /// Whether the user was told about an internal error.
    pub reported_internal_error: bool,
    /// Whether the user was told that too many files are open.
    pub reported_too_many: bool,
    /// The editor's settings.
    pub settings: Arc<Settings>,
    /// Answers requests.
    pub pool: Pool,
    /// For work that takes seconds, which would delay requests.
    pub slow_pool: Pool,
    /// For work that nobody waits for.
    pub background_pool: Pool,
    /// What is out of date in the client.
    pub refresh: Refresh,
    /// Cached results for documents.
    pub cache: Arc<Cache>,
    /// Watches the disk for changes.
    pub watcher: Option<Watcher>,
    /// The last number given to a profile or failure.
    pub last_number: u64,
    /// The panel, once it was opened for the first time.
    pub panel: Option<Panel>,
    /// The timelines of iterations that the panel has requested.
    pub timelines: Timelines,
    /// Updates for the panel.
    pub feed: Feed,
    /// Counts the panel's highlights, so that an older one never replaces a newer one.
    pub marks: Arc<AtomicU64>,
    /// Changed files that were not checked yet.
    pub changed: BTreeSet<PathBuf>,
    /// Whether a worker is checking changed files.
    pub is_checking_changes: bool,
    /// What is on disk of each document, as far as known.
    pub saved: HashMap<DocumentId, Saved>,
    /// Measures this machine's GPU.
    pub measuring: DeviceMeasurement,
}

impl GlobalState {
    pub(crate) fn new(
        events: mpsc::Sender<Event>,
        to_client: ToClient,
        profiler: Arc<dyn Profiler>,
        store: Option<Store>,
    ) -> GlobalState {
        GlobalState {
            events,
            to_client,
            client: Arc::default(),
            profiler,
            gate: Gate::new(Trust::new(store.clone(), false)),
            delayed_responses: DelayedResponses::default(),
            store,
            disk: Disk::default(),
            documents: Documents::default(),
            notebooks: OpenNotebooks::default(),
            last_touched: None,
            workspaces: Workspaces::default(),
            scheduler: Scheduler::default(),
            starting: None,
            reported_internal_error: false,
            reported_too_many: false,
            settings: Arc::default(),
            pool: Pool::default(),
            slow_pool: Pool::default(),
            background_pool: Pool::background(),
            refresh: Refresh::default(),
            cache: Arc::default(),
            watcher: None,
            last_number: 0,
            panel: None,
            timelines: Timelines::default(),
            feed: Feed::default(),
            marks: Arc::default(),
            changed: BTreeSet::new(),
            is_checking_changes: false,
            saved: HashMap::new(),
            measuring: DeviceMeasurement::default(),
        }
    }

    /// Returns a number that was not used before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Returns a snapshot of a document with everything known about it.
    pub(crate) fn view(&self, id: &DocumentId) -> Option<View> {
        let document = self.documents.snapshot(id)?;
        let real = self.documents.get(id).and_then(|document| document.real.as_deref());
        let measured = real.and_then(|path| self.measured(path, &document.index));
        let (client, settings) = (self.client.clone(), self.settings.clone());
        let generation = measured.as_ref().map(|measured| measured.generation);
        let what_ifs = generation.and_then(|generation| self.what_ifs_of(generation));
        let mut view = View::new(document, client, settings, measured, &self.cache);
        view.what_ifs = what_ifs;
        view.file = real.map(Path::to_owned);
        view.findings = real.map(|file| self.findings_around(file)).unwrap_or_default();
        Some(view)
    }

    /// Returns whether a run of the document's workspace waits for the user's permission.
    pub(crate) fn awaits_consent(&self, id: &DocumentId) -> bool {
        let real = self.documents.get(id).and_then(|document| document.real.as_deref());
        let id = real.and_then(|path| self.workspaces.around(path));
        id.is_some_and(|id| self.workspaces[id].waiting.is_some())
    }

    /// Returns the newest profile that contains a file. It may come from a workspace inside or
    /// around this one.
    fn measured(&self, path: &Path, text: &SourceIndex) -> Option<DocumentProfile> {
        // An estimate is newer than the measurement it was computed from.
        let all =
            self.workspaces.iter().flat_map(|one| one.measured.iter().chain(&one.live.estimates));
        all.filter_map(|(generation, profiled)| {
            let file = profiled.file_of_text(path, text)?;
            Some(DocumentProfile { profiled: profiled.clone(), file, generation: *generation })
        })
        .max_by_key(|measured| measured.generation)
    }

    /// Adds the folder of a file that is in none of the client's folders. It is not watched,
    /// because it may be the user's home folder.
    pub(crate) fn add_folder_of(&mut self, file: &Path) -> Option<WorkspaceId> {
        let folder = file.parent().filter(|folder| folder.parent().is_some())?;
        if !self.disk.is_file(file) {
            return None;
        }
        self.add_workspace(folder, false)
    }

    /// Adds a folder, if it exists, and loads what was measured in it before.
    pub(crate) fn add_workspace(&mut self, root: &Path, watched: bool) -> Option<WorkspaceId> {
        let root = self.disk.real_path(root);
        if let Some(known) = self.workspaces.at(&root) {
            return Some(known);
        }
        let added = self.disk.is_dir(&root).then(|| self.workspaces.add(&root)).flatten();
        let Some(id) = added else {
            tracing::info!("{} is not watched", root.display());
            return None;
        };
        self.gate.add(id, &root);
        self.feed.changed(id);
        if let Some(watcher) = self.watcher.as_ref().filter(|_| watched) {
            watcher.watch(&root);
        }
        let (newest, events) = (self.profiler.newest(root, None), self.events.clone());
        tokio::spawn(async move {
            let earlier = newest.await;
            // If the event loop has ended, nobody needs it.
            let _ =
                events.send(Event::Workspace(id, WorkspaceEvent::EarlierProfile(earlier))).await;
        });
        Some(id)
    }

    /// Removes a folder, stops its run and withdraws its results.
    pub(crate) fn remove_workspace(&mut self, root: &Path) {
        // Workspaces have paths without symbolic links, and the folder may no longer exist.
        let root = self.disk.real_path(root);
        let Some(id) = self.workspaces.at(&root) else { return };
        self.end_work(id);
        self.gate.remove(id);
        tokio::spawn(self.profiler.forget(root.clone()));
        self.withdraw_diagnostics(id);
        self.feed.remove(id);
        self.scheduler.forget(id);
        self.workspaces.remove(id);
        if let Some(watcher) = &self.watcher {
            watcher.unwatch(&root);
        }
        self.mark_stale();
    }

    /// Adds a profile. It replaces an older one of the same project.
    pub(crate) fn add_profile(&mut self, id: WorkspaceId, profiled: Profiled) {
        let generation = self.next_number();
        let memory_limit = self.settings.batch_memory_limit;
        let workspace = &mut self.workspaces[id];
        workspace.what_if.keep_previous(workspace.measured.first());
        workspace.last_loaded = profiled.recording.clone();
        workspace.measured.retain(|(_, older)| older.root != profiled.root);
        workspace.live.estimates.retain(|(_, older)| older.root != profiled.root);
        workspace.live.cleared = false;
        let is_known = workspace.batch.carry_over(generation, &profiled, memory_limit);
        workspace.measured.insert(0, (generation, Arc::new(profiled)));
        workspace.measured.truncate(PROFILE_LIMIT);
        let id = workspace.id;
        self.feed.changed(id);
        self.scheduler.forget_result(id, Slot::Estimate);
        if !is_known {
            self.scheduler.forget_result(id, Slot::BatchSizes);
        }
        self.mark_stale();
        if self.settings.remarks || self.has_findings(id) {
            self.show_diagnostics(id);
        }
    }

    /// Looks for profiles from outside this session (a terminal or another editor). A run of this
    /// session reports its profile itself.
    pub(crate) fn load_newer_profiles(&self) {
        let running = self.scheduler.run().map(|(job, _)| job.owner);
        for workspace in self.workspaces.iter().filter(|one| Some(one.id) != running) {
            let known = workspace.last_loaded.clone();
            let (id, events) = (workspace.id, self.events.clone());
            let newer = self.profiler.newest(workspace.root.clone(), known);
            tokio::spawn(async move {
                if let Some(newer) = newer.await {
                    // If the event loop has ended, nobody needs it.
                    let _ = events
                        .send(Event::Workspace(id, WorkspaceEvent::NewerProfile(newer)))
                        .await;
                }
            });
        }
    }

    /// Adds a profile from outside this session, unless a run of this session is newer.
    pub(crate) fn add_newer_profile(&mut self, id: WorkspaceId, newer: Profiled) {
        let workspace = &mut self.workspaces[id];
        let newest = workspace.measured.first();
        if newest.is_none_or(|(_, known)| known.when_unix_ms < newer.when_unix_ms) {
            self.add_profile(id, newer);
        }
    }

    /// Marks the client's hints and lenses as out of date.
    pub(crate) fn mark_stale(&self) {
        self.refresh.mark(Refreshable::Hints);
        self.refresh.mark(Refreshable::Lenses);
    }

    /// Stops everything, and starts nothing any more: the client shut down or disconnected.
    pub(crate) fn close(&mut self) {
        self.gate.close();
        self.scheduler.close();
    }

    /// Sends the statuses, because a job has ended or moved on to something else.
    pub(crate) fn work_changed(&mut self) {
        self.workspaces.ids().into_iter().for_each(|id| self.send_status(id));
    }

    /// Withdraws the failure that is shown.
    pub(crate) fn forget_failure(&mut self, id: WorkspaceId) {
        self.workspaces[id].failure = None;
        self.show_diagnostics(id);
    }

    /// Shows a message about a workspace. Unless a command asked for it, it is not repeated on
    /// every save.
    pub(crate) fn show_message_once(
        &mut self,
        id: WorkspaceId,
        importance: Importance,
        message: &str,
        is_requested: bool,
    ) {
        let to_client = self.to_client.clone();
        let workspace = &mut self.workspaces[id];
        if !is_requested && workspace.last_message.as_deref() == Some(message) {
            return;
        }
        workspace.last_message = Some(message.to_owned());
        to_client.show_message(importance, message);
    }

    /// Sends a workspace's status if it has changed.
    pub(crate) fn send_status(&mut self, id: WorkspaceId) {
        let reason = self.scheduler.run_of(id).map(Reason::to_string);
        let (to_client, feed) = (self.to_client.clone(), self.feed.clone());
        let waits = self.scheduler.waits_for(id);
        let waits = waits.map(|needed| format!("waiting: {}", needed.message()));
        let busy = self.gate.in_background(id).or(waits);
        let is_paused = self.gate.is_paused(id);
        let knows_background = self.client.knows_background;
        let workspace = &mut self.workspaces[id];
        let status = workspace.status_now(reason, busy, is_paused);
        let status = if knows_background { status } else { status.without_background() };
        if workspace.status.as_ref() != Some(&status) {
            to_client.status(&status);
            feed.status(workspace.id, status.for_panel().to_string());
            workspace.status = Some(status);
        }
    }
}

impl Drop for GlobalState {
    /// Stops everything that runs when the session is over.
    fn drop(&mut self) {
        self.close();
    }
}
