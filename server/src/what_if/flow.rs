//! From a measurement to what optimizations would bring, and what ends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::whatif::study::Study;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Found, study};
use crate::event::Event;
use crate::state::GlobalState;

impl GlobalState {
    /// Works out what optimizations would bring to the newest measurement of every workspace, where that
    /// is not known yet and nothing runs.
    pub fn study_what_ifs(&mut self) {
        if self.queue.running().is_some() {
            return;
        }
        let roots: Vec<PathBuf> = self.workspaces.iter().map(|one| one.root.clone()).collect();
        for root in roots {
            self.study_workspace(&root);
        }
    }

    fn study_workspace(&mut self, root: &Path) {
        let memory_limit = self.settings.batch_memory_limit;
        let (pool, events) = (self.slow_pool.clone(), self.events.clone());
        let (machine, feed) = (self.machine.clone(), self.feed.clone());
        let Some(workspace) = self.workspace(root) else { return };
        let Some((generation, measured)) = workspace.measured.first().cloned() else { return };
        if workspace.what_if.is_about(generation) {
            return;
        }
        workspace.what_if.stop();
        let cancel = CancellationToken::new();
        workspace.what_if.running = Some((generation, cancel.clone()));
        feed.changed(workspace.number);
        let root = root.to_owned();
        tokio::spawn(async move {
            let work = async {
                // It would disturb what is being timed.
                let _alone = machine.lock().await;
                let (reply, answer) = oneshot::channel();
                let stop = cancel.clone();
                let stop = move || stop.is_cancelled();
                pool.answer(reply, move || Ok(study(&measured, memory_limit, &stop)));
                answer.await
            };
            let found = tokio::select! {
                found = work => found,
                () = cancel.cancelled() => return,
            };
            let found = match found {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("it ended early".to_owned()),
            };
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::WhatIfsFound(root, generation, found)).await;
        });
    }

    /// What optimizations would bring to a measurement has been found out.
    pub fn what_ifs_found(&mut self, root: &Path, generation: u64, found: Found) {
        let feed = self.feed.clone();
        let Some(workspace) = self.workspace(root) else { return };
        let running = &mut workspace.what_if.running;
        if running.take_if(|(of, cancel)| *of == generation && !cancel.is_cancelled()).is_none() {
            return;
        }
        workspace.what_if.newest = Some((generation, found));
        feed.changed(workspace.number);
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
