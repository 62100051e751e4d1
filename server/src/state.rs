//! What the server knows. The event loop alone has it; everybody else gets snapshots.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::consent::Gate;
use crate::disk::Disk;
use crate::documents::{Document, DocumentId, Documents};
use crate::event::{Event, WorkspaceEvent};
use crate::lsp::client::{Importance, ToClient};
use crate::lsp::position::Encoding;
use crate::measured_rates::DeviceMeasurement;
use crate::panel::Panel;
use crate::panel::answer::Timelines;
use crate::panel::feed::Feed;
use crate::pool::Pool;
use crate::profiler::{Profiled, Profiler};
use crate::refresh::{Refresh, Refreshable};
use crate::scheduler::{JobId, Reason, Scheduler, Slot, WorkspaceId};
use crate::settings::Settings;
use crate::stopping::Stopping;
use crate::store::Store;
use crate::text_mark::TextMark;
use crate::trust::Trust;
use crate::view::{Cache, Measured, View};
use crate::watcher::Watcher;
use crate::workspace::Workspaces;

/// Projects of one workspace whose profiles are kept.
const PROFILE_LIMIT: usize = 8;

/// Who the client is and what it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    /// As it calls itself.
    pub name: String,
    /// The folders that it has open.
    pub roots: Vec<PathBuf>,
    /// It vouches for them.
    pub vouched: bool,
    /// `initializationOptions`.
    pub options: Value,
    /// What positions count.
    pub encoding: Encoding,
    /// It takes `workspace/inlayHint/refresh`.
    pub refreshes_hints: bool,
    /// It takes `workspace/codeLens/refresh`.
    pub refreshes_lenses: bool,
    /// It takes `workspace/diagnostic/refresh`.
    pub refreshes_diagnostics: bool,
    /// It shows code lenses.
    pub shows_lenses: bool,
    /// It shows diagnostics that it did not ask for.
    pub takes_diagnostics: bool,
    /// It takes no diagnostics but those that it asks for.
    pub pulls_diagnostics: bool,
    /// It shows related information.
    pub related_information: bool,
    /// It shows markdown in hovers.
    pub takes_markdown: bool,
    /// It says that it shows plain text in hovers.
    pub takes_plain_text: bool,
    /// It answers `workspace/configuration`.
    pub configuration: bool,
    /// It shows progress that the server begins.
    pub shows_progress: bool,
    /// It takes `window/showDocument`.
    pub shows_documents: bool,
    /// It takes `workspace/applyEdit`.
    pub applies_edits: bool,
    /// It takes edits that name the version of their text.
    pub versioned_edits: bool,
    /// It takes `ridgeline/openPanel`.
    pub shows_panel: bool,
    /// It takes `ridgeline/highlight`.
    pub highlights: bool,
    /// It knows the state `background`.
    pub knows_background: bool,
    /// It shows diagnostics in hovers, those that are more than hints.
    pub hovers_diagnostics: bool,
    /// It runs `command:` links in hovers.
    pub runs_links: bool,
}

impl Client {
    /// What it can be told to refresh.
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

/// An edition of a document that is on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    /// Which.
    pub edition: u64,
    /// The disk told it, and the client has not yet.
    pub seen_first: bool,
    /// What it was; nothing where the text was left alone.
    text: Option<TextMark>,
}

impl Saved {
    /// A document as it is now.
    pub(crate) fn of(document: &Document, seen_first: bool) -> Saved {
        let text = document.index.as_ref().map(|index| TextMark::of(index.text()));
        Saved { edition: document.edition(), seen_first, text }
    }

    /// What the text is recognized by.
    pub(crate) fn mark(&self) -> Option<TextMark> {
        self.text
    }

    /// Both are the same text.
    pub(crate) fn is_same(&self, other: &Saved) -> bool {
        self.text.is_some() && self.text == other.text
    }

    /// A file holds it.
    pub(crate) fn is_on_disk(&self, file: &Path) -> bool {
        self.text.is_some_and(|text| text.is_on_disk(file))
    }
}

/// See the module.
pub(crate) struct GlobalState {
    /// The way back to the event loop, for those who do what takes time.
    pub events: mpsc::Sender<Event>,
    /// The client, to talk to.
    pub to_client: ToClient,
    /// Who the client is.
    pub client: Arc<Client>,
    /// Who runs training loops.
    pub profiler: Arc<dyn Profiler>,
    /// Where things are kept; nothing where the user has no folders.
    pub store: Option<Store>,
    /// What may run, and everything that does.
    pub gate: Gate,
    /// Commands that stop something and wait for its end.
    pub stopping: Stopping,
    /// Answers questions about paths in time.
    pub disk: Disk,
    /// Open texts.
    pub documents: Documents,
    /// The document that was touched last, which commands without an argument mean.
    pub last_touched: Option<PathBuf>,
    /// Folders.
    pub workspaces: Workspaces,
    /// Which work runs, and when.
    pub scheduler: Scheduler,
    /// The job that is being started in this turn.
    pub starting: Option<JobId>,
    /// The person knows that something went wrong.
    pub has_told_defect: bool,
    /// What an editor set.
    pub settings: Arc<Settings>,
    /// Where requests are worked out.
    pub pool: Pool,
    /// Where what takes seconds is worked out, so that requests do not wait for it.
    pub slow_pool: Pool,
    /// Where what nobody waits for is worked out.
    pub background_pool: Pool,
    /// What is out of date at the client.
    pub refresh: Refresh,
    /// What was worked out about documents.
    pub cache: Arc<Cache>,
    /// Changes on the disk.
    pub watcher: Option<Watcher>,
    /// The last number given to a profile or failure.
    pub last_number: u64,
    /// The page that shows it all, from the first time on that it is opened.
    pub panel: Option<Panel>,
    /// What it was told of the iterations' course.
    pub timelines: Timelines,
    /// What is new for it.
    pub feed: Feed,
    /// Counts what the panel had marked, so that an older mark does not follow a newer one.
    pub marks: Arc<AtomicU64>,
    /// Files that changed and were not looked at yet.
    pub changed: BTreeSet<PathBuf>,
    /// A worker looks at files that changed.
    pub is_looking_at_changes: bool,
    /// What is known to be on the disk of each document.
    pub saved: HashMap<DocumentId, Saved>,
    /// Measuring this machine's GPU.
    pub measuring: DeviceMeasurement,
}

impl GlobalState {
    /// A server that knows nothing yet.
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
            stopping: Stopping::default(),
            store,
            disk: Disk::default(),
            documents: Documents::default(),
            last_touched: None,
            workspaces: Workspaces::default(),
            scheduler: Scheduler::default(),
            starting: None,
            has_told_defect: false,
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
            is_looking_at_changes: false,
            saved: HashMap::new(),
            measuring: DeviceMeasurement::default(),
        }
    }

    /// A number that was not used before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A document at this moment with everything that is known of it.
    pub(crate) fn view(&self, id: &DocumentId) -> Option<View> {
        let document = self.documents.snapshot(id)?;
        let real = self.documents.get(id).and_then(|document| document.real.as_deref());
        let measured = real.and_then(|path| self.measured(path));
        let (client, settings) = (self.client.clone(), self.settings.clone());
        let generation = measured.as_ref().map(|measured| measured.generation);
        let what_ifs = generation.and_then(|generation| self.what_ifs_of(generation));
        let mut view = View::new(document, client, settings, measured, &self.cache);
        view.what_ifs = what_ifs;
        view.file = real.map(Path::to_owned);
        view.findings = real.map(|file| self.findings_around(file)).unwrap_or_default();
        Some(view)
    }

    /// A run of a document's workspace waits for the person to allow it.
    pub(crate) fn consent_is_wanted(&self, id: &DocumentId) -> bool {
        let real = self.documents.get(id).and_then(|document| document.real.as_deref());
        let id = real.and_then(|path| self.workspaces.around(path));
        id.is_some_and(|id| self.workspaces[id].waiting.is_some())
    }

    /// The newest profile that has a file. A workspace within a workspace may have measured it, too.
    fn measured(&self, path: &Path) -> Option<Measured> {
        // An estimate is newer than the measurement that it was made from.
        let all =
            self.workspaces.iter().flat_map(|one| one.measured.iter().chain(&one.live.estimates));
        all.filter_map(|(generation, profiled)| {
            let file = profiled.file(path)?;
            Some(Measured { profiled: profiled.clone(), file, generation: *generation })
        })
        .max_by_key(|measured| measured.generation)
    }

    /// Looks after the folder of a file that is in none of the client's folders. It is not watched:
    /// it may be the person's home.
    pub(crate) fn add_folder_of(&mut self, file: &Path) -> Option<WorkspaceId> {
        let folder = file.parent().filter(|folder| folder.parent().is_some())?;
        if !self.disk.is_file(file) {
            return None;
        }
        self.add_workspace(folder, false)
    }

    /// Looks after a folder from now on, where it is one.
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
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::Workspace(id, WorkspaceEvent::EarlierFound(earlier))).await;
        });
        Some(id)
    }

    /// Lets go of a folder: its run is stopped, and what it showed goes.
    pub(crate) fn remove_workspace(&mut self, root: &Path) {
        // It was looked after under its path without links, and may be gone from the disk.
        let root = self.disk.real_path(root);
        let Some(id) = self.workspaces.at(&root) else { return };
        self.end_work(id);
        self.gate.remove(id);
        tokio::spawn(self.profiler.forget(root.clone()));
        self.take_diagnostics_back(id);
        self.feed.remove(id);
        self.scheduler.forget(id);
        self.workspaces.remove(id);
        if let Some(watcher) = &self.watcher {
            watcher.unwatch(&root);
        }
        self.mark_stale();
    }

    /// Takes a profile in, in place of an older one of the same project.
    pub(crate) fn take_in(&mut self, id: WorkspaceId, profiled: Profiled) {
        let generation = self.next_number();
        let memory_limit = self.settings.batch_memory_limit;
        let workspace = &mut self.workspaces[id];
        workspace.taken_in = profiled.recording.clone();
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

    /// Asks what was measured beside this session, in a terminal or by another editor. A run of ours
    /// tells by itself what it measured.
    pub(crate) fn look_for_newer(&self) {
        let running = self.scheduler.run().map(|(job, _)| job.owner);
        for workspace in self.workspaces.iter().filter(|one| Some(one.id) != running) {
            let known = workspace.taken_in.clone();
            let (id, events) = (workspace.id, self.events.clone());
            let newer = self.profiler.newest(workspace.root.clone(), known);
            tokio::spawn(async move {
                if let Some(newer) = newer.await {
                    // Where the event loop is over, nobody wants it.
                    let _ =
                        events.send(Event::Workspace(id, WorkspaceEvent::NewerFound(newer))).await;
                }
            });
        }
    }

    /// Takes a profile in that was measured beside this session, unless a run of ours was later.
    pub(crate) fn take_newer_in(&mut self, id: WorkspaceId, newer: Profiled) {
        let workspace = &mut self.workspaces[id];
        let newest = workspace.measured.first();
        if newest.is_none_or(|(_, known)| known.when_unix_ms < newer.when_unix_ms) {
            self.take_in(id, newer);
        }
    }

    /// Hints and lenses at the client are out of date.
    pub(crate) fn mark_stale(&self) {
        self.refresh.mark(Refreshable::Hints);
        self.refresh.mark(Refreshable::Lenses);
    }

    /// The client said goodbye, or has gone: nothing runs on, and nothing begins any more.
    pub(crate) fn close(&mut self) {
        self.gate.close();
        self.scheduler.close();
    }

    /// A job has ended, or does something else.
    pub(crate) fn work_changed(&mut self) {
        self.workspaces.ids().into_iter().for_each(|id| self.send_status(id));
    }

    /// Takes a failure back that was shown.
    pub(crate) fn forget_failure(&mut self, id: WorkspaceId) {
        self.workspaces[id].failure = None;
        self.show_diagnostics(id);
    }

    /// Says something about a workspace that is no answer to a command: once, not on every save.
    pub(crate) fn say_once(
        &mut self,
        id: WorkspaceId,
        importance: Importance,
        message: &str,
        asked: bool,
    ) {
        let to_client = self.to_client.clone();
        let workspace = &mut self.workspaces[id];
        if !asked && workspace.said.as_deref() == Some(message) {
            return;
        }
        workspace.said = Some(message.to_owned());
        to_client.show_message(importance, message);
    }

    /// Sends a workspace's status where it has changed.
    pub(crate) fn send_status(&mut self, id: WorkspaceId) {
        let reason = self.scheduler.run_of(id).map(Reason::to_string);
        let (to_client, feed) = (self.to_client.clone(), self.feed.clone());
        let waits = self.scheduler.waits_for(id);
        let waits = waits.map(|needed| format!("waiting: {}", needed.why()));
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
    /// Nothing runs on when the session is over.
    fn drop(&mut self) {
        self.close();
    }
}
