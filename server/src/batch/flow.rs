//! From a measurement to what other batch sizes cost, and what ends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{BatchView, Exploration, Explore, ExploreRequest};
use crate::documents::DocumentSnapshot;
use crate::event::Event;
use crate::state::GlobalState;
use crate::trust::Decision;

impl GlobalState {
    /// Finds out what other batch sizes cost, where nothing else goes on. `asked` where the person
    /// wants to know, whatever the settings say.
    pub fn explore_batch(&mut self, root: &Path, asked: bool) {
        let is_wanted = asked || self.settings.explore_batch == Explore::Automatic;
        let is_busy = self.queue.running().is_some();
        if !is_wanted || is_busy || self.trust.decision(root) != Decision::Allowed {
            return;
        }
        let number = self.next_number();
        let memory_limit = self.settings.batch_memory_limit;
        let (profiler, events) = (self.profiler.clone(), self.events.clone());
        let machine = self.machine.clone();
        let feed = self.feed.clone();
        let about = self.workspace(root).and_then(|workspace| workspace.batch.about.clone());
        let touched = self.last_touched.clone().filter(|file| file.starts_with(root));
        let profile = self.request(root, about.or(touched).as_deref());
        let Some(workspace) = self.workspace(root) else { return };
        let Some((generation, measured)) = workspace.measured.first().cloned() else { return };
        if workspace.paused && !asked {
            return;
        }
        workspace.batch.stop();
        let cancel = CancellationToken::new();
        workspace.batch.running = Some((number, cancel.clone()));
        // What was found out about another measurement is not about this one.
        workspace.batch.newest.take_if(|(of, _)| *of != generation);
        feed.changed(workspace.number);
        let request = ExploreRequest { profile, measured, memory_limit, asked, machine };
        let root = root.to_owned();
        tokio::spawn(async move {
            let (news, mut received) = mpsc::channel::<Exploration>(4);
            let mut work = tokio::spawn(profiler.explore_batch(request, news, cancel));
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
            let _ = events.send(Event::BatchExploring(root, number)).await;
        });
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
