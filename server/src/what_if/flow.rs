//! From a measurement to what was found in it and what optimizations would bring, and what ends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::whatif::facts::Probes;
use ridgeline_analysis::whatif::study::{Study, Subject};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Found, study, subject};
use crate::batch::Sources;
use crate::consent::{Cause, Kind};
use crate::documents::real_path;
use crate::event::Event;
use crate::findings::Kept;
use crate::pool::Pool;
use crate::profiler::{Profiled, Profiler};
use crate::state::{GlobalState, Workspace};

/// Why there is nothing of what is not wanted any more.
const STOPPED: &str = "it was stopped";
/// What the status says of the operators that run for it.
const PROBING: &str = "timing single operators";

impl GlobalState {
    /// Works out what optimizations would bring to the newest measurement of every workspace, where that
    /// is not known yet and nothing runs; then what was found in those of its other projects. Single
    /// operators run for the workspace that was `measured` just now.
    pub fn study_what_ifs(&mut self, measured: Option<&Path>) {
        if self.queue.running().is_some() {
            return;
        }
        let roots: Vec<PathBuf> = self.workspaces.iter().map(|one| one.root.clone()).collect();
        for root in roots {
            self.study_workspace(&root, measured == Some(root.as_path()));
        }
    }

    fn study_workspace(&mut self, root: &Path, is_fresh: bool) {
        let memory_limit = self.settings.batch_memory_limit;
        let (pool, events) = (self.slow_pool.clone(), self.events.clone());
        let (machine, feed) = (self.machine.clone(), self.feed.clone());
        let profiler = self.profiler.clone();
        let about = self.workspace(root).and_then(|workspace| workspace.batch.about.clone());
        let request = self.request(root, about.as_deref());
        let Some(workspace) = self.workspace(root) else { return };
        let Some((generation, measured)) = workspace.to_look_at().cloned() else { return };
        let is_newest = workspace.measured.first().is_some_and(|(newest, _)| *newest == generation);
        workspace.what_if.stop();
        let probing = (is_newest && is_fresh)
            .then(|| self.gate.permit(root, Cause::Unasked, Kind::Background, PROBING))
            .flatten();
        let Some(workspace) = self.workspace(root) else { return };
        let cancel = CancellationToken::new();
        workspace.what_if.running = Some((generation, cancel.clone()));
        workspace.what_if.probing =
            probing.as_ref().map(|it| it.token().clone()).unwrap_or_default();
        feed.changed(workspace.number);
        let root = root.to_owned();
        let project = real_path(&measured.root);
        let open: Vec<_> = self
            .open_texts(&project)
            .into_iter()
            .map(|(path, open)| (path, open.index.shared_text()))
            .collect();
        let look = Look { profiler: profiler.clone(), project, open };
        tokio::spawn(async move {
            let work = async {
                // It would disturb what is being timed.
                let lock = async { Ok((machine.lock().await, probing)) };
                let (alone, probing) = unless(&cancel, lock).await?;
                let of = measured.clone();
                let work = on_pool(&pool, move || subject(&of).map(Arc::new));
                let subject = unless(&cancel, work).await.flatten();
                let recording = measured.recording.clone();
                // What was found comes first: a person waits for it, and it takes no new probes.
                let looked = match &subject {
                    Ok(subject) => {
                        let (look, subject) = (look.clone(), subject.clone());
                        let (profiler, recording) = (profiler.clone(), recording.clone());
                        let work = move || {
                            let known = profiler.known_probes(&subject, recording.as_deref());
                            (look.at(&subject, &known), known)
                        };
                        // A panic in there has been logged by the hook.
                        unless(&cancel, on_pool(&pool, work)).await.ok()
                    }
                    Err(_) => None,
                };
                // It is looked at another time.
                if cancel.is_cancelled() {
                    return Err(STOPPED.to_owned());
                }
                let (kept, known) = looked.unzip();
                // Where the event loop is over, nobody wants it.
                let _ = events.send(Event::FindingsFound(root.clone(), generation, kept)).await;
                if !is_newest {
                    return Ok(None);
                }
                let subject = subject?;
                let known = known.unwrap_or_default();
                let may_run = probing.is_some();
                let probes = match probing {
                    // Its permit ends it, and it is waited for: left alone, the agent would go on with it
                    // and refuse the run that comes next.
                    Some(permit) => {
                        let work =
                            profiler.probes(request, subject.clone(), recording, permit.clone());
                        permit.bound(work).await.unwrap_or_default()
                    }
                    None => known.clone(),
                };
                // Where they were stopped, what was known before still holds.
                let probes = if probes == Probes::default() { known.clone() } else { probes };
                let probes = Arc::new(probes);
                if may_run && *probes != known && !cancel.is_cancelled() {
                    let (subject, probes) = (subject.clone(), probes.clone());
                    let work = move || look.at(&subject, &probes);
                    if let Ok(kept) = unless(&cancel, on_pool(&pool, work)).await {
                        let found = Event::FindingsFound(root.clone(), generation, Some(kept));
                        let _ = events.send(found).await;
                    }
                }
                let stop = cancel.clone();
                let stop = move || stop.is_cancelled();
                let work = move || study(&subject, &probes, memory_limit, &stop);
                let found = unless(&cancel, on_pool(&pool, work)).await;
                drop(alone);
                Ok(Some(Arc::new(found??)))
            };
            let found = work.await;
            if cancel.is_cancelled() {
                return;
            }
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::WhatIfsFound(root, generation, found.transpose())).await;
        });
    }

    /// A measurement was looked at; `found` is what optimizations would bring to it, where that is wanted.
    pub fn what_ifs_found(&mut self, root: &Path, generation: u64, found: Option<Found>) {
        let feed = self.feed.clone();
        let Some(workspace) = self.workspace(root) else { return };
        let running = &mut workspace.what_if.running;
        if running.take_if(|(of, cancel)| *of == generation && !cancel.is_cancelled()).is_none() {
            return;
        }
        if let Some(found) = found {
            workspace.what_if.newest = Some((generation, found));
            feed.changed(workspace.number);
        }
        self.study_what_ifs(None);
    }

    /// A person at the keyboard comes first.
    pub fn stop_probing(&self) {
        self.workspaces.iter().for_each(|workspace| workspace.what_if.stop_probing());
    }

    /// A run comes first.
    pub fn stop_what_ifs(&mut self) {
        for workspace in &mut self.workspaces {
            workspace.what_if.stop();
        }
    }

    /// What optimizations would bring to a measurement, where that is known.
    pub fn what_ifs_of(&self, generation: u64) -> Option<Arc<Study>> {
        let found = self.workspaces.iter().find_map(|one| one.what_if.of(generation))?;
        found.as_ref().ok().cloned()
    }
}

impl Workspace {
    /// The measurement that is to be looked at next: the newest one, then one of another project for
    /// what was found in it, where a run came first. They are looked at one after the other.
    fn to_look_at(&self) -> Option<&(u64, Arc<Profiled>)> {
        let (newest, older) = self.measured.split_first()?;
        if !self.what_if.is_about(newest.0) {
            return Some(newest);
        }
        let mut missed = older.iter().filter(|(of, _)| !self.findings.is_looked_at(*of));
        missed.next().filter(|_| self.what_if.running.is_none())
    }
}

/// What findings are looked for with.
#[derive(Clone)]
struct Look {
    profiler: Arc<dyn Profiler>,
    project: PathBuf,
    open: Vec<(PathBuf, Arc<str>)>,
}

impl Look {
    fn at(&self, subject: &Subject, probes: &Probes) -> Kept {
        let sources = Sources::new(&self.project, self.open.clone());
        let found = self.profiler.findings(subject, probes, &sources, &self.project);
        Kept::new(&self.project, found, Some(subject.profile.clone()), &sources)
    }
}

/// What is worked out, unless it is not wanted any more.
async fn unless<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    tokio::select! {
        found = work => found,
        () = cancel.cancelled() => Err(STOPPED.to_owned()),
    }
}

/// Works something out where it disturbs nobody; it is not begun where nobody waits for it any more.
async fn on_pool<T: Send + 'static>(
    pool: &Pool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (reply, answer) = oneshot::channel();
    pool.answer(reply, move || Ok(work()));
    match answer.await {
        Ok(worked) => worked.map_err(|error| error.to_string()),
        Err(_) => Err("it ended early".to_owned()),
    }
}
