//! Carries out the decisions of the [`Scheduler`](crate::scheduler::Scheduler): starts jobs and
//! sends their results to the event loop.

use std::time::{Duration, Instant};

use ridgeline_analysis::optimize::facts::Probes;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::batch::SweepEnd;
use crate::consent::{Kind, Permit};
use crate::event::Event;
use crate::live::EstimateOutcome;
use crate::profiler::ProfileOutcome;
use crate::scheduler::{Job, JobId, Next, Work, WorkspaceId};
use crate::state::GlobalState;
use crate::what_if::{FindingsStep, StudyResult};

/// The interval for checking whether the machine is still needed for something else.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Outcome {
    Run(ProfileOutcome),
    Estimate(EstimateOutcome),
    Findings(Box<FindingsStep>),
    Probes(Probes),
    WhatIfs(StudyResult),
    BatchSizes(SweepEnd),
    /// What to report to the user, or why it failed.
    MeasureGpu(Result<String, String>),
    /// Stopped without a result.
    Stopped,
    /// It panicked.
    Defect(String),
}

impl GlobalState {
    /// Starts the scheduler's next jobs. Called at the end of each turn of the event loop.
    pub(crate) fn run_jobs(&mut self) {
        loop {
            let gate = &mut self.gate;
            let permit = |owner: WorkspaceId, work: &Work| match work.needs_permit()? {
                Kind::Run => gate.permit_run(owner, work.cause(), work.to_string()),
                kind => gate.permit(owner, work.cause(), kind, work.to_string()),
            };
            match self.scheduler.next(Instant::now(), permit) {
                Next::Nothing => return,
                Next::Start(job) => self.start_job(&job),
                Next::Skip(owner, work) => self.work_skipped(owner, &work),
                Next::CheckMachine(owner) => self.check_machine(owner),
            }
        }
    }

    fn start_job(&mut self, job: &Job) {
        // If this panics, the job would never end: `recover` ends it.
        self.starting = Some(job.id);
        let started = match &job.work {
            Work::Run(reason) => self.begin_run(job, reason),
            Work::Estimate(_) => self.begin_estimate(job),
            Work::Findings(generation) => self.begin_findings(job, *generation),
            Work::Probes(generation) => self.begin_probes(job, *generation),
            Work::WhatIfs(generation) => self.begin_what_ifs(job, *generation),
            Work::BatchSizes(effort, _) => self.begin_batch_sizes(job, *effort),
            Work::MeasureGpu(_) => self.begin_measuring(job),
        };
        self.starting = None;
        if started.is_none() {
            self.job_ended(job.id, Outcome::Stopped);
        } else {
            self.send_status(job.owner);
        }
    }

    /// Runs a job and sends its result as an event.
    pub(crate) fn spawn_job(
        &self,
        job: &Job,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let (events, id) = (self.events.clone(), job.id);
        let work = spawn(job, work);
        tokio::spawn(async move {
            let outcome = match work.await {
                Ok(outcome) => outcome.unwrap_or(Outcome::Stopped),
                Err(error) => Outcome::Defect(error.to_string()),
            };
            // If the event loop has ended, nobody needs it.
            let _ = events.send(Event::JobEnded(id, Box::new(outcome))).await;
        });
    }

    pub(crate) fn job_ended(&mut self, id: JobId, outcome: Outcome) {
        let Some(job) = self.scheduler.finish_job(id, Instant::now()) else { return };
        if let Outcome::Defect(error) = &outcome {
            tracing::error!("internal error: {} ended early: {error}", job.work);
        }
        if !self.workspaces.contains(job.owner) {
            return;
        }
        match &job.work {
            Work::Run(reason) => {
                let outcome = match outcome {
                    Outcome::Run(outcome) => outcome,
                    Outcome::Defect(error) => ProfileOutcome::Problem {
                        message: format!("an internal error of Ridgeline ended the run: {error}"),
                        log: None,
                    },
                    _ => ProfileOutcome::Cancelled,
                };
                self.run_ended(&job, reason, outcome);
            }
            Work::Estimate(_) => match outcome {
                Outcome::Estimate(outcome) => self.estimate_ended(&job, outcome),
                _ => self.estimate_ended(&job, EstimateOutcome::Cancelled),
            },
            Work::Findings(generation) => self.findings_ended(&job, *generation, outcome),
            Work::Probes(generation) => {
                let probes = match outcome {
                    Outcome::Probes(probes) => probes,
                    _ => Probes::default(),
                };
                self.probes_ended(job.owner, *generation, probes);
            }
            Work::WhatIfs(generation) => self.what_ifs_ended(&job, *generation, outcome),
            Work::BatchSizes(..) => self.sweep_ended(&job, &outcome),
            Work::MeasureGpu(_) => {
                if let Outcome::MeasureGpu(measured) = outcome
                    && !job.is_stopped()
                {
                    self.gpu_measured(measured);
                }
            }
        }
        self.send_status(job.owner);
    }

    /// Handles work that was not started: consent was withdrawn, its budget is used up, or
    /// something came first.
    fn work_skipped(&mut self, owner: WorkspaceId, work: &Work) {
        match work {
            Work::Probes(generation) => self.probes_ended(owner, *generation, Probes::default()),
            // The panel may request it again.
            Work::BatchSizes(..) => self.sweep_skipped(owner),
            _ => {}
        }
        self.send_status(owner);
    }

    fn check_machine(&self, owner: WorkspaceId) {
        let newest = self.workspaces[owner].measured.first();
        let device = newest.map(|(_, profiled)| &profiled.profile.device);
        let gpu = device.filter(|device| device.kind == "cuda").map(|device| device.name.clone());
        let look = tokio::spawn(self.profiler.machine_needed(gpu));
        let events = self.events.clone();
        tokio::spawn(async move {
            let needed = look.await.unwrap_or_default();
            // If the event loop has ended, nobody needs it.
            let _ = events.send(Event::MachineChecked(needed)).await;
            if needed.is_some() {
                tokio::time::sleep(CHECK_INTERVAL).await;
                let _ = events.send(Event::MachineCheckOutdated).await;
            }
        });
    }
}

/// Runs work within its limits. There is no result if its permit was withdrawn and it did not end
/// in time, or if it needs no permit and was stopped.
pub(crate) fn spawn<T: Send + 'static>(
    job: &Job,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<Option<T>> {
    let Job { permit, token, limit, .. } = job.clone();
    tokio::spawn(async move {
        let overtime = async {
            if let Some(limit) = limit {
                tokio::time::sleep(limit).await;
                token.cancel();
            }
            std::future::pending::<()>().await;
        };
        let work = bounded(permit, &token, work);
        tokio::select! {
            done = work => done,
            () = overtime => None,
        }
    })
}

async fn bounded<T>(
    permit: Option<Permit>,
    token: &CancellationToken,
    work: impl Future<Output = T>,
) -> Option<T> {
    match permit {
        Some(permit) => permit.bound(work).await,
        None => tokio::select! {
            done = work => Some(done),
            () = token.cancelled() => None,
        },
    }
}
