//! One iteration of a program for predictions: recorded, or just its operators. Nothing is stored,
//! so it never becomes the project's newest measurement.

use ridgeline_analysis::attribution;
use ridgeline_analysis::operators::op_list::OpList;
use ridgeline_analysis::operators::recorded_step::RecordedStep;
use ridgeline_gpu::agent::{Claim, EstimateRequest, Outcome as AgentOutcome, RunRequest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::estimate::read_list;
use super::outcome::{self, Outcome, Problem, ProblemKind};
use super::plan::Plan;
use super::recording;
use super::{Pipeline, blocking, files_problem, or_cancelled, send_progress, stage};
use crate::profiler::ProgressEvent;

impl Pipeline {
    /// Runs a plan and returns the iteration that predictions start from, with the host time per
    /// operator in nanoseconds if it ran on a CPU.
    ///
    /// # Errors
    /// An outcome without a measurement.
    pub(crate) async fn recorded_step(
        &self,
        plan: &Plan,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<(RecordedStep, Option<f64>), Outcome> {
        send_progress(progress, stage::STARTING_PYTHON, 0.02);
        let interpreter = or_cancelled(cancel, self.interpreter(plan)).await?;
        let agent = or_cancelled(cancel, self.agent(plan, &interpreter)).await?;
        let (store, root) = (self.store().clone(), plan.root.clone());
        let folder = blocking(move || store.new_estimate(&root)).await?.map_err(files_problem)?;
        let mut request = plan.run_request(folder.path().to_owned());
        let (ended, _) = self.run_until_enough(&agent, &mut request, progress, cancel).await;
        if ended.outcome != AgentOutcome::Complete {
            let out = folder.path().to_owned();
            return Err(without_log(
                outcome::without_measurement(plan, &request, &ended, &interpreter, out).await,
            ));
        }
        blocking(move || {
            let recording = recording::load(folder.path()).map_err(|error| error.to_string())?;
            let profile = attribution::attribute(&recording).map_err(|error| error.to_string())?;
            let host = attribution::host_ns_per_operator(&recording, &profile);
            Ok((attribution::recorded_step(&recording, &profile), host))
        })
        .await?
        .map_err(|why: String| Outcome::Problem(Problem::new(ProblemKind::Files, why, "")))
    }

    /// Runs a plan's program on fake tensors that claim to be on a GPU, and returns the operators
    /// of one iteration.
    ///
    /// # Errors
    /// An outcome without a measurement: the program failed, or did not reach an iteration.
    pub(crate) async fn operators(
        &self,
        plan: &Plan,
        cancel: &CancellationToken,
    ) -> Result<OpList, Outcome> {
        let interpreter = or_cancelled(cancel, self.interpreter(plan)).await?;
        let agent = or_cancelled(cancel, self.agent(plan, &interpreter)).await?;
        let (store, root) = (self.store().clone(), plan.root.clone());
        let folder = blocking(move || store.new_estimate(&root)).await?.map_err(files_problem)?;
        let run =
            RunRequest { device: "cpu".to_owned(), ..plan.run_request(folder.path().to_owned()) };
        let request =
            EstimateRequest { run, claim: Claim::Cuda, batches: None, low_priority: false };
        let (events, _unread) = mpsc::channel(1);
        let ended = agent.estimate(request, events, cancel.clone()).await;
        let root = plan.root.clone();
        blocking(move || read_list(&root, folder.path(), &ended)).await?
    }
}

/// Removes the log's path, because the log is deleted with the folder.
pub(super) fn without_log(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(mut failed) => {
            failed.log = None;
            Outcome::Failed(failed)
        }
        Outcome::Problem(problem) => Outcome::Problem(Problem { log: None, ..problem }),
        other => other,
    }
}
