//! What the server knows. The event loop alone has it; everybody else gets snapshots.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use ridgeline_analysis::present::headline::headline as headline_text;
use ridgeline_analysis::profile::Provenance;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::batch::Batch;
use crate::consent::Gate;
use crate::documents::{Document, DocumentId, Documents, real_path};
use crate::event::Event;
use crate::findings::Findings;
use crate::live::Live;
use crate::lsp::client::{Importance, ToClient};
use crate::lsp::ext::{Headline, RunStatus, State, StatusParams};
use crate::lsp::position::Encoding;
use crate::lsp::to_proto::uri_text;
use crate::measured_rates::DeviceMeasurement;
use crate::panel::Panel;
use crate::panel::answer::Timelines;
use crate::panel::feed::Feed;
use crate::pool::Pool;
use crate::profiler::{Profiled, Profiler, ProgressEvent};
use crate::refresh::{Refresh, Refreshable};
use crate::requests::diagnostic::{Failure, Placed};
use crate::run_queue::{Reason, RunQueue};
use crate::settings::Settings;
use crate::stopping::Stopping;
use crate::store::Store;
use crate::text_mark::TextMark;
use crate::trust::Trust;
use crate::view::{Cache, Measured, View};
use crate::watcher::Watcher;
use crate::what_if::WhatIf;

/// Folders that are looked after at once.
const WORKSPACE_LIMIT: usize = 64;

/// Projects of one workspace whose profiles are kept.
const PROFILE_LIMIT: usize = 8;

/// Who the client is and what it takes.
#[derive(Clone, Debug, Default)]
pub struct Client {
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
}

impl Client {
    /// What it can be told to refresh.
    pub fn refreshes(&self) -> Vec<Refreshable> {
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
pub struct Saved {
    /// Which.
    pub edition: u64,
    /// The disk told it, and the client has not yet.
    pub seen_first: bool,
    /// What it was; nothing where the text was left alone.
    text: Option<TextMark>,
}

impl Saved {
    /// A document as it is now.
    pub fn of(document: &Document, seen_first: bool) -> Saved {
        let text = document.index.as_ref().map(|index| TextMark::of(index.text()));
        Saved { edition: document.edition(), seen_first, text }
    }

    /// Both are the same text.
    pub fn is_same(&self, other: &Saved) -> bool {
        self.text.is_some() && self.text == other.text
    }

    /// A file holds it.
    pub fn is_on_disk(&self, file: &Path) -> bool {
        self.text.is_some_and(|text| text.is_on_disk(file))
    }
}

/// A folder with what was measured in it.
#[derive(Debug, Default)]
pub struct Workspace {
    /// What the panel calls it. Numbers are not used twice.
    pub number: u32,
    /// Absolute, without links.
    pub root: PathBuf,
    /// Its profiles, one for each project, newest first.
    pub measured: Vec<(u64, Arc<Profiled>)>,
    /// The recording that was taken in last; one that the person cleared does not come back.
    pub taken_in: Option<PathBuf>,
    /// Why the last run failed, where it did at a line.
    pub failure: Option<Arc<Failure>>,
    /// The diagnostics that the client shows.
    pub published: Vec<Placed>,
    /// The number of the placement of diagnostics that was begun last.
    pub placing: u64,
    /// A placement is to begin soon.
    pub placing_soon: bool,
    /// A run that waits for the person to allow it.
    pub waiting: Option<Reason>,
    /// The question whether it may run is on the screen.
    pub trust_asked: bool,
    /// The person closed that question without an answer: a save does not ask again.
    pub dismissed: bool,
    /// The question which script is meant is on the screen.
    pub script_asked: bool,
    /// The script that the person chose in this session.
    pub script: Option<PathBuf>,
    /// Its zygote is being made ready.
    pub preparing: bool,
    /// It was made ready, or that was tried.
    pub prepared: bool,
    /// How far the run is that goes on, and when that was told.
    pub progress: Option<(ProgressEvent, Instant)>,
    /// Why the last run did not measure anything.
    pub problem: Option<String>,
    /// The last message about it, which is not said again on every save.
    pub said: Option<String>,
    /// What the program printed last.
    pub log: Option<PathBuf>,
    /// The last status that was sent.
    pub status: Option<StatusParams>,
    /// Estimates while somebody types.
    pub live: Live,
    /// What is known of other batch sizes.
    pub batch: Batch,
    /// What optimizations would bring.
    pub what_if: WhatIf,
    /// What was found to be slow or wasteful.
    pub findings: Findings,
}

/// See the module.
pub struct GlobalState {
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
    /// Open texts.
    pub documents: Documents,
    /// The document that was touched last, which commands without an argument mean.
    pub last_touched: Option<PathBuf>,
    /// Folders.
    pub workspaces: Vec<Workspace>,
    /// Which run comes next.
    pub queue: RunQueue,
    /// What an editor set.
    pub settings: Arc<Settings>,
    /// Where requests are worked out.
    pub pool: Pool,
    /// Where what takes seconds is worked out, so that requests do not wait for it.
    pub slow_pool: Pool,
    /// What is out of date at the client.
    pub refresh: Refresh,
    /// What was worked out about documents.
    pub cache: Arc<Cache>,
    /// Changes on the disk.
    pub watcher: Option<Watcher>,
    /// The last number given to a profile or failure.
    pub last_number: u64,
    /// The number of the next workspace.
    pub next_workspace: u32,
    /// The page that shows it all, from the first time on that it is opened.
    pub panel: Option<Panel>,
    /// What it was told of the iterations' course.
    pub timelines: Timelines,
    /// What is new for it.
    pub feed: Feed,
    /// Counts what the panel had marked, so that an older mark does not follow a newer one.
    pub marks: Arc<AtomicU64>,
    /// What is known to be on the disk of each document.
    pub saved: HashMap<DocumentId, Saved>,
    /// Measuring this machine's GPU.
    pub measuring: DeviceMeasurement,
    /// Held by what runs code of a workspace: two at once would make each other slow, and what is
    /// measured wrong.
    pub machine: Arc<tokio::sync::Mutex<()>>,
}

impl GlobalState {
    /// A server that knows nothing yet.
    pub fn new(
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
            documents: Documents::default(),
            last_touched: None,
            workspaces: Vec::new(),
            queue: RunQueue::default(),
            settings: Arc::default(),
            pool: Pool::default(),
            slow_pool: Pool::default(),
            refresh: Refresh::default(),
            cache: Arc::default(),
            watcher: None,
            last_number: 0,
            next_workspace: 0,
            panel: None,
            timelines: Timelines::default(),
            feed: Feed::default(),
            marks: Arc::default(),
            saved: HashMap::new(),
            measuring: DeviceMeasurement::default(),
            machine: Arc::default(),
        }
    }

    /// A number that was not used before.
    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A document at this moment with everything that is known of it.
    pub fn view(&self, id: &DocumentId) -> Option<View> {
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
    pub fn consent_is_wanted(&self, id: &DocumentId) -> bool {
        let real = self.documents.get(id).and_then(|document| document.real.as_deref());
        let root = real.and_then(|path| self.root_of(path));
        let workspace = self.workspaces.iter().find(|one| Some(&one.root) == root.as_ref());
        workspace.is_some_and(|workspace| workspace.waiting.is_some())
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

    /// The workspace at `root`.
    pub fn workspace(&mut self, root: &Path) -> Option<&mut Workspace> {
        self.workspaces.iter_mut().find(|workspace| workspace.root == root)
    }

    /// The root of the workspace that a file belongs to: the innermost one around it.
    pub fn root_of(&self, path: &Path) -> Option<PathBuf> {
        let around = self.workspaces.iter().filter(|workspace| path.starts_with(&workspace.root));
        let innermost = around.max_by_key(|workspace| workspace.root.components().count());
        innermost.map(|workspace| workspace.root.clone())
    }

    /// Looks after the folder of a file that is in none of the client's folders. It is not watched:
    /// it may be the person's home.
    pub fn add_folder_of(&mut self, file: &Path) -> Option<PathBuf> {
        let folder = file.parent().filter(|folder| folder.parent().is_some() && file.is_file())?;
        self.add_workspace(folder, false)
    }

    /// Looks after a folder from now on, where it is one.
    pub fn add_workspace(&mut self, root: &Path, watched: bool) -> Option<PathBuf> {
        let root = real_path(root);
        if self.workspaces.iter().any(|workspace| workspace.root == root) {
            return Some(root);
        }
        if !root.is_dir() || self.workspaces.len() >= WORKSPACE_LIMIT {
            tracing::info!("{} is not looked after", root.display());
            return None;
        }
        let number = self.next_workspace;
        self.next_workspace += 1;
        self.workspaces.push(Workspace { number, root: root.clone(), ..Workspace::default() });
        self.gate.add(&root);
        self.feed.changed(number);
        if let Some(watcher) = self.watcher.as_ref().filter(|_| watched) {
            watcher.watch(&root);
        }
        let (newest, events, found) =
            (self.profiler.newest(root.clone(), None), self.events.clone(), root.clone());
        tokio::spawn(async move {
            let earlier = newest.await;
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::EarlierFound(found, earlier)).await;
        });
        Some(root)
    }

    /// Lets go of a folder: its run is stopped, and what it showed goes.
    pub fn remove_workspace(&mut self, root: &Path) {
        let root = real_path(root);
        self.end_work(&root);
        self.gate.remove(&root);
        tokio::spawn(self.profiler.forget(root.clone()));
        self.take_diagnostics_back(&root);
        if let Some(workspace) = self.workspace(&root) {
            let number = workspace.number;
            self.feed.remove(number);
        }
        self.workspaces.retain(|workspace| workspace.root != root);
        if let Some(watcher) = &self.watcher {
            watcher.unwatch(&root);
        }
        self.mark_stale();
    }

    /// Takes a profile in, in place of an older one of the same project.
    pub fn take_in(&mut self, root: &Path, profiled: Profiled) {
        let generation = self.next_number();
        let Some(workspace) = self.workspace(root) else { return };
        workspace.taken_in = profiled.recording.clone();
        workspace.measured.retain(|(_, older)| older.root != profiled.root);
        workspace.live.estimates.retain(|(_, older)| older.root != profiled.root);
        workspace.live.cleared = false;
        workspace.measured.insert(0, (generation, Arc::new(profiled)));
        workspace.measured.truncate(PROFILE_LIMIT);
        let number = workspace.number;
        self.feed.changed(number);
        self.mark_stale();
        if self.settings.remarks || self.has_findings(root) {
            self.show_diagnostics(root);
        }
    }

    /// Asks what was measured beside this session, in a terminal or by another editor. A run of ours
    /// tells by itself what it measured.
    pub fn look_for_newer(&self) {
        let running = self.queue.running().map(|running| running.root.clone());
        for workspace in self.workspaces.iter().filter(|one| Some(&one.root) != running.as_ref()) {
            let known = workspace.taken_in.clone();
            let (root, events) = (workspace.root.clone(), self.events.clone());
            let newer = self.profiler.newest(root.clone(), known);
            tokio::spawn(async move {
                if let Some(newer) = newer.await {
                    // Where the event loop is over, nobody wants it.
                    let _ = events.send(Event::NewerFound(root, newer)).await;
                }
            });
        }
    }

    /// Takes a profile in that was measured beside this session, unless a run of ours was later.
    pub fn take_newer_in(&mut self, root: &Path, newer: Profiled) {
        let Some(workspace) = self.workspace(root) else { return };
        let newest = workspace.measured.first();
        if newest.is_none_or(|(_, known)| known.when_unix_ms < newer.when_unix_ms) {
            self.take_in(root, newer);
        }
    }

    /// Hints and lenses at the client are out of date.
    pub fn mark_stale(&self) {
        self.refresh.mark(Refreshable::Hints);
        self.refresh.mark(Refreshable::Lenses);
    }

    /// The client said goodbye, or has gone: nothing runs on, and nothing begins any more.
    pub fn close(&mut self) {
        self.gate.close();
        self.queue.stop_all();
        self.forget_measuring();
    }

    /// A job has ended, or does something else.
    pub fn work_changed(&mut self) {
        let roots: Vec<PathBuf> = self.workspaces.iter().map(|one| one.root.clone()).collect();
        roots.iter().for_each(|root| self.send_status(root));
    }

    /// Takes a failure back that was shown.
    pub fn forget_failure(&mut self, root: &Path) {
        let Some(workspace) = self.workspace(root) else { return };
        workspace.failure = None;
        self.show_diagnostics(root);
    }

    /// Says something about a workspace that is no answer to a command: once, not on every save.
    pub fn say_once(&mut self, root: &Path, importance: Importance, message: &str, asked: bool) {
        let to_client = self.to_client.clone();
        let Some(workspace) = self.workspace(root) else { return };
        if !asked && workspace.said.as_deref() == Some(message) {
            return;
        }
        workspace.said = Some(message.to_owned());
        to_client.show_message(importance, message);
    }

    /// Sends a workspace's status where it has changed.
    pub fn send_status(&mut self, root: &Path) {
        let running = self.queue.running().filter(|running| running.root == root);
        let reason = running.map(|running| running.reason.to_string());
        let (to_client, feed) = (self.to_client.clone(), self.feed.clone());
        let busy = self.gate.in_background(root);
        let is_paused = self.gate.is_paused(root);
        let knows_background = self.client.knows_background;
        let Some(workspace) = self.workspace(root) else { return };
        let status = workspace.status_now(reason, busy, is_paused);
        let status = if knows_background { status } else { status.without_background() };
        if workspace.status.as_ref() != Some(&status) {
            to_client.status(&status);
            feed.status(workspace.number, status.for_panel().to_string());
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

impl Workspace {
    /// What is shown: the newest measurement, or the estimate of a text that is newer.
    pub fn newest(&self) -> Option<&(u64, Arc<Profiled>)> {
        let both = self.measured.first().into_iter().chain(self.live.estimates.first());
        both.max_by_key(|(generation, _)| *generation)
    }

    fn status_now(
        &self,
        running: Option<String>,
        busy: Option<String>,
        is_paused: bool,
    ) -> StatusParams {
        let (state, message) = if running.is_some() {
            (State::Running, None)
        } else if self.preparing {
            (State::Preparing, None)
        } else if self.waiting.is_some() {
            (State::WaitingForTrust, Some("a run waits for your consent".to_owned()))
        } else if let Some(problem) = &self.problem {
            (State::Failed, Some(problem.clone()))
        } else if busy.is_some() {
            (State::Background, busy)
        } else if is_paused {
            (State::Paused, None)
        } else {
            (State::Idle, self.live.problem.clone())
        };
        StatusParams {
            root: uri_text(&self.root),
            state,
            message,
            run: running.map(|reason| RunStatus {
                reason,
                stage: self.progress.as_ref().map(|(progress, _)| progress.stage.clone()),
                share: self.progress.as_ref().and_then(|(progress, _)| progress.share),
            }),
            headline: self.newest().map(|(_, profiled)| headline(profiled)),
        }
    }
}

fn headline(profiled: &Profiled) -> Headline {
    let profile = &profiled.profile;
    Headline {
        text: headline_text(profile, Provenance::Measured),
        time_ms: profile.iteration.time_ns / 1e6,
        samples_per_second: profile.iteration.samples_per_second(),
        peak_bytes: profile.memory.peak_bytes,
        capacity_bytes: profile.memory.capacity_bytes,
        device: profile.device.display_name().into_owned(),
        is_estimate: profile.estimate.is_some(),
    }
}
