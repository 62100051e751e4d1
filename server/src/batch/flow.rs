//! From a wish to know to what other batch sizes cost, and what ends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{BatchView, Effort, Exploration, Explore, ExploreRequest, progress_token};
use crate::consent::{Cause, Kind};
use crate::documents::DocumentSnapshot;
use crate::event::Event;
use crate::profiler::ProgressEvent;
use crate::progress;
use crate::state::GlobalState;

impl GlobalState {
    /// Finds out what other batch sizes cost, where nothing else goes on.
    pub fn explore_batch(&mut self, root: &Path, effort: Effort) {
        let on_demand = self.settings.explore_batch == Explore::OnDemand;
        if self.queue.running().is_some() || (on_demand && effort == Effort::Estimates) {
            return;
        }
        let number = self.next_number();
        let feed = self.feed.clone();
        let Some((generation, request)) = self.explore_request(root, effort) else { return };
        let Some(workspace) = self.workspace(root) else { return };
        // A page asks again each time that it is shown.
        let was_asked = workspace.batch.estimated.replace(generation) == Some(generation);
        if effort == Effort::Estimates && (was_asked || workspace.batch.is_measuring()) {
            return;
        }
        let (cause, what) = match effort {
            Effort::Estimates => (Cause::Unasked, "estimating other batch sizes"),
            Effort::ShortRuns => (Cause::Unasked, "running other batch sizes"),
            Effort::Runs => (Cause::Asked, "running other batch sizes"),
        };
        let Some(permit) = self.gate.permit(root, cause, Kind::Background, what) else {
            // It may be asked for again when it is allowed.
            if let Some(workspace) = self.workspace(root) {
                workspace.batch.estimated = None;
            }
            return;
        };
        let shows_progress = self.client.shows_progress && effort == Effort::Runs;
        let (to_client, profiler) = (self.to_client.clone(), self.profiler.clone());
        let events = self.events.clone();
        let Some(workspace) = self.workspace(root) else { return };
        workspace.batch.stop();
        workspace.batch.running = Some((number, permit.token().clone()));
        // What was found out about another measurement is not about this one.
        workspace.batch.newest.take_if(|(of, _)| *of != generation);
        feed.changed(workspace.number);
        let (progress, shown) = mpsc::channel::<ProgressEvent>(4);
        let (ended, has_ended) = oneshot::channel();
        let showing = shows_progress.then(|| {
            let (title, why) = ("Ridgeline: other batch sizes".to_owned(), "asked for".to_owned());
            let token = progress_token(number);
            tokio::spawn(progress::show(to_client, token, title, why, shown, has_ended))
        });
        let root = root.to_owned();
        let own = root.clone();
        tokio::spawn(async move {
            let (news, mut received) = mpsc::channel::<Exploration>(4);
            let work = profiler.explore_batch(request, news, progress, permit.clone());
            let mut work = tokio::spawn(async move {
                permit.bound(work).await;
            });
            loop {
                tokio::select! {
                    Some(found) = received.recv() => {
                        let event = Event::BatchExplored(root.clone(), number, generation, Box::new(found));
                        if events.send(event).await.is_err() {
                            return;
                        }
                    }
                    ended = &mut work => {
                        if let Err(error) = ended {
                            tracing::error!("a defect: trying batch sizes ended early: {error}");
                        }
                        break;
                    }
                }
            }
            while let Ok(found) = received.try_recv() {
                let event = Event::BatchExplored(root.clone(), number, generation, Box::new(found));
                let _ = events.send(event).await;
            }
            let _ = ended.send(String::new());
            if let Some(showing) = showing {
                let _ = showing.await;
            }
            let _ = events.send(Event::BatchExploring(root, number)).await;
        });
        self.send_status(&own);
    }

    /// Learns what is known of other batch sizes without running anything: where the number stands, so that
    /// it can be set.
    pub fn look_at_batch(&mut self, root: &Path) {
        let (profiler, events) = (self.profiler.clone(), self.events.clone());
        let Some((generation, request)) = self.explore_request(root, Effort::Estimates) else {
            return;
        };
        let root = root.to_owned();
        tokio::spawn(async move {
            if let Some(found) = profiler.look_at_batch(request).await {
                // Where the event loop is over, nobody wants it.
                let _ = events.send(Event::BatchLookedAt(root, generation, Box::new(found))).await;
            }
        });
    }

    /// What there is to find out of a workspace's newest measurement, with its generation.
    fn explore_request(&mut self, root: &Path, effort: Effort) -> Option<(u64, ExploreRequest)> {
        let memory_limit = self.settings.batch_memory_limit;
        let machine = self.machine.clone();
        let about = self.workspace(root)?.batch.about.clone();
        let touched = self.last_touched.clone().filter(|file| file.starts_with(root));
        let profile = self.request(root, about.or(touched).as_deref());
        let (generation, measured) = self.workspace(root)?.measured.first().cloned()?;
        Some((generation, ExploreRequest { profile, measured, memory_limit, effort, machine }))
    }

    /// What is known without a run. Somebody who tries them knows more.
    pub fn batch_looked_at(&mut self, root: &Path, generation: u64, found: Exploration) {
        let feed = self.feed.clone();
        let Some(workspace) = self.workspace(root) else { return };
        let is_current = workspace.measured.first().is_some_and(|(of, _)| *of == generation);
        let is_known = workspace.batch.newest.as_ref().is_some_and(|(of, _)| *of == generation);
        if is_current && !is_known {
            workspace.batch.newest = Some((generation, Arc::new(found)));
            feed.changed(workspace.number);
        }
    }

    /// Something more is known of other batch sizes.
    pub fn batch_explored(
        &mut self,
        root: &Path,
        number: u64,
        generation: u64,
        found: Exploration,
    ) {
        let feed = self.feed.clone();
        let Some(workspace) = self.workspace(root) else { return };
        let is_current = workspace.batch.running.as_ref().is_some_and(|(own, _)| *own == number);
        if is_current && workspace.measured.first().is_some_and(|(of, _)| *of == generation) {
            workspace.batch.newest = Some((generation, Arc::new(found)));
            feed.changed(workspace.number);
        }
    }

    /// Trying batch sizes has come to its end.
    pub fn batch_exploring_ended(&mut self, root: &Path, number: u64) {
        let feed = self.feed.clone();
        let Some(workspace) = self.workspace(root) else { return };
        if workspace.batch.running.take_if(|(own, _)| *own == number).is_some() {
            feed.changed(workspace.number);
        }
    }

    /// A run, or a person at the keyboard, comes first.
    pub fn stop_exploring(&mut self) {
        for workspace in &mut self.workspaces {
            workspace.batch.stop();
        }
    }

    /// What an edit of the batch size needs, where anything is known of it.
    pub fn batch_view(&self, root: &Path) -> Option<BatchView> {
        let workspace = self.workspaces.iter().find(|workspace| workspace.root == root)?;
        let (generation, exploration) = workspace.batch.newest.as_ref()?;
        workspace.measured.first().filter(|(of, _)| of == generation)?;
        let open = self.open_texts(&exploration.root);
        Some(BatchView { exploration: exploration.clone(), open })
    }

    /// The open texts below a folder, by path without links.
    pub fn open_texts(&self, root: &Path) -> Vec<(PathBuf, DocumentSnapshot)> {
        let inside = self.documents.iter().filter_map(|(id, document)| {
            let real = document.real.clone().filter(|real| real.starts_with(root))?;
            Some((real, self.documents.snapshot(id)?))
        });
        inside.collect()
    }
}
