//! Carries out what the [`Scheduler`](crate::scheduler::Scheduler) decides: starts jobs, and brings their
//! ends back to the event loop.

use std::time::{Duration, Instant};

use ridgeline_analysis::optimize::facts::Probes;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::batch::Explored;
use crate::consent::{Kind, Permit};
use crate::event::Event;
use crate::live::EstimateOutcome;
use crate::profiler::ProfileOutcome;
use crate::scheduler::{Job, JobId, Next, Work, WorkspaceId};
use crate::state::GlobalState;
use crate::what_if::{Looked, Studied};

/// While something else needs the machine, it is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Of [`Work::Run`].
    Run(ProfileOutcome),
    /// Of [`Work::Estimate`].
    Estimate(EstimateOutcome),
    /// Of [`Work::Findings`].
    Findings(Looked),
    /// Of [`Work::Probes`].
    Probes(Probes),
    /// Of [`Work::WhatIfs`].
    WhatIfs(Studied),
    /// Of [`Work::BatchSizes`].
    BatchSizes(Explored),
    /// Of [`Work::MeasureGpu`]: what to report to the person, or why it failed.
    MeasureGpu(Result<String, String>),
    /// It was stopped, and has no result.
    Stopped,
    /// It panicked.
    Defect(String),
}

impl GlobalState {
    /// Starts what the scheduler has next. Called at the end of each turn of the event loop.
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
                Next::LookAtMachine(owner) => self.look_at_machine(owner),
            }
        }
    }

    fn start_job(&mut self, job: &Job) {
        // Where this panics, the job is never heard of again: `recover` ends it.
        self.starting = Some(job.id);
        let began = match &job.work {
            Work::Run(reason) => self.begin_run(job, reason),
            Work::Estimate(_) => self.begin_estimate(job),
            Work::Findings(generation) => self.begin_findings(job, *generation),
            Work::Probes(generation) => self.begin_probes(job, *generation),
            Work::WhatIfs(generation) => self.begin_what_ifs(job, *generation),
            Work::BatchSizes(effort, _) => self.begin_batch_sizes(job, *effort),
            Work::MeasureGpu(_) => self.begin_measuring(job),
        };
        self.starting = None;
        if began.is_none() {
            self.job_ended(job.id, Outcome::Stopped);
        } else {
            self.send_status(job.owner);
        }
    }

    /// Runs a job to its end, which comes back as an event.
    pub(crate) fn carry_out(
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
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::JobEnded(id, Box::new(outcome))).await;
        });
    }

    /// A job has ended.
    pub(crate) fn job_ended(&mut self, id: JobId, outcome: Outcome) {
        let Some(job) = self.scheduler.ended(id, Instant::now()) else { return };
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
            Work::BatchSizes(..) => self.batch_sizes_ended(&job, &outcome),
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

    /// Work does not start: consent was withdrawn, its time is used up, or something came first.
    fn work_skipped(&mut self, owner: WorkspaceId, work: &Work) {
        match work {
            Work::Probes(generation) => self.probes_ended(owner, *generation, Probes::default()),
            // A page may ask for it again.
            Work::BatchSizes(..) => self.batch_sizes_skipped(owner),
            _ => {}
        }
        self.send_status(owner);
    }

    fn look_at_machine(&self, owner: WorkspaceId) {
        let newest = self.workspaces[owner].measured.first();
        let device = newest.map(|(_, profiled)| &profiled.profile.device);
        let gpu = device.filter(|device| device.kind == "cuda").map(|device| device.name.clone());
        let look = tokio::spawn(self.profiler.machine_needed(gpu));
        let events = self.events.clone();
        tokio::spawn(async move {
            let needed = look.await.unwrap_or_default();
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::MachineSeen(needed)).await;
            if needed.is_some() {
                tokio::time::sleep(LOOK_AGAIN).await;
                let _ = events.send(Event::LookAgain).await;
            }
        });
    }
}

/// Runs work within its limits. It has no result if its permit was withdrawn and it did not end by itself,
/// or if it needs no permit and was stopped.
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
