//! Programs with few iterations. They run again with fewer iterations of each kind, or several
//! times, where each run either times or profiles.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ridgeline_gpu::agent::{
    Agent, Iterations, Outcome as AgentOutcome, RunOutcome, RunRequest, Signals,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Pipeline, blocking, recording, send_progress};
use crate::profiler::ProgressEvent;
use crate::store::create_private;

/// The minimum number of timed iterations for a second profiled one. Without a second profiled
/// iteration, memory peaks are less certain.
const MIN_TIMED: u32 = 3;
/// The maximum total time of the runs that only time. One such run is done in any case.
const TIMING_LIMIT: Duration = Duration::from_secs(30);

/// The iterations of a run that ended early.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenIterations {
    pub count: u32,
    /// What marked them.
    pub found_by: Option<String>,
    /// The number of signals that make up an iteration.
    pub signals: Option<Signals>,
}

/// How to measure a program with few iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Strategy {
    /// One more run.
    Once(Iterations),
    /// `times` runs that time, and one that profiles.
    Repeated { timing: Iterations, times: u32, profiling: Iterations },
}

impl Pipeline {
    /// Runs a request until there are enough iterations. `request` has the iterations of the last
    /// run afterwards. Also returns notes for the user.
    pub(super) async fn run_until_enough(
        &self,
        agent: &Agent,
        request: &mut RunRequest,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> (RunOutcome, Vec<String>) {
        let started = Instant::now();
        let ended = self.run_once(agent, request, progress, cancel).await;
        if ended.outcome != AgentOutcome::Short {
            return (ended, Vec::new());
        }
        let took = started.elapsed();
        let Some(seen) = seen_in(&request.out).await else { return (ended, Vec::new()) };
        let is_elsewhere = request.launcher.as_ref().is_some_and(|one| !one.remote.is_empty());
        let limit = Duration::from_secs(request.limits.seconds);
        let left = limit.saturating_sub(took);
        match strategy(&request.iterations, &seen, took, left, !is_elsewhere) {
            None => (ended, Vec::new()),
            Some(Strategy::Once(iterations)) => {
                let mut notes = Vec::new();
                if iterations.profiled < request.iterations.profiled
                    || iterations.timed < request.iterations.timed
                {
                    notes.push(format!(
                        "the program stops after few iterations: {} were timed after {} of warm-up",
                        iterations.timed, iterations.warmup
                    ));
                }
                request.iterations = iterations;
                (self.run_once(agent, request, progress, cancel).await, notes)
            }
            Some(Strategy::Repeated { timing, times, profiling }) => {
                let mut earlier = Vec::new();
                for number in 0..times {
                    let Some(seconds) = seconds_left(limit, started) else { break };
                    send_progress(progress, &format!("run {} of {}", number + 2, times + 2), 0.05);
                    let out = request.out.join(format!("run-{}", number + 1));
                    if !create_folder(&out).await {
                        break;
                    }
                    let mut run = RunRequest { out: out.clone(), ..request.clone() }.redirected();
                    run.iterations = timing.clone();
                    run.limits.seconds = seconds;
                    let ended = self.run_once(agent, &run, progress, cancel).await;
                    match ended.outcome {
                        AgentOutcome::Complete => earlier.push(out),
                        // Nothing was timed yet, so this is the program's result.
                        _ if earlier.is_empty() => return (ended, Vec::new()),
                        AgentOutcome::Cancelled => return (ended, Vec::new()),
                        _ => break,
                    }
                }
                let timed = earlier.len();
                request.iterations = profiling;
                request.earlier = earlier;
                let mut last = request.clone();
                last.limits.seconds = seconds_left(limit, started).unwrap_or(1);
                send_progress(progress, &format!("run {0} of {0}", timed + 2), 0.05);
                let ended = self.run_once(agent, &last, progress, cancel).await;
                let (folders, out) = (std::mem::take(&mut request.earlier), request.out.clone());
                // Their times are in the last run's recording.
                let _ = blocking(move || remove(&folders, &out)).await;
                (ended, vec![note(seen.count, timed)])
            }
        }
    }
}

/// Reduces the iterations, for a program that ended before it had as many as requested. The
/// recording's manifest has their number. Returns `None` if there were too few to measure in one
/// run.
pub(super) async fn fewer_iterations(folder: &Path, requested: &Iterations) -> Option<Iterations> {
    shortened(requested, &seen_in(folder).await?)
}

async fn seen_in(folder: &Path) -> Option<SeenIterations> {
    let folder = folder.to_owned();
    blocking(move || recording::iterations_reached(&folder)).await.ok()?
}

async fn create_folder(folder: &Path) -> bool {
    let folder = folder.to_owned();
    matches!(blocking(move || create_private(&folder)).await, Ok(Ok(())))
}

fn remove(folders: &[PathBuf], out: &Path) {
    for folder in folders.iter().filter(|folder| folder.parent() == Some(out)) {
        // The next cleanup of the cache removes the rest.
        let _ = std::fs::remove_dir_all(folder);
    }
}

fn seconds_left(limit: Duration, started: Instant) -> Option<u64> {
    Some(limit.saturating_sub(started.elapsed()).as_secs()).filter(|seconds| *seconds > 0)
}

/// Decides how to measure a program whose run `took` this time and had the iterations in `seen`,
/// with the time `left` of its limit.
fn strategy(
    requested: &Iterations,
    seen: &SeenIterations,
    took: Duration,
    left: Duration,
    may_repeat: bool,
) -> Option<Strategy> {
    let once = shortened(requested, seen);
    let enough = requested
        .warmup
        .saturating_add(requested.profiled)
        .saturating_add(requested.timed.min(MIN_TIMED));
    if seen.count >= enough || seen.count == 0 || !may_repeat {
        return once.map(Strategy::Once);
    }
    let known = with_known_signals(requested, seen);
    // What comes before the first signal is not a normal iteration.
    let min_warmup = u32::from(seen.signals.is_some_and(|signals| signals.first > 0));
    let warmup = requested.warmup.min(seen.count / 2).max(min_warmup).min(seen.count - 1);
    let in_each = (seen.count - warmup).min(requested.timed).max(1);
    let wanted = requested.timed.div_ceil(in_each).max(1);
    // With a margin, because profiled iterations take longer.
    let room = |time: Duration| (time.as_secs_f64() / (1.2 * took.as_secs_f64()).max(0.01)) as u32;
    let affordable = room(left).saturating_sub(1);
    if affordable == 0 {
        return once.map(Strategy::Once);
    }
    let times = wanted.min(affordable).min(room(TIMING_LIMIT).saturating_sub(1).max(1));
    Some(Strategy::Repeated {
        timing: Iterations { warmup, timed: in_each, profiled: 0, ..known.clone() },
        times,
        profiling: Iterations {
            warmup,
            timed: 0,
            profiled: requested.profiled.min(seen.count - warmup).max(1),
            ..known
        },
    })
}

/// Returns the requested iterations, with what is known about how to find them.
fn with_known_signals(requested: &Iterations, seen: &SeenIterations) -> Iterations {
    Iterations {
        timed_at_most: None,
        found_by: requested.found_by.clone().or_else(|| seen.found_by.clone()),
        signals: seen.signals,
        ..requested.clone()
    }
}

/// Reduces the timed iterations, if enough remain. Otherwise requests one profiled iteration, and
/// one or two timed ones.
fn shortened(requested: &Iterations, seen: &SeenIterations) -> Option<Iterations> {
    let known = with_known_signals(requested, seen);
    let left = seen.count.saturating_sub(requested.warmup.saturating_add(requested.profiled));
    if left >= requested.timed.min(MIN_TIMED)
        && (left < requested.timed || requested.timed_at_most.is_some())
    {
        return Some(Iterations { timed: left.min(requested.timed), ..known });
    }
    let unprofiled = seen.count.checked_sub(1).filter(|left| *left > 0)?;
    let timed = if unprofiled >= 3 { requested.timed.clamp(1, 2) } else { 1 };
    let warmup = requested.warmup.min(unprofiled.saturating_sub(timed));
    Some(Iterations { warmup, timed, profiled: 1, ..known })
}

/// Returns a note on how often the program ran.
fn note(count: u32, timed: usize) -> String {
    let (has, them) = match count {
        1 => ("1 iteration".to_owned(), "it"),
        count => (format!("{count} iterations"), "them"),
    };
    let times = if timed == 1 { "once".to_owned() } else { format!("{timed} times") };
    format!(
        "the program has {has}: it was run {} times, once to find {them}, {times} to time {them} \
        and once to profile {them}",
        timed + 2
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(count: u32) -> SeenIterations {
        SeenIterations { count, ..SeenIterations::default() }
    }

    #[track_caller]
    fn check_shortened(seen: u32, expected: Option<(u32, u32, u32)>) {
        let requested = Iterations { timed_at_most: Some(6), ..Iterations::default() };
        let got = shortened(&requested, &self::seen(seen));
        let got = got.map(|fewer| (fewer.warmup, fewer.timed, fewer.profiled));
        assert_eq!(got, expected);
        if let Some((warmup, timed, profiled)) = expected {
            assert!(warmup + timed + profiled <= seen);
        }
    }

    #[test]
    fn few_iterations_are_split_into_kinds() {
        check_shortened(0, None);
        check_shortened(1, None);
        check_shortened(2, Some((0, 1, 1)));
        check_shortened(3, Some((1, 1, 1)));
        check_shortened(4, Some((1, 2, 1)));
        check_shortened(6, Some((2, 2, 1)));
        check_shortened(7, Some((2, 3, 2)));
        check_shortened(9, Some((2, 3, 2)));
        // If many were requested, fewer are timed and the others stay the same.
        let many = Iterations { timed: 60, ..Iterations::default() };
        let timed = |seen: u32| {
            shortened(&many, &self::seen(seen)).map(|fewer| (fewer.timed, fewer.profiled))
        };
        assert_eq!((timed(32), timed(7), timed(6)), (Some((28, 2)), Some((3, 2)), Some((2, 1))));
    }

    fn repeated(count: u32, took: u64, left: u64) -> Option<(u32, u32, u32, u32)> {
        let (took, left) = (Duration::from_secs(took), Duration::from_secs(left));
        match strategy(&Iterations::default(), &seen(count), took, left, true)? {
            Strategy::Once(_) => None,
            Strategy::Repeated { timing, times, profiling } => {
                assert_eq!((timing.profiled, profiling.timed), (0, 0));
                assert_eq!(timing.warmup, profiling.warmup);
                assert!(timing.warmup + timing.timed.max(profiling.profiled) <= count);
                Some((timing.warmup, timing.timed, times, profiling.profiled))
            }
        }
    }

    #[test]
    fn a_program_with_few_iterations_runs_several_times() {
        assert_eq!(repeated(0, 1, 100), None);
        assert_eq!(repeated(1, 1, 100), Some((0, 1, 3, 1)));
        assert_eq!(repeated(2, 1, 100), Some((1, 1, 3, 1)));
        assert_eq!(repeated(3, 1, 100), Some((1, 2, 2, 2)));
        assert_eq!(repeated(4, 1, 100), Some((2, 2, 2, 2)));
        assert_eq!(repeated(6, 1, 100), Some((2, 3, 1, 2)));
        assert_eq!(repeated(7, 1, 100), None, "one run has enough");
    }

    #[test]
    fn repeated_runs_respect_the_time_limit() {
        assert_eq!(repeated(1, 20, 100), Some((0, 1, 1, 1)), "more would take too long");
        assert_eq!(repeated(1, 10, 25), Some((0, 1, 1, 1)));
        assert_eq!(repeated(1, 60, 60), None);
        assert_eq!(repeated(2, 60, 60), None);
    }

    #[test]
    fn work_before_the_loop_is_not_timed() {
        let signals = Some(Signals { first: 1, every: 2 });
        let seen = SeenIterations { count: 3, signals, found_by: Some("module".to_owned()) };
        let requested = Iterations { warmup: 0, ..Iterations::default() };
        let second = Duration::from_secs(1);
        let strategy = strategy(&requested, &seen, second, 60 * second, true);
        let Some(Strategy::Repeated { timing, .. }) = strategy else { panic!("{strategy:?}") };
        assert_eq!((timing.warmup, timing.signals), (1, signals));
        assert_eq!(timing.found_by.as_deref(), Some("module"));
    }

    #[test]
    fn a_note_says_how_often_the_program_ran() {
        assert_eq!(
            note(1, 3),
            "the program has 1 iteration: it was run 5 times, once to find it, 3 times to time it and \
             once to profile it"
        );
        assert!(
            note(2, 1).contains("2 iterations: it was run 3 times, once to find them, once to")
        );
    }
}
