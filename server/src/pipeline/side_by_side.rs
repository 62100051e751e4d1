//! Runs versions of the program side by side. They take turns of a few iterations, so that a slow
//! moment of the machine slows all of them, and each turn is compared with the others of its round.
//!
//! On a shared machine, the iteration times of consecutive runs differ by 10% and more, however
//! many iterations are timed. The median of a dozen rounds is off by 2 to 5%.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ridgeline_analysis::base::statistics::median;
use ridgeline_analysis::profile::Profile;
use ridgeline_gpu::agent::{
    Agent, Iterations, Mode, Outcome as AgentOutcome, RunOutcome, RunRequest, Version,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Pipeline, blocking, read_in_background, recording};
use crate::profiler::{Profiled, ProgressEvent};

/// The number of iterations in a turn.
const TURN: u32 = 5;
/// The number of iterations dropped at the start of a turn, because another version has just used
/// the caches.
const DROPPED: usize = 1;
/// The total number of timed iterations of each version.
const TIMED: RangeInclusive<u32> = 4 * TURN..=48 * TURN;

/// The differences between versions: an overlay of files by path relative to the root, and the
/// batch size for a provider.
pub(super) type VersionChanges = (BTreeMap<String, String>, Option<u64>);

/// The measurement of one version.
pub(super) struct MeasuredVersion {
    pub profile: Profile,
    /// The median iteration time of each turn in nanoseconds, by round, without waiting for the CPU.
    pub turns: Vec<f64>,
}

/// What to run, without the differences between versions.
pub(super) struct SideBySide<'a> {
    /// An agent that supports it, see [`is_supported`].
    pub agent: &'a Agent,
    /// The request as for a single run. Its `out` is a folder for all versions.
    pub request: RunRequest,
    /// The estimated time of an iteration in nanoseconds.
    pub iteration_ns: f64,
    /// The number of timed iterations of each version is what fits into this time.
    pub timed_for: Duration,
    /// Additional turns. They shift which batch is profiled, which may be a larger one if sequences
    /// are padded.
    pub more_turns: u32,
}

/// Returns whether versions of a measured program can be compared fairly side by side. Several
/// processes on one GPU would need its memory several times over, and loader workers would continue
/// while other versions have their turns.
pub(super) async fn is_supported(agent: &Agent, measured: &Profiled) -> bool {
    let forks = agent.facts().is_some_and(|facts| facts.mode == Mode::Fork);
    let Some(folder) = measured.recording.clone() else { return false };
    if !forks || measured.profile.device.kind != "cpu" {
        return false;
    }
    let has_loader_workers = blocking(move || recording::has_loader_workers(&folder));
    has_loader_workers.await.ok() == Some(Some(false))
}

impl Pipeline {
    /// Runs the versions and measures each, in their order.
    ///
    /// # Errors
    /// How the run ended, if there is no measurement.
    pub(super) async fn side_by_side(
        &self,
        run: SideBySide<'_>,
        versions: &[VersionChanges],
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Vec<MeasuredVersion>, RunOutcome> {
        let SideBySide { agent, mut request, iteration_ns, timed_for, more_turns } = run;
        let folders: Vec<PathBuf> =
            (0..versions.len()).map(|number| request.out.join(number.to_string())).collect();
        request.versions = versions
            .iter()
            .zip(&folders)
            .map(|((overlay, batch_size), out)| Version {
                out: out.clone(),
                overlay: overlay.clone(),
                batch_size: *batch_size,
            })
            .collect();
        request.turn = TURN;
        // The time limit applies to each version, the memory limit to all of them together.
        let each = request.limits.seconds;
        request.limits.seconds = each.saturating_mul(u64::try_from(versions.len()).unwrap_or(1));
        let room = timed_for.as_nanos() as f64 / iteration_ns.max(1.0);
        let timed = (room as u32).clamp(*TIMED.start(), *TIMED.end()) / TURN * TURN;
        let timed = timed.saturating_add(more_turns.saturating_mul(TURN));
        request.iterations =
            Iterations { timed, timed_at_most: None, ..request.iterations.clone() };
        let mut ended = self.run_once(agent, &request, progress, cancel).await;
        if ended.outcome == AgentOutcome::Short
            && let Some(fewer) = fewer_turns(&folders, &request.iterations).await
        {
            request.iterations = fewer;
            ended = self.run_once(agent, &request, progress, cancel).await;
        }
        if ended.outcome != AgentOutcome::Complete {
            return Err(ended);
        }
        let mut measured = Vec::with_capacity(folders.len());
        for folder in &folders {
            let read = read_in_background(folder, None, &request.root).await;
            let Ok(read) = read else {
                let message = Some("its recording cannot be read".to_owned());
                return Err(RunOutcome { outcome: AgentOutcome::Exited, message, ..ended });
            };
            // Other programs disturb a turn more than the next one.
            let of_folder = folder.clone();
            let times_ns =
                blocking(move || recording::undisturbed_ns(&of_folder)).await.ok().flatten();
            let turns = turns(times_ns.as_ref().unwrap_or(&read.profile.iteration.timed_ns));
            measured.push(MeasuredVersion { profile: read.profile, turns });
        }
        Ok(measured)
    }
}

/// Reduces the iterations to as many turns as the shortest version has iterations for. Returns
/// `None` if those are fewer than two.
async fn fewer_turns(folders: &[PathBuf], requested: &Iterations) -> Option<Iterations> {
    let folders = folders.to_vec();
    let seen = blocking(move || {
        folders.iter().filter_map(|folder: &PathBuf| recording::iteration_count(folder)).min()
    });
    let left =
        seen.await.ok()??.checked_sub(requested.warmup.saturating_add(requested.profiled))?;
    let timed = left.min(requested.timed.saturating_sub(1)) / TURN * TURN;
    (timed >= 2 * TURN).then(|| Iterations { timed, ..requested.clone() })
}

/// Computes the median iteration time of each complete turn.
fn turns(timed_ns: &[f64]) -> Vec<f64> {
    let turns = timed_ns.chunks_exact(TURN as usize);
    turns.filter_map(|turn| median(turn.get(DROPPED..)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_its_median_without_the_first_iteration() {
        assert_eq!(turns(&[99.0, 1.0, 2.0, 3.0, 9.0, 0.0, 4.0, 4.0, 4.0, 4.0]), [2.5, 4.0]);
        // An incomplete turn is ignored.
        assert_eq!(turns(&[1.0; 9]), [1.0]);
        assert!(turns(&[]).is_empty());
    }
}
