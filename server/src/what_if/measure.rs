//! Measures a what-if on request, to check the prediction. It is a run like any other, with the
//! same consent, queue and progress.

use std::sync::Arc;

use ridgeline_analysis::base::printable::one_line;
use ridgeline_analysis::optimize::accuracy::Pair;
use ridgeline_analysis::optimize::study::{self, Study};
use ridgeline_analysis::present::what_ifs;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::consent::Permit;
use crate::lsp::client::Importance;
use crate::pipeline::Compared;
use crate::profiler::{
    BoxedFuture, MeasureRequest, ProfileOutcome, ProfileRequest, Profiled, ProgressEvent,
};
use crate::scheduler::{Reason, WorkspaceId};
use crate::state::GlobalState;
use crate::workspace::Workspace;

impl GlobalState {
    /// Handles the command that measures an optimization.
    pub(crate) fn measure_by_command(&mut self, id: WorkspaceId, name: Option<&Value>) {
        let Some(name) = name.and_then(Value::as_str) else {
            let message = "ridgeline.measureWhatIf takes the optimization in the `name` argument, \
                such as `compile`; the panel lists them.";
            return self.to_client.show_message(Importance::Info, message);
        };
        if let Err(why) = self.measure_what_if(id, name) {
            self.to_client.show_message(Importance::Info, &why);
        }
    }

    /// Requests the runs that measure an optimization.
    ///
    /// # Errors
    /// The reason why there is nothing to measure, as a sentence.
    pub(crate) fn measure_what_if(&mut self, id: WorkspaceId, name: &str) -> Result<(), String> {
        let known = study::optimization(name);
        let known =
            known.ok_or_else(|| format!("Unknown optimization `{}`.", one_line(name, 60)))?;
        let why_not = match known.edit() {
            None => Some("it has no automatic edit"),
            Some(kind) if kind.needs_launcher() => Some(what_ifs::NEEDS_LAUNCHER),
            Some(_) => None,
        };
        if let Some(why) = why_not {
            return Err(format!("{} cannot be measured: {why}.", known.title()));
        }
        let workspace = &self.workspaces[id];
        predicted(workspace, name)?;
        let file = workspace.batch.about.clone();
        self.request_run(id, Reason::WhatIf(name.to_owned(), file));
        Ok(())
    }

    /// The run that measures an optimization. It ends at once if there is no longer anything to
    /// compare with.
    pub(crate) fn what_if_run(
        &mut self,
        id: WorkspaceId,
        name: &str,
        profile: ProfileRequest,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<ProfileOutcome> {
        let profiler = self.profiler.clone();
        let workspace = &mut self.workspaces[id];
        workspace.what_if.message = None;
        self.feed.changed(id);
        let (measured, study) = match predicted(workspace, name) {
            Ok(found) => found,
            Err(message) => return Box::pin(async { ProfileOutcome::NotCompared { message } }),
        };
        let open = self.open_texts(&measured.real_root).into_iter();
        let texts = open.map(|(path, open)| (path, open.index.shared_text())).collect();
        let prediction = study.prediction(name).cloned().unwrap_or_default();
        let compared = Compared { prediction, measured, texts };
        profiler.measure(MeasureRequest { profile, compared }, progress, permit)
    }

    /// Reports a measured what-if.
    pub(crate) fn report_comparison(
        &mut self,
        id: WorkspaceId,
        pair: &Pair,
        not_kept: Option<String>,
    ) {
        let title = study::optimization(&pair.name).map_or(pair.name.as_str(), |one| one.title());
        let change = what_ifs::pair(pair);
        let told = change.unwrap_or_else(|| "the runs were too short to compare".to_owned());
        let mut message = format!("{title}: {told}");
        if let Some(why) = not_kept {
            message += &format!(". Not saved: {why}");
        }
        self.to_client.show_message(Importance::Info, &message);
        self.what_if_changed(id, None);
    }

    /// Reports that a what-if could not be measured.
    pub(crate) fn report_failed_comparison(&mut self, id: WorkspaceId, message: String) {
        self.to_client.show_message(Importance::Warning, &message);
        self.what_if_changed(id, Some(message));
    }

    /// Updates the panel after a change of the what-ifs.
    pub(crate) fn what_if_changed(&mut self, id: WorkspaceId, message: Option<String>) {
        let feed = self.feed.clone();
        let workspace = &mut self.workspaces[id];
        workspace.what_if.message = message;
        feed.changed(id);
    }

    /// The optimization being measured in a workspace.
    pub(crate) fn what_if_measured_now(&self, id: WorkspaceId) -> Option<String> {
        match self.scheduler.run_of(id)? {
            Reason::WhatIf(name, _) => Some(name.clone()),
            _ => None,
        }
    }
}

/// The newest measurement and its predictions.
fn predicted(workspace: &Workspace, name: &str) -> Result<(Arc<Profiled>, Arc<Study>), String> {
    let newest = workspace.measured.first();
    let (generation, measured) =
        newest.ok_or("This workspace has not been profiled yet. Profile it first.")?;
    let study = match workspace.what_if.of(*generation) {
        Some(Ok(study)) => study,
        Some(Err(why)) => return Err(format!("No prediction available: {why}.")),
        None => return Err("Speedups are still being estimated. Try again in a moment.".to_owned()),
    };
    if study.prediction(name).is_none() {
        let refused = study.what_ifs.refusals.iter().find(|refused| refused.name == name);
        let why = refused.map_or("no prediction available", |refused| refused.why.as_str());
        return Err(format!("{name} is not applicable: {why}."));
    }
    Ok((measured.clone(), study.clone()))
}
