//! The stages of a run, as shown to the user.

use ridgeline_gpu::agent::{Iterations, RunEvent, Stage};

/// Returns the stage of a run as shown to the user, and its share of the whole run.
pub(super) fn stage_of(event: &RunEvent, iterations: &Iterations) -> (&'static str, f32) {
    let RunEvent::Progress { stage, done, total } = *event else {
        return match event {
            RunEvent::AgentStarting => ("starting Python", 0.02),
            _ => ("starting", 0.05),
        };
    };
    let all = (iterations.warmup + iterations.timed + iterations.profiled).max(1) as f32;
    let before = match stage {
        Stage::Starting | Stage::Estimating | Stage::Probing | Stage::WarmUp => 0,
        Stage::Timing => iterations.warmup,
        Stage::Profiling | Stage::Saving => iterations.warmup + iterations.timed,
    } as f32;
    let steps = if total > 0 { done.min(total) as f32 } else { 0.0 };
    let (first, last) = (0.1, 0.9);
    match stage {
        Stage::Starting => ("starting the program", 0.05),
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
