//! The stages of a run, as shown to the user.

use std::borrow::Cow;

use ridgeline_analysis::present::activity;
use ridgeline_gpu::agent::{Iterations, RunEvent, Stage};

/// The start of Python: nearly all of it is the import of torch.
pub(super) const STARTING_PYTHON: &str = "importing torch";
const STARTING_PROGRAM: &str = "starting the program";

/// Returns the stage of a run as shown to the user, and its share of the whole run.
pub(super) fn stage_of(event: &RunEvent, iterations: &Iterations) -> (Cow<'static, str>, f32) {
    match event {
        RunEvent::AgentStarting => (STARTING_PYTHON.into(), 0.02),
        RunEvent::Started { .. } => (STARTING_PROGRAM.into(), 0.05),
        RunEvent::Place { frame, activity } => {
            let place = activity::place(&frame.path, frame.line, &frame.name);
            let stage = match activity.as_deref().and_then(activity::of_library) {
                Some(activity) => format!("{STARTING_PROGRAM}: {activity} ({place})"),
                None => format!("{STARTING_PROGRAM}: {place}"),
            };
            (stage.into(), 0.05)
        }
        RunEvent::Progress { stage, done, total } => {
            let (stage, share) = within_program(*stage, *done, *total, iterations);
            (stage.into(), share)
        }
    }
}

fn within_program(
    stage: Stage,
    done: u64,
    total: u64,
    iterations: &Iterations,
) -> (&'static str, f32) {
    let all = (iterations.warmup + iterations.timed + iterations.profiled).max(1) as f32;
    let before = match stage {
        Stage::Starting | Stage::Estimating | Stage::Probing | Stage::WarmUp => 0,
        Stage::Timing => iterations.warmup,
        Stage::Profiling | Stage::Saving => iterations.warmup + iterations.timed,
    } as f32;
    let steps = if total > 0 { done.min(total) as f32 } else { 0.0 };
    let (first, last) = (0.1, 0.9);
    match stage {
        Stage::Starting => (STARTING_PROGRAM, 0.05),
        // Its first iteration has not ended, so it may still load data or evaluate.
        Stage::WarmUp if done == 0 => (STARTING_PROGRAM, 0.05),
        Stage::Estimating => ("estimating", 0.5),
        Stage::Probing => ("timing single operators", 0.5),
        Stage::WarmUp => ("warming up", first + (last - first) * (steps / all).min(1.0)),
        Stage::Timing => ("timing", first + (last - first) * ((before + steps) / all).min(1.0)),
        Stage::Profiling => {
            ("profiling", first + (last - first) * ((before + steps) / all).min(1.0))
        }
        Stage::Saving => ("saving", last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_gpu::agent::Frame;

    #[test]
    fn the_place_of_a_program_that_starts_is_shown() {
        let shown = |path: &str, name: &str, activity: Option<&str>| {
            let frame = Frame { path: path.to_owned(), line: 3, name: name.to_owned() };
            let activity = activity.map(str::to_owned);
            stage_of(&RunEvent::Place { frame, activity }, &Iterations::default()).0.into_owned()
        };
        assert_eq!(
            shown("train.py", "<module>", Some("import transformers")),
            "starting the program: importing transformers (train.py:3)"
        );
        assert_eq!(shown("data.py", "load", None), "starting the program: data.py:3 in load");
        assert_eq!(shown("train.py", "", Some("?")), "starting the program: train.py:3");
    }

    #[test]
    fn progress_never_goes_back() {
        let iterations = Iterations::default();
        let mut events = vec![RunEvent::AgentStarting, RunEvent::Started { pid: 1 }];
        for (stage, total) in [
            (Stage::Starting, 0),
            (Stage::WarmUp, 2),
            (Stage::Timing, 3),
            (Stage::Profiling, 2),
            (Stage::Saving, 0),
        ] {
            events.extend((0..=total).map(|done| RunEvent::Progress { stage, done, total }));
        }
        let shares: Vec<f32> = events.iter().map(|event| stage_of(event, &iterations).1).collect();
        assert!(shares.is_sorted() && shares.iter().all(|share| *share <= 1.0), "{shares:?}");
    }
}
