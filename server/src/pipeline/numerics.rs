//! Runs the original and an edited text from the same random seed and compares their losses.

use std::path::Path;

use ridgeline_analysis::optimize::numerics::{Check, Trajectory, compare, tolerance};
use ridgeline_analysis::optimize::rewrite::EditKind;
use ridgeline_gpu::agent::{Agent, Outcome as AgentOutcome, RunRequest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::measure::Overlay;
use super::outcome::Outcome;
use super::plan::Plan;
use super::{Pipeline, blocking, or_cancelled, recording, send_progress};
use crate::profiler::ProgressEvent;

/// The number of optimizer steps: as many as fit into the time below.
const STEPS: std::ops::RangeInclusive<u32> = 3..=20;
const STEPS_FOR_NS: f64 = 20e9;
/// The largest file that is read, in bytes. Twenty steps have some kilobytes.
const READ_LIMIT: u64 = 16 << 20;

impl Pipeline {
    /// Compares what two texts train. `kinds` are the edits between them, and `iteration_ns` is the time of an
    /// iteration.
    ///
    /// # Errors
    /// [`Outcome::Cancelled`], or no folder for the runs.
    pub(crate) async fn numerics(
        &self,
        plan: &Plan,
        iteration_ns: f64,
        (original, edited): (&Overlay, &Overlay),
        kinds: &[EditKind],
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Check, Outcome> {
        let unknown = |why: &str| Ok(Check::Unknown(why.to_owned()));
        let Some(tolerance) = tolerance(kinds) else {
            return unknown("loader workers draw other random numbers");
        };
        if plan.launched_by.is_some() {
            return unknown("it is not compared under a launcher");
        }
        let interpreter = or_cancelled(cancel, self.interpreter(plan)).await?;
        let agent = or_cancelled(cancel, self.agent(plan, &interpreter)).await?;
        let steps = (STEPS_FOR_NS / iteration_ns.max(1.0)) as u32;
        let steps = steps.clamp(*STEPS.start(), *STEPS.end());
        let mut runs = Vec::with_capacity(3);
        for (overlay, share) in [(original, 0.0), (original, 0.33), (edited, 0.67)] {
            send_progress(progress, "comparing losses", share);
            let folder = self.folder_for_runs(plan).await?;
            let request = RunRequest {
                overlay: overlay.clone(),
                trajectory: Some(steps),
                ..plan.run_request(folder.path().to_owned())
            };
            let run = trajectory(&agent, request.redirected(), cancel).await;
            blocking(move || drop(folder)).await?;
            if cancel.is_cancelled() {
                return Err(Outcome::Cancelled);
            }
            match run {
                Ok(run) => runs.push(run),
                Err(why) => return Ok(Check::Unknown(why)),
            }
        }
        let [first, again, edited] = &runs[..] else { return unknown("a run is missing") };
        Ok(compare([first, again], edited, tolerance))
    }
}

async fn trajectory(
    agent: &Agent,
    request: RunRequest,
    cancel: &CancellationToken,
) -> Result<Trajectory, String> {
    let (events, mut unread) = mpsc::channel(16);
    let out = request.out.clone();
    let run = agent.run(request, events, cancel.clone());
    // Progress is that of the three runs.
    let (ended, ()) = tokio::join!(run, async { while unread.recv().await.is_some() {} });
    if ended.outcome != AgentOutcome::Complete {
        return Err(ended
            .message
            .unwrap_or_else(|| "a run from a seed did not complete".to_owned()));
    }
    let read = blocking(move || read(&out)).await;
    read.unwrap_or_else(|_| Err("its losses cannot be read".to_owned()))
}

fn read(out: &Path) -> Result<Trajectory, String> {
    let bytes = recording::read_bounded(out, "trajectory.json", READ_LIMIT);
    let bytes = bytes.map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| format!("its losses cannot be read: {error}"))
}
