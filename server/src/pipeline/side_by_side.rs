//! Versions of the program side by side: they take turns of a few iterations, so that what slows the
//! machine down slows them all, and each turn is compared with the others of its round.
//!
//! On a machine that others use, one run's iterations differ from the next run's by a tenth and more,
//! and no number of iterations mends that; the middle one of a dozen rounds is off by two to five
//! hundredths.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ridgeline_analysis::base::statistics::median;
use ridgeline_analysis::profile::Profile;
use ridgeline_gpu::agent::{
    Agent, Iterations, Mode, Outcome as Ended, RunOutcome, RunRequest, Version,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Pipeline, blocking, read_in_background, recording};
use crate::profiler::{Profiled, ProgressEvent};

/// Iterations of a turn, of which the first finds the caches as another version left them.
const TURN: u32 = 5;
const DROPPED: usize = 1;
/// Iterations that each version times, in all.
const TIMED: RangeInclusive<u32> = 4 * TURN..=48 * TURN;

/// Texts in the places of files, by path relative to the root, and the batch size that a provider is
/// asked for.
pub(super) type Different = (BTreeMap<String, String>, Option<u64>);

/// What one version did.
pub(super) struct Measured {
    /// Its recording.
    pub profile: Profile,
    /// By round: the median of the turn's iterations, in nanoseconds.
    pub turns: Vec<f64>,
}

/// What is to be run, without what is different.
pub(super) struct SideBySide<'a> {
    /// An agent that can; see [`can`].
    pub agent: &'a Agent,
    /// The request as for one run; its `out` is a folder for all of it.
    pub request: RunRequest,
    /// How long an iteration takes, in nanoseconds, as far as one knows.
    pub iteration_ns: f64,
    /// Each version times as many iterations as fit into so much time.
    pub timed_for: Duration,
    /// And so many turns more: another batch is profiled then, which may be a larger one where
    /// sentences are padded.
    pub more_turns: u32,
}

/// Whether versions of what was measured can run side by side, and whether that is fair: several
/// processes on one GPU would need its memory several times over, and what loads batches beside the
/// loop would go on while the others have their turns.
pub(super) async fn can(agent: &Agent, measured: &Profiled) -> bool {
    let forks = agent.facts().is_some_and(|facts| facts.mode == Mode::Fork);
    let Some(folder) = measured.recording.clone() else { return false };
    if !forks || measured.profile.device.kind != "cpu" {
        return false;
    }
    let loads_beside = blocking(move || recording::has_loader_workers(&folder));
    loads_beside.await.ok() == Some(Some(false))
}

impl Pipeline {
    /// Runs the versions and says what each did, in their order.
    ///
    /// # Errors
    /// How it ended where it is no measurement.
    pub(super) async fn side_by_side(
        &self,
        run: SideBySide<'_>,
        versions: &[Different],
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Vec<Measured>, RunOutcome> {
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
        // Each of them may take as long as one alone; of memory all of them may take no more.
        let each = request.limits.seconds;
        request.limits.seconds = each.saturating_mul(u64::try_from(versions.len()).unwrap_or(1));
        let room = timed_for.as_nanos() as f64 / iteration_ns.max(1.0);
        let timed = (room as u32).clamp(*TIMED.start(), *TIMED.end()) / TURN * TURN;
        let timed = timed.saturating_add(more_turns.saturating_mul(TURN));
        request.iterations =
            Iterations { timed, timed_at_most: None, ..request.iterations.clone() };
        let mut ended = self.run_once(agent, &request, progress, cancel).await;
        if ended.outcome == Ended::Short
            && let Some(fewer) = fewer_turns(&folders, &request.iterations).await
        {
            request.iterations = fewer;
            ended = self.run_once(agent, &request, progress, cancel).await;
        }
        if ended.outcome != Ended::Complete {
            return Err(ended);
        }
        let mut measured = Vec::with_capacity(folders.len());
        for folder in &folders {
            let read = read_in_background(folder, None, &request.root).await;
            let Ok(read) = read else {
                let message = Some("its recording cannot be read".to_owned());
                return Err(RunOutcome { outcome: Ended::Exited, message, ..ended });
            };
            let turns = turns(&read.profile.iteration.timed_ns);
            measured.push(Measured { profile: read.profile, turns });
        }
        Ok(measured)
    }
}

/// As many turns as the shortest of the versions has iterations for; nothing where that is fewer than
/// two.
async fn fewer_turns(folders: &[PathBuf], asked: &Iterations) -> Option<Iterations> {
    let folders = folders.to_vec();
    let seen = blocking(move || {
        folders.iter().filter_map(|folder: &PathBuf| recording::iterations_seen(folder)).min()
    });
    let left = seen.await.ok()??.checked_sub(asked.warmup.saturating_add(asked.profiled))?;
    let timed = left.min(asked.timed.saturating_sub(1)) / TURN * TURN;
    (timed >= 2 * TURN).then(|| Iterations { timed, ..asked.clone() })
}

/// The median iteration of each whole turn.
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
        // A turn that was cut off tells nothing.
        assert_eq!(turns(&[1.0; 9]), [1.0]);
        assert!(turns(&[]).is_empty());
    }
}
