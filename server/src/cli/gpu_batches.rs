//! The batch size that each GPU needs, for `ridgeline predict`: estimates the program with its own
//! batch size and with a larger one.

use ridgeline_analysis::operators::op_list::OpList;
use ridgeline_analysis::predict::device_comparison::Comparison;
use ridgeline_analysis::predict::gpu_batches::{GpuBatches, ScaledStep, gpu_batches};
use tokio_util::sync::CancellationToken;

use super::exit::Failure;
use super::run;
use crate::pipeline::{Pipeline, Plan};

/// The factors for the second estimate, in order of preference. A larger one averages out rounding;
/// an epoch must have that many samples.
const FACTORS: [u64; 3] = [8, 4, 2];

/// Estimates the program at two batch sizes and predicts the one that each GPU needs.
///
/// # Errors
/// Why that is unknown, as part of a sentence.
pub(super) async fn find(
    pipeline: &Pipeline,
    plan: &Plan,
    comparison: &Comparison,
    cancel: &CancellationToken,
) -> Result<GpuBatches, String> {
    let other = other_plan(plan, comparison)?;
    let (own, other) =
        tokio::join!(estimate(pipeline, plan, cancel), estimate(pipeline, &other, cancel));
    let scaled = ScaledStep::between(&own?, &other?).map_err(|error| error.to_string())?;
    gpu_batches(comparison, &scaled)
        .ok_or_else(|| "the run did not report its batch size".to_owned())
}

/// Returns the plan with another batch size.
fn other_plan(plan: &Plan, comparison: &Comparison) -> Result<Plan, String> {
    let samples = comparison.batch_size.ok_or("the run did not report its batch size")?;
    let written = plan.batch_size().map_err(|refusal| refusal.message)?;
    // With gradient accumulation, an iteration has several batches.
    let own = written.unwrap_or(samples);
    let epoch = comparison.samples_per_epoch.unwrap_or(u64::MAX);
    let factor = FACTORS.into_iter().find(|factor| samples.saturating_mul(*factor) <= epoch);
    let other = match factor {
        Some(factor) => own.saturating_mul(factor),
        None if own >= 2 => own / 2,
        None => return Err("an epoch has only one sample".to_owned()),
    };
    let other = u32::try_from(other).map_err(|_| "the batch size is too large".to_owned())?;
    plan.clone().at_batch(other).map_err(|refusal| refusal.message)
}

async fn estimate(
    pipeline: &Pipeline,
    plan: &Plan,
    cancel: &CancellationToken,
) -> Result<OpList, String> {
    pipeline.operators(plan, cancel).await.map_err(|outcome| {
        let Failure { what, .. } = run::failure_of(outcome);
        let first = what.lines().next().unwrap_or_default();
        format!("the program cannot be estimated on fake tensors ({first})")
    })
}
