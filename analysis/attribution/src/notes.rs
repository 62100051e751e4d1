//! Notes for the user about the accuracy of a profile.

use std::collections::BTreeMap;

use super::replays::Replays;
use ridgeline_base::units;
use ridgeline_profile::{BUSY_NOTE, BUSY_SHARE, FileId, LineCost, Profile};
use ridgeline_recording::Recording;
use ridgeline_recording::manifest::{Iterations, Manifest};

/// Returns notes on a recording. `split` is whether an eager pass divided compiled functions.
pub(super) fn of(recording: &Recording, split: bool, replays: &Replays) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(manifest) = &recording.manifest {
        if manifest.iterations.timed_ns.is_empty() {
            notes.push(
                "No iteration ran without the profiler, so times include profiling overhead."
                    .to_owned(),
            );
        }
        notes.extend(waiting(&manifest.iterations));
        notes.extend(several_backward_passes(manifest));
        if let Some(log) = manifest.line_log.filter(|log| log.dropped > 0) {
            notes.push(format!(
                "The line log was full: {} events are missing, and their time is counted on the \
                previous line.",
                log.dropped
            ));
        }
        if !manifest.compiled.is_empty() {
            let lines = if split {
                "their total time is measured, and split over their lines as in a run without \
                torch.compile."
            } else {
                "their time is shown on the lines that call them."
            };
            notes.push(format!("Functions compiled by torch.compile: {lines}"));
        }
        if replays.without_call > 0 {
            notes.push(format!(
                "{} of {} kernels and copies in CUDA graphs are shown on the line that replays the \
                graph, because their origin in the captured code is unknown.",
                replays.without_call, replays.activities
            ));
        }
        notes.extend(manifest.notes.iter().cloned());
        notes.extend(manifest.observed.gpu.iter().flat_map(|gpu| gpu.unknown.iter().cloned()));
        if recording.lines.is_none() {
            notes.push(
                "The recording has no line log, so nothing can be attributed to your code."
                    .to_owned(),
            );
        }
    }
    let measured_on = recording.ceilings.and_then(|ceilings| ceilings.measured_on);
    if let Some(day) = measured_on.filter(|_| !recording.trace.activities.is_empty()) {
        notes.push(format!(
            "Rooflines use the rates measured on this GPU on {day}, not the datasheet values."
        ));
    }
    if recording.lines.as_ref().is_some_and(|log| log.cut_short) {
        notes.push("The line log is truncated: the process that wrote it was stopped.".to_owned());
    }
    if recording.trace.truncated_at.is_some() {
        notes.push("The trace is truncated: the process that wrote it was stopped.".to_owned());
    }
    notes
}

/// The share of the iteration from which a line has almost all of it.
const MIN_SHARE_OF_LINE: f64 = 0.9;

/// A hint for programs whose training loop is in a library, so that one line has almost all costs.
pub(super) fn of_library(library: &str, profile: &Profile) -> Option<String> {
    let whole = profile.iteration.phases.total();
    let (file, line) = profile.lines.iter().enumerate().find_map(|(file, lines)| {
        let has_most = |line: &&LineCost| line.self_time.total() >= MIN_SHARE_OF_LINE * whole;
        Some((file, lines.iter().find(has_most)?))
    })?;
    let path = profile.files.get(file).map(|file| file.path.as_str()).filter(|_| whole > 0.0)?;
    Some(format!(
        "{path}:{} has {} of the iteration, because {library} runs the training loop. To see the \
        lines of {library}, set `packages = [\"{library}\"]` under [user_code] in ridgeline.toml.",
        line.line,
        units::percent(line.self_time.total() / whole)
    ))
}

/// The maximum share of the recorded time of a line that it takes itself if the rest, the time of
/// recording it, makes the line's time uncertain.
const MAX_OWN_SHARE: f64 = 0.1;

/// The minimum share of the iteration in uncertain lines for a note.
const MIN_UNCERTAIN_SHARE: f64 = 0.2;

/// The time of a line in one context.
pub(super) struct RecordedLine {
    pub place: (FileId, u32),
    /// Nanoseconds per profiled iteration.
    pub recorded_ns: f64,
    /// Nanoseconds per iteration without the profiler.
    pub own_ns: f64,
}

/// Notes lines that take much less time than their recording, such as `i += 1`, if they are a
/// relevant part of the iteration.
pub(super) fn of_fast_lines(
    lines: impl Iterator<Item = RecordedLine>,
    profile: &Profile,
) -> Option<String> {
    let mut uncertain: BTreeMap<(FileId, u32), f64> = BTreeMap::new();
    for line in lines.filter(|line| line.own_ns < MAX_OWN_SHARE * line.recorded_ns) {
        *uncertain.entry(line.place).or_default() += line.own_ns;
    }
    let share = uncertain.values().sum::<f64>() / profile.iteration.time_ns;
    let ((file, line), _) = uncertain.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    let path = &profile.files.get(file.0 as usize)?.path;
    let what = match uncertain.len() {
        1 => "takes much less time than recording it, so its",
        _ => "and similar lines take much less time than recording them, so their",
    };
    let percent = units::percent(share);
    (share >= MIN_UNCERTAIN_SHARE)
        .then(|| format!("{path}:{line} {what} share of the iteration ({percent}) is uncertain."))
}

/// The minimum number of backward passes per iteration for a note, if they are not over a batch of
/// the loader each: a step may have several losses.
const MIN_BACKWARD_PASSES: f64 = 5.0;

/// What an iteration is, if it has several backward passes: over the batches of gradient
/// accumulation, or in the closure of an optimizer such as L-BFGS.
fn several_backward_passes(manifest: &Manifest) -> Option<String> {
    let iterations = &manifest.iterations;
    let is_step = iterations.found_by.as_deref() == Some("optimizer")
        && iterations.steps_per_iteration == Some(1);
    let count = |signal: &str| iterations.signals.get(signal).map(|count| *count as f64);
    let per_step = count("backward")? / count("optimizer").filter(|_| is_step)?;
    let passes = per_step.round();
    // The program may have ended within an iteration.
    if passes < 2.0 || (per_step - passes).abs() > 0.05 * passes {
        return None;
    }
    let step = format!("An iteration is one optimizer step with {passes} backward passes");
    if let [loader] = manifest.loaders.as_slice() {
        let fetched = loader.fetch_ns.len() as f64 / iterations.timed_ns.len().max(1) as f64;
        let size = loader.batch_size.filter(|_| fetched.round() == passes);
        if let Some(size) = size {
            return Some(format!("{step}, over {passes} batches of {size}."));
        }
    }
    (passes >= MIN_BACKWARD_PASSES).then(|| format!("{step}."))
}

/// Whether other programs slowed down the timed iterations.
fn waiting(iterations: &Iterations) -> Option<String> {
    let share = iterations.waited_share();
    (share >= BUSY_SHARE).then(|| {
        format!(
            "{BUSY_NOTE}the program waited for the CPU {} of the measured time, so it is faster on \
            an idle machine.",
            units::percent(share)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_profile::{FileFacts, PhaseTimes};
    use ridgeline_recording::manifest::Loader;

    #[test]
    fn a_library_that_runs_the_loop_is_noted() {
        let times = |forward| PhaseTimes { forward, ..PhaseTimes::default() };
        let profile = |share: f64| {
            let mut profile = Profile::default();
            profile.iteration.phases = times(100.0);
            profile.files = vec![FileFacts { path: "train.py".to_owned(), ..FileFacts::default() }];
            let line = LineCost { line: 7, self_time: times(share), ..LineCost::default() };
            profile.lines = vec![vec![line]];
            profile
        };
        assert_eq!(of_library("fastai", &profile(80.0)), None);
        assert_eq!(of_library("fastai", &Profile::default()), None);
        assert_eq!(
            of_library("fastai", &profile(97.0)).as_deref(),
            Some(
                "train.py:7 has 97% of the iteration, because fastai runs the training loop. To \
                see the lines of fastai, set `packages = [\"fastai\"]` under [user_code] in \
                ridgeline.toml."
            )
        );
    }

    #[test]
    fn lines_that_are_faster_than_their_recording_are_noted() {
        let mut profile = Profile::default();
        profile.iteration.time_ns = 100.0;
        profile.files = vec![FileFacts { path: "train.py".to_owned(), ..FileFacts::default() }];
        let note_of = |lines: &[(u32, f64, f64)]| {
            let lines = lines.iter().map(|&(line, recorded_ns, own_ns)| RecordedLine {
                place: (FileId(0), line),
                recorded_ns,
                own_ns,
            });
            of_fast_lines(lines, &profile)
        };
        assert_eq!(note_of(&[(3, 500.0, 60.0), (4, 900.0, 10.0)]), None);
        assert_eq!(
            note_of(&[(3, 500.0, 12.0), (4, 400.0, 18.0), (5, 20.0, 70.0)]).as_deref(),
            Some(
                "train.py:4 and similar lines take much less time than recording them, so their \
                share of the iteration (30%) is uncertain."
            )
        );
    }

    #[test]
    fn an_iteration_with_several_backward_passes_is_described() {
        let note = |backward: u64, batches: usize| {
            let signals = [("backward", backward), ("optimizer", 7)];
            several_backward_passes(&Manifest {
                iterations: Iterations {
                    found_by: Some("optimizer".to_owned()),
                    steps_per_iteration: Some(1),
                    signals: signals.map(|(name, count)| (name.to_owned(), count)).into(),
                    timed_ns: vec![100; 3],
                    ..Iterations::default()
                },
                loaders: vec![Loader {
                    batch_size: Some(8),
                    fetch_ns: vec![10; 3 * batches],
                    ..Loader::default()
                }],
                ..Manifest::default()
            })
        };
        assert_eq!(
            note(28, 4).as_deref(),
            Some("An iteration is one optimizer step with 4 backward passes, over 4 batches of 8.")
        );
        let closure = Some("An iteration is one optimizer step with 20 backward passes.");
        assert_eq!(note(140, 1).as_deref(), closure);
        // Two losses of one batch, and the program's end within an iteration.
        assert_eq!(note(14, 1), None);
        assert_eq!(note(7, 1), None);
        assert!(note(29, 4).is_some());
        assert_eq!(note(32, 4), None);
    }

    #[test]
    fn a_busy_machine_is_noted() {
        let iterations = |waited_ns: &[u64]| Iterations {
            timed_ns: vec![60, 40],
            timed_waited_ns: waited_ns.to_vec(),
            ..Iterations::default()
        };
        assert_eq!(waiting(&iterations(&[])), None);
        assert_eq!(waiting(&iterations(&[0, 9])), None);
        assert_eq!(
            waiting(&iterations(&[20, 10])).as_deref(),
            Some(
                "The machine was busy: the program waited for the CPU 30% of the measured \
                time, so it is faster on an idle machine."
            )
        );
    }
}
