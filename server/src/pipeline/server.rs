//! The pipeline as the language server asks for it.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::outcome::{Outcome, ProblemKind, ProgramFailure};
use super::plan::{Overrides, Request};
use super::{Pipeline, newer};
use crate::batch::{Exploration, ExploreRequest};
use crate::config::{DEVICES, DeviceChoice};
use crate::live::{EstimateOutcome, EstimateRequest};
use crate::profiler::{Boxed, ProfileOutcome, ProfileRequest, Profiled, Profiler, ProgressEvent};

impl Profiler for Arc<Pipeline> {
    fn profile(
        &self,
        request: ProfileRequest,
        progress: mpsc::Sender<ProgressEvent>,
        cancel: CancellationToken,
    ) -> Boxed<ProfileOutcome> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            let request = match own_request(request) {
                Ok(request) => request,
                Err(message) => return ProfileOutcome::Problem { message, log: None },
            };
            match pipeline.plan(request).await {
                Ok(plan) => for_server(pipeline.run(&plan, &progress, &cancel).await),
                Err(outcome) => for_server(outcome),
            }
        })
    }

    fn estimate(
        &self,
        request: EstimateRequest,
        cancel: CancellationToken,
    ) -> Boxed<EstimateOutcome> {
        let pipeline = Arc::clone(self);
        Box::pin(async move { Pipeline::estimate(&pipeline, request, &cancel).await })
    }

    fn prepare(&self, request: ProfileRequest) -> Boxed<()> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            // What is in the way is said when the person profiles; here it is too early to tell.
            let Ok(request) = own_request(request) else { return };
            if let Ok(plan) = pipeline.plan(request).await
                && pipeline.warm(&plan).await.is_err()
            {
                tracing::debug!("the agent could not be started ahead of the first run");
            }
        })
    }

    fn forget(&self, root: PathBuf) -> Boxed<()> {
        let pipeline = Arc::clone(self);
        Box::pin(async move { Pipeline::forget(&pipeline, &root).await })
    }

    fn explore_batch(
        &self,
        request: ExploreRequest,
        news: mpsc::Sender<Exploration>,
        cancel: CancellationToken,
    ) -> Boxed<()> {
        let pipeline = Arc::clone(self);
        Box::pin(async move { Pipeline::explore_batch(&pipeline, request, news, cancel).await })
    }

    fn newest(&self, root: PathBuf, known: Option<PathBuf>) -> Boxed<Option<Profiled>> {
        let store = self.store().clone();
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || newer(&store, &root, known.as_deref()));
            let read = read.await.ok()?;
            read.inspect_err(|why| tracing::warn!("a recording cannot be read: {why}")).ok()?
        })
    }
}

pub(super) fn own_request(request: ProfileRequest) -> Result<Request, String> {
    let device = request
        .device
        .map(|device| {
            DeviceChoice::parse(&device)
                .ok_or_else(|| format!("the editor's setting `device` is {DEVICES}"))
        })
        .transpose()?;
    Ok(Request {
        workspace: request.root,
        changed: request.changed,
        script: None,
        remembered: request.script,
        editor_python: request.interpreter,
        overrides: Overrides { device, ..Overrides::default() },
    })
}

fn for_server(outcome: Outcome) -> ProfileOutcome {
    match outcome {
        Outcome::Measured(profiled) => ProfileOutcome::Measured(*profiled),
        Outcome::Failed(failed) => {
            let ProgramFailure { failure, root, log } = *failed;
            ProfileOutcome::Failed { failure, root, log }
        }
        Outcome::Cancelled => ProfileOutcome::Cancelled,
        Outcome::Choose { root, scripts } => ProfileOutcome::Choose {
            scripts: scripts.into_iter().map(|(path, _)| root.join(path)).collect(),
        },
        Outcome::Problem(problem) if problem.kind == ProblemKind::NothingToRun => {
            ProfileOutcome::NothingToRun { message: problem.message() }
        }
        Outcome::Problem(problem) => {
            ProfileOutcome::Problem { message: problem.message(), log: problem.log }
        }
    }
}
