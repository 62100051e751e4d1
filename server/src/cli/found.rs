//! The findings of a run on the command line, with the best available costs.

use ridgeline_analysis::diagnose;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::probe_list::Wanted;
use ridgeline_analysis::optimize::study::Subject;
use tokio_util::sync::CancellationToken;

use super::exit::Failure;
use super::run;
use crate::findings;
use crate::pipeline::{Outcome, Pipeline, Plan};
use crate::profiler::Profiled;

/// The findings of a run that has just ended, without those silenced in the current texts. If it
/// improves their costs, single operators are timed for a few seconds in the same Python. The
/// timings are stored with the recording.
///
/// # Errors
/// If the user stopped it. Inner result: the error of `subject`.
pub(super) async fn of_fresh_run(
    pipeline: &Pipeline,
    plan: &Plan,
    profiled: &Profiled,
    subject: &Result<Subject, String>,
    cancel: &CancellationToken,
) -> Result<Result<Vec<Finding>, String>, Failure> {
    let found = findings::of_run(profiled, subject);
    let (Ok(subject), Some(recording)) = (subject, profiled.recording.as_deref()) else {
        return Ok(found);
    };
    let wanted = found.as_deref().map_or(Wanted::NONE, diagnose::wanted);
    // A launcher may start processes on another machine.
    if wanted == Wanted::NONE || plan.launched_by.is_some() {
        return Ok(found);
    }
    let probed = run::with_progress_bar(async |progress| {
        pipeline.probe(plan, subject, (wanted, None), Some(recording), &progress, cancel).await
    });
    match probed.await {
        Ok(_) => Ok(Ok(findings::of_subject(profiled, subject).findings)),
        Err(Outcome::Cancelled) => Err(run::failure_of(Outcome::Cancelled)),
        Err(other) => {
            tracing::debug!("single operators were not run for findings: {other:?}");
            Ok(found)
        }
    }
}
