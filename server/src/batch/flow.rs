//! The batch-size sweep, from the request to its end.

use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{Batch, BatchView, SweepEffort, SweepEnd, SweepRequest, SweepResults, SweepTrigger};
use crate::documents::DocumentSnapshot;
use crate::event::{Event, WorkspaceEvent};
use crate::jobs::{self, Outcome};
use crate::profiler::{Profiled, ProgressEvent};
use crate::progress;
use crate::scheduler::{Job, JobId, Slot, Work, WorkspaceId};
use crate::state::GlobalState;

impl GlobalState {
    /// Queues a batch-size sweep, unless its result is already known.
    pub(crate) fn sweep_batch_sizes(&mut self, id: WorkspaceId, effort: SweepEffort) {
        if self.settings.explore_batch == SweepTrigger::OnDemand && effort == SweepEffort::Estimates
        {
            return;
        }
        let memory_limit = self.settings.batch_memory_limit;
        let is_busy = self.scheduler.has(id, Slot::BatchSizes);
        let workspace = &mut self.workspaces[id];
        let Some((generation, measured)) = workspace.measured.first().cloned() else { return };
        // The panel requests the sweep each time it is shown.
        let was_requested = workspace.batch.estimated == Some(generation);
        if effort == SweepEffort::Estimates && (was_requested || is_busy) {
            return;
        }
        let key = key_of(&measured, memory_limit);
        if self.scheduler.enqueue(id, Work::BatchSizes(effort, key)) {
            self.workspaces[id].batch.estimated = Some(generation);
            self.feed.changed(id);
        }
    }

    /// Starts a batch-size sweep.
    pub(crate) fn begin_batch_sizes(&mut self, job: &Job, effort: SweepEffort) -> Option<()> {
        let id = job.owner;
        let permit = job.permit.clone()?;
        let (generation, request) = self.explore_request(id, effort)?;
        let workspace = &mut self.workspaces[id];
        // Results for another measurement do not apply to this one.
        workspace.batch.newest.take_if(|(of, _)| *of != generation);
        self.feed.changed(job.owner);
        let (progress, shown) = mpsc::channel::<ProgressEvent>(4);
        let (ended, has_ended) = oneshot::channel();
        let shows_progress = self.client.shows_progress && effort == SweepEffort::Runs;
        let showing = shows_progress.then(|| {
            let (title, why) = ("Ridgeline: batch-size sweep".to_owned(), "on request".to_owned());
            let (to_client, token) = (self.to_client.clone(), job.progress_token());
            tokio::spawn(progress::show(to_client, token, title, why, shown, has_ended))
        });
        let (news, mut received) = mpsc::channel::<SweepResults>(4);
        let mut exploring =
            jobs::spawn(job, self.profiler.sweep_batch_sizes(request, news, progress, permit));
        let (events, job) = (self.events.clone(), job.id);
        tokio::spawn(async move {
            let explored = |found| Event::BatchSweepProgressed(job, generation, Box::new(found));
            let outcome = loop {
                tokio::select! {
                    Some(found) = received.recv() => {
                        if events.send(explored(found)).await.is_err() {
                            return;
                        }
                    }
                    outcome = &mut exploring => break outcome,
                }
            };
            while let Ok(found) = received.try_recv() {
                let _ = events.send(explored(found)).await;
            }
            let _ = ended.send(String::new());
            if let Some(showing) = showing {
                let _ = showing.await;
            }
            let outcome = match outcome {
                Ok(outcome) => outcome.map_or(Outcome::Stopped, Outcome::BatchSizes),
                Err(error) => Outcome::Defect(error.to_string()),
            };
            let _ = events.send(Event::JobEnded(job, Box::new(outcome))).await;
        });
        Some(())
    }

    /// Finds where the batch size is written, without running anything, so that it can be edited.
    pub(crate) fn find_batch_site(&mut self, id: WorkspaceId) {
        let (profiler, events) = (self.profiler.clone(), self.events.clone());
        let Some((generation, request)) = self.explore_request(id, SweepEffort::Estimates) else {
            return;
        };
        tokio::spawn(async move {
            if let Some(found) = profiler.find_batch_site(request).await {
                // Sending fails only after the event loop has ended.
                let _ = events
                    .send(Event::Workspace(
                        id,
                        WorkspaceEvent::BatchSiteFound(generation, Box::new(found)),
                    ))
                    .await;
            }
        });
    }

    /// The sweep request for a workspace's newest measurement, with its generation.
    fn explore_request(
        &mut self,
        id: WorkspaceId,
        effort: SweepEffort,
    ) -> Option<(u64, SweepRequest)> {
        let memory_limit = self.settings.batch_memory_limit;
        let about = self.workspaces[id].batch.about.clone();
        let touched = self.last_edited_in(id);
        let profile = self.request(id, about.or(touched).as_deref());
        let workspace = &mut self.workspaces[id];
        let (generation, measured) = workspace.measured.first().cloned()?;
        // An explicit request measures again.
        let known = workspace.batch.newest.as_ref().filter(|_| effort != SweepEffort::Runs);
        let known = known.filter(|(of, _)| *of == generation).map(|(_, known)| known.clone());
        Some((generation, SweepRequest { profile, measured, memory_limit, effort, known }))
    }

    /// Stores what is known without a run. Results of a sweep take precedence.
    pub(crate) fn set_batch_site(&mut self, id: WorkspaceId, generation: u64, found: SweepResults) {
        let workspace = &mut self.workspaces[id];
        let is_current = workspace.measured.first().is_some_and(|(of, _)| *of == generation);
        let is_known = workspace.batch.newest.as_ref().is_some_and(|(of, _)| *of == generation);
        if is_current && !is_known {
            workspace.batch.newest = Some((generation, Arc::new(found)));
            self.feed.changed(id);
        }
    }

    /// Stores intermediate results of a sweep.
    pub(crate) fn add_sweep_results(&mut self, job: JobId, generation: u64, found: SweepResults) {
        let running = self.scheduler.running();
        let job = running.filter(|running| running.id == job && !running.is_stopped());
        let Some(id) = job.filter(|job| job.work.slot() == Slot::BatchSizes).map(|job| job.owner)
        else {
            return;
        };
        let memory_limit = self.settings.batch_memory_limit;
        let workspace = &mut self.workspaces[id];
        let Some((of, measured)) = workspace.measured.first() else { return };
        if *of == generation {
            // The job may have been requested before this measurement.
            workspace.batch.key = key_of(measured, memory_limit);
            workspace.batch.newest = Some((generation, Arc::new(found)));
            self.feed.changed(id);
        }
    }

    /// Handles the end of a sweep.
    pub(crate) fn sweep_ended(&mut self, job: &Job, outcome: &Outcome) {
        self.feed.changed(job.owner);
        match outcome {
            Outcome::BatchSizes(SweepEnd::Done) if !job.is_stopped() => {
                self.scheduler.remember(job)
            }
            Outcome::BatchSizes(SweepEnd::MachineNeeded) if !job.is_stopped() => {
                self.scheduler.enqueue(job.owner, job.work.clone());
            }
            _ => {}
        }
    }

    /// Handles a sweep that was skipped. It may be requested again.
    pub(crate) fn sweep_skipped(&mut self, owner: WorkspaceId) {
        self.workspaces[owner].batch.estimated = None;
        self.feed.changed(owner);
    }

    /// The data for an edit of the batch size. Returns `None` if nothing is known about the current
    /// measurement.
    pub(crate) fn batch_view(&self, id: WorkspaceId) -> Option<BatchView> {
        let workspace = &self.workspaces[id];
        let (generation, sweep) = workspace.batch.newest.as_ref()?;
        workspace.measured.first().filter(|(of, _)| of == generation)?;
        let open = self.open_texts(&sweep.root);
        Some(BatchView { results: sweep.clone(), open })
    }

    /// The open documents below a folder, by path with links resolved.
    pub(crate) fn open_texts(&self, root: &Path) -> Vec<(PathBuf, DocumentSnapshot)> {
        let inside = self.documents.iter().filter_map(|(id, document)| {
            let real = document.real.clone().filter(|real| real.starts_with(root))?;
            Some((real, self.documents.snapshot(id)?))
        });
        inside.collect()
    }
}

impl Batch {
    /// Carries the results over to a new measurement if it is of the same program on the same
    /// device.
    ///
    /// Returns whether any results remain.
    pub(crate) fn carry_over(
        &mut self,
        generation: u64,
        measured: &Profiled,
        memory_limit: Option<u64>,
    ) -> bool {
        let is_same = self.key == key_of(measured, memory_limit);
        let known = self.newest.take().filter(|_| is_same);
        self.newest = known.map(|(_, sweep)| (generation, sweep));
        self.newest.is_some()
    }
}

/// A hash of everything that the costs of other batch sizes depend on. A change outside the
/// project's Python files, such as another configuration, shows in the memory of an iteration.
fn key_of(measured: &Profiled, memory_limit: Option<u64>) -> u64 {
    let profile = &measured.profile;
    let mut hasher = fnv::FnvHasher::default();
    measured.root.hash(&mut hasher);
    profile.files.iter().for_each(|file| (&file.path, &file.fingerprint).hash(&mut hasher));
    (&profile.device.name, &profile.torch_version).hash(&mut hasher);
    (profile.iteration.batch_size, profile.memory.peak_bytes, memory_limit).hash(&mut hasher);
    hasher.finish()
}
