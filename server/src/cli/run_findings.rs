//! The findings of a run on the command line, with the best available costs.

use ridgeline_analysis::diagnose;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::probe_list::ProbeKinds;
use ridgeline_analysis::optimize::study::RecordedRun;
use tokio_util::sync::CancellationToken;

use super::exit::Failure;
use super::run;
use crate::findings;
use crate::pipeline::{Outcome, Pipeline, Plan};
use crate::profiler::Profiled;

/// The findings of a run that has just ended, without those suppressed in the current texts. If it
/// improves their costs, single operators are timed for a few seconds in the same Python. The
/// timings are stored with the recording.
///
/// # Errors
/// If the user stopped it. Inner result: the error of `subject`.
pub(super) async fn findings_of_new_run(
    pipeline: &Pipeline,
    plan: &Plan,
    profiled: &Profiled,
    recorded_run: &Result<RecordedRun, String>,
    cancel: &CancellationToken,
) -> Result<Result<Vec<Finding>, String>, Failure> {
    let found = findings::of_run(profiled, recorded_run);
    let (Ok(recorded_run), Some(recording)) = (recorded_run, profiled.recording.as_deref()) else {
        return Ok(found);
    };
    let kinds = found.as_deref().map_or(ProbeKinds::NONE, diagnose::probes_for);
    // A launcher may start processes on another machine.
    if kinds == ProbeKinds::NONE || plan.launched_by.is_some() {
        return Ok(found);
    }
    let probed = run::with_progress_bar(async |progress| {
        pipeline.probe(plan, recorded_run, (kinds, None), Some(recording), &progress, cancel).await
    });
    match probed.await {
        Ok(_) => Ok(Ok(findings::of_recorded_run(profiled, recorded_run).findings)),
        Err(Outcome::Cancelled) => Err(run::failure_of(Outcome::Cancelled)),
        Err(other) => {
            tracing::debug!("single operators were not run for findings: {other:?}");
            Ok(found)
        }
    }
}
