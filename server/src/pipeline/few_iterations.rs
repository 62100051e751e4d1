//! Programs of few iterations: run once more with fewer of each kind, or several times, each run timing
//! or profiling what there is.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ridgeline_gpu::agent::{Agent, Iterations, Outcome as Ended, RunOutcome, RunRequest, Signals};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Pipeline, blocking, recording, tell};
use crate::profiler::ProgressEvent;
use crate::store::create_private;

/// Timing fewer than these is not worth a second profiled iteration, without which peaks of memory are
/// less certain.
const A_FEW: u32 = 3;
/// Runs that only time stop at so much time together, unless there would be none.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a run that ended early told of the program's iterations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// How many there were.
    pub count: u32,
    /// What marked them.
    pub found_by: Option<String>,
    /// How many signals made them.
    pub signals: Option<Signals>,
}

/// How to measure a program of few iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Remedy {
    /// One more run.
    Once(Iterations),
    /// So many runs that time, and one that profiles.
    Repeated { timing: Iterations, times: u32, profiling: Iterations },
}

impl Pipeline {
    /// Runs a request until there are enough iterations, and leaves in it what the last run was asked for.
    /// Also what the person should know of that.
    pub(super) async fn run_until_enough(
        &self,
        agent: &Agent,
        request: &mut RunRequest,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> (RunOutcome, Vec<String>) {
        let began = Instant::now();
        let ended = self.run_once(agent, request, progress, cancel).await;
        if ended.outcome != Ended::Short {
            return (ended, Vec::new());
        }
        let took = began.elapsed();
        let Some(seen) = seen_in(&request.out).await else { return (ended, Vec::new()) };
        let is_elsewhere = request.launcher.as_ref().is_some_and(|one| !one.remote.is_empty());
        let limit = Duration::from_secs(request.limits.seconds);
        let left = limit.saturating_sub(took);
        match remedy(&request.iterations, &seen, took, left, !is_elsewhere) {
            None => (ended, Vec::new()),
            Some(Remedy::Once(iterations)) => {
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
            Some(Remedy::Repeated { timing, times, profiling }) => {
                let mut earlier = Vec::new();
                for number in 0..times {
                    let Some(seconds) = seconds_left(limit, began) else { break };
                    tell(progress, &format!("run {} of {}", number + 2, times + 2), 0.05);
                    let out = request.out.join(format!("run-{}", number + 1));
                    if !made(&out).await {
                        break;
                    }
                    let mut run = RunRequest { out: out.clone(), ..request.clone() }.redirected();
                    run.iterations = timing.clone();
                    run.limits.seconds = seconds;
                    let of_run = self.run_once(agent, &run, progress, cancel).await;
                    match of_run.outcome {
                        Ended::Complete => earlier.push(out),
                        // Nothing was timed yet: this is how the program ends.
                        _ if earlier.is_empty() => return (of_run, Vec::new()),
                        Ended::Cancelled => return (of_run, Vec::new()),
                        _ => break,
                    }
                }
                let timed = earlier.len();
                request.iterations = profiling;
                request.earlier = earlier;
                let mut last = request.clone();
                last.limits.seconds = seconds_left(limit, began).unwrap_or(1);
                tell(progress, &format!("run {0} of {0}", timed + 2), 0.05);
                let ended = self.run_once(agent, &last, progress, cancel).await;
                let (folders, out) = (std::mem::take(&mut request.earlier), request.out.clone());
                // Their times are in the last one's recording.
                let _ = blocking(move || remove(&folders, &out)).await;
                (ended, vec![note(seen.count, timed)])
            }
        }
    }
}

/// Fewer iterations, for a program that ended before as many as were asked for: the recording's
/// manifest says how many there were. `None` where there were too few to measure anything in one run.
pub(super) async fn fewer_iterations(folder: &Path, asked: &Iterations) -> Option<Iterations> {
    shortened(asked, &seen_in(folder).await?)
}

async fn seen_in(folder: &Path) -> Option<Seen> {
    let folder = folder.to_owned();
    blocking(move || recording::seen(&folder)).await.ok()?
}

async fn made(folder: &Path) -> bool {
    let folder = folder.to_owned();
    matches!(blocking(move || create_private(&folder)).await, Ok(Ok(())))
}

fn remove(folders: &[PathBuf], out: &Path) {
    for folder in folders.iter().filter(|folder| folder.parent() == Some(out)) {
        // What is left is found by the next clean-up of the cache.
        let _ = std::fs::remove_dir_all(folder);
    }
}

fn seconds_left(limit: Duration, began: Instant) -> Option<u64> {
    Some(limit.saturating_sub(began.elapsed()).as_secs()).filter(|seconds| *seconds > 0)
}

/// What to do about a program that `took` so long for the iterations that were `seen`, with so much of
/// the time limit `left`.
fn remedy(
    asked: &Iterations,
    seen: &Seen,
    took: Duration,
    left: Duration,
    may_repeat: bool,
) -> Option<Remedy> {
    let once = shortened(asked, seen);
    let enough = asked.warmup.saturating_add(asked.profiled).saturating_add(asked.timed.min(A_FEW));
    if seen.count >= enough || seen.count == 0 || !may_repeat {
        return once.map(Remedy::Once);
    }
    let told = told(asked, seen);
    // What comes before the first repetition is no iteration like the others.
    let least = u32::from(seen.signals.is_some_and(|signals| signals.first > 0));
    let warmup = asked.warmup.min(seen.count / 2).max(least).min(seen.count - 1);
    let in_each = (seen.count - warmup).min(asked.timed).max(1);
    let wanted = asked.timed.div_ceil(in_each).max(1);
    // A little more, because a profiled iteration takes longer.
    let room = |time: Duration| (time.as_secs_f64() / (1.2 * took.as_secs_f64()).max(0.01)) as u32;
    let affordable = room(left).saturating_sub(1);
    if affordable == 0 {
        return once.map(Remedy::Once);
    }
    let times = wanted.min(affordable).min(room(PATIENCE).saturating_sub(1).max(1));
    Some(Remedy::Repeated {
        timing: Iterations { warmup, timed: in_each, profiled: 0, ..told.clone() },
        times,
        profiling: Iterations {
            warmup,
            timed: 0,
            profiled: asked.profiled.min(seen.count - warmup).max(1),
            ..told
        },
    })
}

/// What was asked for, with what is known by now.
fn told(asked: &Iterations, seen: &Seen) -> Iterations {
    Iterations {
        timed_at_most: None,
        found_by: asked.found_by.clone().or_else(|| seen.found_by.clone()),
        signals: seen.signals,
        ..asked.clone()
    }
}

/// Fewer are timed, while that leaves a few. Else one profiled iteration, and of the rest one or two
/// timed ones.
fn shortened(asked: &Iterations, seen: &Seen) -> Option<Iterations> {
    let told = told(asked, seen);
    let left = seen.count.saturating_sub(asked.warmup.saturating_add(asked.profiled));
    if left >= asked.timed.min(A_FEW) && (left < asked.timed || asked.timed_at_most.is_some()) {
        return Some(Iterations { timed: left.min(asked.timed), ..told });
    }
    let unprofiled = seen.count.checked_sub(1).filter(|left| *left > 0)?;
    let timed = if unprofiled >= 3 { asked.timed.clamp(1, 2) } else { 1 };
    let warmup = asked.warmup.min(unprofiled.saturating_sub(timed));
    Some(Iterations { warmup, timed, profiled: 1, ..told })
}

/// How often a program was run.
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

    fn seen(count: u32) -> Seen {
        Seen { count, ..Seen::default() }
    }

    #[track_caller]
    fn check_shortened(seen: u32, expected: Option<(u32, u32, u32)>) {
        let asked = Iterations { timed_at_most: Some(6), ..Iterations::default() };
        let got = shortened(&asked, &self::seen(seen));
        let got = got.map(|fewer| (fewer.warmup, fewer.timed, fewer.profiled));
        assert_eq!(got, expected);
        if let Some((warmup, timed, profiled)) = expected {
            assert!(warmup + timed + profiled <= seen);
        }
    }

    #[test]
    fn few_iterations_are_divided() {
        check_shortened(0, None);
        check_shortened(1, None);
        check_shortened(2, Some((0, 1, 1)));
        check_shortened(3, Some((1, 1, 1)));
        check_shortened(4, Some((1, 2, 1)));
        check_shortened(6, Some((2, 2, 1)));
        check_shortened(7, Some((2, 3, 2)));
        check_shortened(9, Some((2, 3, 2)));
        // Many were asked for: of these there are fewer, and of the others as many.
        let many = Iterations { timed: 60, ..Iterations::default() };
        let timed = |seen: u32| {
            shortened(&many, &self::seen(seen)).map(|fewer| (fewer.timed, fewer.profiled))
        };
        assert_eq!((timed(32), timed(7), timed(6)), (Some((28, 2)), Some((3, 2)), Some((2, 1))));
    }

    fn repeated(count: u32, took: u64, left: u64) -> Option<(u32, u32, u32, u32)> {
        let (took, left) = (Duration::from_secs(took), Duration::from_secs(left));
        match remedy(&Iterations::default(), &seen(count), took, left, true)? {
            Remedy::Once(_) => None,
            Remedy::Repeated { timing, times, profiling } => {
                assert_eq!((timing.profiled, profiling.timed), (0, 0));
                assert_eq!(timing.warmup, profiling.warmup);
                assert!(timing.warmup + timing.timed.max(profiling.profiled) <= count);
                Some((timing.warmup, timing.timed, times, profiling.profiled))
            }
        }
    }

    #[test]
    fn a_program_of_few_iterations_runs_several_times() {
        assert_eq!(repeated(0, 1, 100), None);
        assert_eq!(repeated(1, 1, 100), Some((0, 1, 3, 1)));
        assert_eq!(repeated(2, 1, 100), Some((1, 1, 3, 1)));
        assert_eq!(repeated(3, 1, 100), Some((1, 2, 2, 2)));
        assert_eq!(repeated(4, 1, 100), Some((2, 2, 2, 2)));
        assert_eq!(repeated(6, 1, 100), Some((2, 3, 1, 2)));
        assert_eq!(repeated(7, 1, 100), None, "one run has enough");
    }

    #[test]
    fn it_keeps_to_the_time_limit() {
        assert_eq!(repeated(1, 20, 100), Some((0, 1, 1, 1)), "nobody waits that long");
        assert_eq!(repeated(1, 10, 25), Some((0, 1, 1, 1)));
        assert_eq!(repeated(1, 60, 60), None);
        assert_eq!(repeated(2, 60, 60), None);
    }

    #[test]
    fn what_comes_before_the_loop_is_not_timed() {
        let signals = Some(Signals { first: 1, every: 2 });
        let seen = Seen { count: 3, signals, found_by: Some("module".to_owned()) };
        let asked = Iterations { warmup: 0, ..Iterations::default() };
        let second = Duration::from_secs(1);
        let remedy = remedy(&asked, &seen, second, 60 * second, true);
        let Some(Remedy::Repeated { timing, .. }) = remedy else { panic!("{remedy:?}") };
        assert_eq!((timing.warmup, timing.signals), (1, signals));
        assert_eq!(timing.found_by.as_deref(), Some("module"));
    }

    #[test]
    fn it_is_told_how_often_it_ran() {
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
