//! A what-if held against the truth, at a person's wish: a run like any other, with the same consent,
//! queue and progress.

use std::path::Path;
use std::sync::Arc;

use ridgeline_analysis::present::what_ifs;
use ridgeline_analysis::whatif::accuracy::Pair;
use ridgeline_analysis::whatif::study::{self, Study};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::consent::Permit;
use crate::lsp::client::Importance;
use crate::pipeline::Compared;
use crate::profiler::{
    Boxed, MeasureRequest, ProfileOutcome, ProfileRequest, Profiled, ProgressEvent,
};
use crate::run_queue::Reason;
use crate::state::{GlobalState, Workspace};

impl GlobalState {
    /// Measures what an optimization brings, by command.
    pub fn measure_by_command(&mut self, root: &Path, name: Option<&Value>) {
        let Some(name) = name.and_then(Value::as_str) else {
            let message = "ridgeline.measureWhatIf takes the optimization as `name` of its argument, such \
                           as `compile`; the panel lists them.";
            return self.to_client.show_message(Importance::Info, message);
        };
        if let Err(why) = self.measure_what_if(root, name) {
            self.to_client.show_message(Importance::Info, &why);
        }
    }

    /// Asks for the runs that say what an optimization brings.
    ///
    /// # Errors
    /// Why there is nothing to measure: a sentence.
    pub fn measure_what_if(&mut self, root: &Path, name: &str) -> Result<(), String> {
        let known = study::optimization(name);
        let known = known.ok_or_else(|| format!("There is no optimization called {name}."))?;
        if known.edit().is_none() {
            return Err(format!("{} cannot be measured: no small edit makes it.", known.title()));
        }
        let workspace = self.workspace(root).ok_or("There is no such workspace.")?;
        predicted(workspace, name)?;
        let file = workspace.batch.about.clone();
        self.want_run(root, Reason::WhatIf(name.to_owned(), file));
        Ok(())
    }

    /// The run that measures an optimization; one that ends at once where there is nothing to compare
    /// with any more.
    pub fn what_if_run(
        &mut self,
        root: &Path,
        name: &str,
        profile: ProfileRequest,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> Boxed<ProfileOutcome> {
        let (profiler, feed) = (self.profiler.clone(), self.feed.clone());
        let found = match self.workspace(root) {
            Some(workspace) => {
                workspace.what_if.message = None;
                feed.changed(workspace.number);
                predicted(workspace, name)
            }
            None => Err("There is no such workspace.".to_owned()),
        };
        let (measured, study) = match found {
            Ok(found) => found,
            Err(message) => return Box::pin(async { ProfileOutcome::NotCompared { message } }),
        };
        let real = measured.root.canonicalize().unwrap_or_else(|_| measured.root.clone());
        let open = self.open_texts(&real).into_iter();
        let texts = open.map(|(path, open)| (path, open.index.shared_text())).collect();
        let prediction = study.prediction(name).cloned().unwrap_or_default();
        let compared = Compared { prediction, measured, texts };
        profiler.measure(MeasureRequest { profile, compared }, progress, permit)
    }

    /// A what-if was measured.
    pub fn compared(&mut self, root: &Path, pair: &Pair, not_kept: Option<String>) {
        let title = study::optimization(&pair.name).map_or(pair.name.as_str(), |one| one.title());
        let told = what_ifs::pair(pair);
        let told = told.unwrap_or_else(|| "the runs took no time to compare".to_owned());
        let mut message = format!("{title}: {told}");
        if let Some(why) = not_kept {
            message += &format!(". It is not kept: {why}");
        }
        self.to_client.show_message(Importance::Info, &message);
        self.what_if_changed(root, None);
    }

    /// A what-if could not be measured.
    pub fn not_compared(&mut self, root: &Path, message: String) {
        self.to_client.show_message(Importance::Warning, &message);
        self.what_if_changed(root, Some(message));
    }

    /// What the panel shows of what-ifs has changed.
    pub fn what_if_changed(&mut self, root: &Path, message: Option<String>) {
        let feed = self.feed.clone();
        if let Some(workspace) = self.workspace(root) {
            workspace.what_if.message = message;
            feed.changed(workspace.number);
        }
    }

    /// The optimization that is being measured in a workspace.
    pub fn what_if_measured_now(&self, root: &Path) -> Option<String> {
        let running = self.queue.running().filter(|running| running.root == root)?;
        match &running.reason {
            Reason::WhatIf(name, _) => Some(name.clone()),
            _ => None,
        }
    }
}

/// The newest measurement, and what is predicted from it.
fn predicted(workspace: &Workspace, name: &str) -> Result<(Arc<Profiled>, Arc<Study>), String> {
    let newest = workspace.measured.first();
    let (generation, measured) =
        newest.ok_or("Nothing of this workspace was measured yet: profile it first.")?;
    let study = match workspace.what_if.of(*generation) {
        Some(Ok(study)) => study,
        Some(Err(why)) => return Err(format!("Nothing can be predicted: {why}.")),
        None => return Err("What optimizations would bring is still being worked out.".to_owned()),
    };
    if study.prediction(name).is_none() {
        let refused = study.what_ifs.refusals.iter().find(|refused| refused.name == name);
        let why = refused.map_or("nothing is predicted of it", |refused| refused.why.as_str());
        return Err(format!("{name} does not apply: {why}."));
    }
    Ok((measured.clone(), study.clone()))
}
