//! `ridgeline panel [PATH]`: serves the panel without an editor until interrupted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::PanelArgs;
use super::exit::Failure;
use super::terminal::Terminal;
use super::{profile, run};
use crate::findings::{self, FindingSet};
use crate::panel::answer::{self, DocumentInput, FindingsState, Timelines, WhatIfsState};
use crate::panel::feed::Feed;
use crate::panel::request::{ActionResult, PanelRequest};
use crate::panel::{POLL_INTERVAL, Panel};
use crate::pipeline;
use crate::pool::{Pool, RequestError};
use crate::profiler::Profiled;
use crate::scheduler::WorkspaceId;
use crate::store::Store;
use crate::what_if::{self, StudyOutcome};

/// The only workspace.
const WORKSPACE: WorkspaceId = WorkspaceId(0);

/// The source of the shown data.
#[derive(Clone, Debug)]
enum Source {
    /// The newest recording of a project, or of the projects in a folder.
    Project(Store, PathBuf),
    /// A recording folder or a trace.
    Recording(PathBuf),
}

/// Runs the subcommand. It reads the results of earlier runs and runs nothing.
pub(super) fn run(args: &PanelArgs, terminal: &Terminal) -> Result<(), Failure> {
    let path = profile::absolute(&args.path)?;
    if !path.exists() {
        let next = "Pass a project folder, a recording folder or a trace";
        return Err(Failure::failed(format!("{} does not exist", path.display()), next));
    }
    let source = if pipeline::is_recording(&path) {
        Source::Recording(path)
    } else {
        let folder = profile::project_of(&path);
        Source::Project(run::open_store()?, folder)
    };
    run::block_on(|cancel| serve(source, terminal, cancel))?
}

async fn serve(
    source: Source,
    terminal: &Terminal,
    cancel: CancellationToken,
) -> Result<(), Failure> {
    let mut shown = PanelState::new(source);
    shown.feed.changed(WORKSPACE);
    shown.look().await.map_err(|why| Failure::failed(why, ""))?;
    let (questions, mut requests) = mpsc::channel(16);
    let panel = Panel::start(questions, shown.feed.clone()).map_err(|error| {
        Failure::failed(format!("could not start the panel server: {error}"), "")
    })?;
    if shown.measured.is_none() {
        terminal.note("No measurements yet; the panel shows them as soon as they exist.");
    }
    terminal.note(&format!("Panel of {} (stop with Ctrl-C):", shown.project()));
    terminal.print(&format!("{}\n", panel.uri(WORKSPACE)))?;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            Some(question) = requests.recv() => shown.answer(question),
            _ = ticks.tick() => {
                // If a recording cannot be read, the previous one stays.
                if let Err(why) = shown.look().await {
                    terminal.note(&format!("note: {why}"));
                }
            }
        }
    }
}

/// The state of the panel.
struct PanelState {
    source: Source,
    /// The time of the newest recording of any project.
    seen: Option<SystemTime>,
    measured: Option<(u64, Arc<Profiled>)>,
    studied: Arc<OnceLock<Studied>>,
    feed: Feed,
    pool: Pool,
    timelines: Timelines,
}

impl PanelState {
    fn new(source: Source) -> PanelState {
        PanelState {
            source,
            seen: None,
            measured: None,
            studied: Arc::default(),
            feed: Feed::default(),
            pool: Pool::default(),
            timelines: Timelines::default(),
        }
    }

    fn project(&self) -> String {
        let root = match (&self.measured, &self.source) {
            (Some((_, profiled)), _) => &profiled.root,
            (None, Source::Project(_, path) | Source::Recording(path)) => path,
        };
        root.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Loads a newer measurement, if there is one.
    async fn look(&mut self) -> Result<(), String> {
        let known = self.measured.as_ref().and_then(|(_, profiled)| profiled.recording.clone());
        let (source, seen) = (self.source.clone(), self.seen);
        let looked = tokio::task::spawn_blocking(move || look(&source, seen, known.as_deref()));
        let (seen, found) = looked.await.map_err(|error| error.to_string())?;
        self.seen = seen;
        if let Some(profiled) = found? {
            let generation = self.measured.as_ref().map_or(0, |(generation, _)| *generation) + 1;
            let profiled = Arc::new(profiled);
            self.measured = Some((generation, profiled.clone()));
            self.feed.changed(WORKSPACE);
            self.study(profiled);
        }
        Ok(())
    }

    /// Computes findings and what-ifs in the background, while the page shows the rest.
    fn study(&mut self, profiled: Arc<Profiled>) {
        let (found, feed) = (Arc::<OnceLock<Studied>>::default(), self.feed.clone());
        self.studied = found.clone();
        let store = match &self.source {
            Source::Project(store, _) => Some(store.clone()),
            Source::Recording(_) => None,
        };
        tokio::task::spawn_blocking(move || {
            found.get_or_init(|| studied(&profiled, store.as_ref()));
            feed.changed(WORKSPACE);
        });
    }

    fn answer(&self, question: PanelRequest) {
        let no_editor = || Ok(ActionResult::failure("No editor is connected."));
        match question {
            // Sending fails if the page was closed.
            PanelRequest::Jump(_, _, reply) | PanelRequest::Highlight(_, _, reply) => {
                let _ = reply.send(no_editor());
            }
            PanelRequest::Command(_, _, reply)
            | PanelRequest::Batch(_, _, _, reply)
            | PanelRequest::Fix(_, _, _, reply)
            | PanelRequest::WhatIf(_, _, _, reply) => {
                let _ = reply.send(no_editor());
            }
            PanelRequest::Document(WORKSPACE, reply) => {
                let facts = self.facts();
                self.pool.answer(reply, move || answer::document(&facts));
            }
            PanelRequest::Timeline(WORKSPACE, generation, reply) => {
                let measured = self.measured.as_ref().filter(|(of, _)| *of == generation);
                let recording = measured.and_then(|(_, profiled)| profiled.recording.clone());
                let timelines = self.timelines.clone();
                self.pool.answer(reply, move || timelines.of(generation, recording.as_deref()));
            }
            PanelRequest::Compare(WORKSPACE, before, after, reply) => {
                let facts = self.facts();
                let root = facts.measured.as_ref().map(|(_, profiled)| profiled.root.clone());
                self.pool.answer(reply, move || {
                    let root = root.unwrap_or_default();
                    answer::compare_runs(facts.store.as_ref(), &root, before, after)
                });
            }
            PanelRequest::Document(_, reply)
            | PanelRequest::Timeline(_, _, reply)
            | PanelRequest::Compare(_, _, _, reply) => {
                let _ = reply.send(Err(RequestError::Invalid("unknown workspace".into())));
            }
        }
    }

    fn facts(&self) -> DocumentInput {
        DocumentInput {
            measured: self.measured.clone(),
            project: self.project(),
            can_jump: false,
            can_highlight: false,
            status: json!({"state": "idle", "message": null, "run": null}),
            batch: None,
            what_ifs: WhatIfsState {
                found: self.studied.get().map(|studied| studied.what_ifs.clone()),
                ..WhatIfsState::default()
            },
            findings: Some(FindingsState {
                set: self.studied.get().and_then(|studied| studied.findings.clone()),
                is_known: self.studied.get().is_some(),
            }),
            store: match &self.source {
                Source::Project(store, _) => Some(store.clone()),
                Source::Recording(_) => None,
            },
            prices: BTreeMap::new(),
        }
    }
}

/// The results computed from a measurement.
#[derive(Debug)]
struct Studied {
    /// The what-ifs.
    what_ifs: StudyOutcome,
    /// The findings, or `None` if they are not available.
    findings: Option<Arc<FindingSet>>,
}

/// Computes the results without running anything.
fn studied(profiled: &Profiled, store: Option<&Store>) -> Studied {
    let recorded_run = match what_if::recorded_run(profiled) {
        Ok(recorded_run) => recorded_run,
        Err(why) => return Studied { what_ifs: Err(why), findings: None },
    };
    let findings = Some(Arc::new(findings::of_recorded_run(profiled, &recorded_run)));
    Studied { what_ifs: what_if::study_of(profiled, &recorded_run, store), findings }
}

/// A measurement newer than the `known` one, and the time of the newest recording.
fn look(
    source: &Source,
    seen: Option<SystemTime>,
    known: Option<&Path>,
) -> (Option<SystemTime>, Result<Option<Profiled>, String>) {
    match source {
        Source::Recording(path) if known.is_none() => (None, pipeline::open(path).map(Some)),
        Source::Recording(_) => (None, Ok(None)),
        Source::Project(store, folder) => {
            let now = store.last_recorded();
            if now == seen {
                return (seen, Ok(None));
            }
            (now, pipeline::newer(store, folder, known))
        }
    }
}
