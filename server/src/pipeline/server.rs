//! The pipeline's implementation of the language server's [`Profiler`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::probe_list::ProbeKinds;
use ridgeline_analysis::optimize::study::RecordedRun;
use ridgeline_analysis::present::side_effects;
use ridgeline_analysis::profile::Device;
use tokio::sync::mpsc;

use super::outcome::{Outcome, Problem, ProblemKind, ProgramFailure};
use super::plan::{Overrides, Request};
use super::{Pipeline, gpu_rates, known_probes, newer, or_cancelled};
use crate::batch::{SweepEnd, SweepRequest, SweepResults};
use crate::config::{DEVICES, DeviceChoice};
use crate::consent::Permit;
use crate::live::{EstimateOutcome, EstimateRequest};
use crate::machine_load::BusyReason;
use crate::measured_rates::Target;
use crate::profiler::{
    BoxedFuture, MeasureRequest, ProfileOutcome, ProfileRequest, Profiled, Profiler, Program,
    ProgressEvent,
};
use crate::what_if::pairs;

impl Profiler for Arc<Pipeline> {
    fn profile(
        &self,
        request: ProfileRequest,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<ProfileOutcome> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            let request = match plan_request(request) {
                Ok(request) => request,
                Err(message) => return ProfileOutcome::Problem { message, log: None },
            };
            match pipeline.plan(request).await {
                Ok(plan) => for_server(pipeline.run(&plan, &progress, permit.token()).await),
                Err(outcome) => for_server(outcome),
            }
        })
    }

    fn find_program(
        &self,
        request: ProfileRequest,
    ) -> BoxedFuture<Result<Program, ProfileOutcome>> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            let request = plan_request(request)
                .map_err(|message| ProfileOutcome::Problem { message, log: None })?;
            let plan = pipeline.plan(request).await.map_err(for_server)?;
            Ok(Program { command: plan.display(), launcher: plan.launched_by })
        })
    }

    fn estimate(&self, request: EstimateRequest, permit: Permit) -> BoxedFuture<EstimateOutcome> {
        let pipeline = Arc::clone(self);
        Box::pin(async move { Pipeline::estimate(&pipeline, request, permit.token()).await })
    }

    fn prepare(&self, request: ProfileRequest, permit: Permit) -> BoxedFuture<()> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            // Problems are reported when the user profiles. At this point it is too early.
            let Ok(request) = plan_request(request) else { return };
            if let Ok(plan) = pipeline.plan(request).await
                && or_cancelled(permit.token(), pipeline.warm(&plan)).await.is_err()
            {
                tracing::debug!("the agent could not be started ahead of the first run");
            }
        })
    }

    fn forget(&self, root: PathBuf) -> BoxedFuture<()> {
        let pipeline = Arc::clone(self);
        Box::pin(async move { Pipeline::forget(&pipeline, &root).await })
    }

    fn find_batch_site(&self, request: SweepRequest) -> BoxedFuture<Option<SweepResults>> {
        let pipeline = Arc::clone(self);
        Box::pin(async move { Pipeline::find_batch_site(&pipeline, &request).await })
    }

    fn sweep_batch_sizes(
        &self,
        request: SweepRequest,
        results: mpsc::Sender<SweepResults>,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<SweepEnd> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            Pipeline::sweep_batch_sizes(&pipeline, request, results, progress, permit).await
        })
    }

    fn machine_needed(&self, gpu: Option<String>) -> BoxedFuture<Option<BusyReason>> {
        let pipeline = Arc::clone(self);
        Box::pin(async move { Pipeline::machine_needed(&pipeline, gpu.as_deref()).await })
    }

    fn probes(
        &self,
        request: ProfileRequest,
        recorded_run: Arc<RecordedRun>,
        measured: Arc<Profiled>,
        limit: Option<Duration>,
        permit: Permit,
    ) -> BoxedFuture<Probes> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            let Ok(request) = plan_request(request) else { return Probes::default() };
            let Ok(plan) = pipeline.plan(request).await else { return Probes::default() };
            // Not displayed, because it ends soon.
            let (progress, _unread) = mpsc::channel(1);
            let recording = measured.recording.as_deref();
            let kinds = (ProbeKinds::ALL, limit);
            // First, because it takes less time.
            let memory = pipeline.measure_edited_memory(&plan, &measured, permit.token());
            if memory.await.is_err() {
                return Probes::default();
            }
            let answer = pipeline
                .probe(&plan, &recorded_run, kinds, recording, &progress, permit.token())
                .await;
            // Without results, predictions use the operators' estimated costs.
            answer.map(|answer| answer.probes).unwrap_or_default()
        })
    }

    fn known_probes(&self, recorded_run: &RecordedRun, recording: Option<&Path>) -> Probes {
        known_probes(self.store(), recording, recorded_run)
    }

    fn measure(
        &self,
        request: MeasureRequest,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<ProfileOutcome> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            let MeasureRequest { profile, compared } = request;
            let request = match plan_request(profile) {
                Ok(request) => request,
                Err(message) => return ProfileOutcome::NotCompared { message },
            };
            let measured = async {
                let plan = pipeline.plan(request).await?;
                // If the workspace has several projects, the prediction may be for another one.
                if plan.root != compared.measured.root {
                    let what = "another project of this workspace would run now: profile it first";
                    return Err(Outcome::Problem(Problem::new(ProblemKind::Run, what, "")));
                }
                Pipeline::measure(&pipeline, &plan, &compared, &progress, permit.token()).await
            };
            let pair = match measured.await {
                Ok(pair) => pair,
                Err(outcome) => return not_compared(outcome),
            };
            let (store, root) = (pipeline.store().clone(), compared.measured.root.clone());
            let stored = pair.clone();
            let stored =
                tokio::task::spawn_blocking(move || pairs::add(&store, &root, &stored)).await;
            let not_kept = match stored {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            ProfileOutcome::Compared { pair: Box::new(pair), not_kept }
        })
    }

    fn unmeasured_gpu(&self, device: Device) -> BoxedFuture<Option<Target>> {
        let pipeline = Arc::clone(self);
        Box::pin(async move { gpu_rates::unmeasured(&pipeline, &device).await })
    }

    fn measure_gpu(
        &self,
        target: Target,
        request: ProfileRequest,
        permit: Permit,
    ) -> BoxedFuture<Result<String, String>> {
        let pipeline = Arc::clone(self);
        Box::pin(async move {
            let measured = gpu_rates::measure(&pipeline, target, plan_request(request)?);
            tokio::select! {
                measured = measured => measured,
                () = permit.token().cancelled() => Err("it was stopped".to_owned()),
            }
        })
    }

    fn newest(&self, root: PathBuf, known: Option<PathBuf>) -> BoxedFuture<Option<Profiled>> {
        let store = self.store().clone();
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || newer(&store, &root, known.as_deref()));
            let read = read.await.ok()?;
            read.inspect_err(|why| tracing::warn!("a recording cannot be read: {why}")).ok()?
        })
    }
}

pub(super) fn plan_request(request: ProfileRequest) -> Result<Request, String> {
    let device = request
        .device
        .map(|device| {
            DeviceChoice::parse(&device)
                .ok_or_else(|| format!("the editor setting `device` must be {DEVICES}"))
        })
        .transpose()?;
    Ok(Request {
        workspace: request.root,
        changed: request.changed,
        script: None,
        command: None,
        remembered: request.script,
        takes_likeliest: false,
        editor_python: request.interpreter,
        overrides: Overrides {
            device,
            without_sandbox: request.without_sandbox,
            ..Overrides::default()
        },
    })
}

/// Returns the reason that a what-if was not measured. No file has the edited text, so a failure
/// cannot be shown at a line.
fn not_compared(outcome: Outcome) -> ProfileOutcome {
    let message = match outcome {
        Outcome::Cancelled => return ProfileOutcome::Cancelled,
        Outcome::Failed(failed) => {
            let ProgramFailure { failure, .. } = *failed;
            let first = failure.message.lines().next().unwrap_or_default();
            format!("the program failed: {}: {first}", failure.error_type)
        }
        Outcome::Problem(problem) => problem.message(),
        Outcome::Choose { .. } => "several programs in this workspace train a model".to_owned(),
        Outcome::Measured(_) => "nothing was compared".to_owned(),
    };
    ProfileOutcome::NotCompared { message }
}

/// Adds a note on the program's writes that were kept from the disk.
fn with_note(mut profiled: Profiled) -> Profiled {
    if let Some(effects) = profiled.profile.side_effects.clone() {
        let notes = [side_effects::warning(&effects), side_effects::sentence(&effects, false)];
        Arc::make_mut(&mut profiled.profile).notes.extend(notes.into_iter().flatten());
    }
    profiled
}

fn for_server(outcome: Outcome) -> ProfileOutcome {
    match outcome {
        Outcome::Measured(profiled) => ProfileOutcome::Measured(with_note(*profiled)),
        Outcome::Failed(failed) => {
            let ProgramFailure { failure, root, log, .. } = *failed;
            ProfileOutcome::Failed { failure, root, log }
        }
        Outcome::Cancelled => ProfileOutcome::Cancelled,
        Outcome::Choose { runs, .. } => ProfileOutcome::Choose { runs },
        Outcome::Problem(problem) if problem.kind == ProblemKind::NothingToRun => {
            ProfileOutcome::NothingToRun { message: problem.message() }
        }
        Outcome::Problem(problem) => {
            ProfileOutcome::Problem { message: problem.message(), log: problem.log }
        }
    }
}
