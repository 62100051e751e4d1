//! The decisions of `ridgeline tune`: which optimizations to try, in which order, and which to keep.
//!
//! The search is greedy. Each optimization is measured on top of those that were kept before it, because the savings of
//! two rarely add up.

use super::accuracy::{MAX_DRIFT, Sides};
use super::numerics::Check;
use super::optimization::Prediction;
use super::rewrite::EditKind;
use super::study::{Study, optimization};

/// The smallest speedup that is kept. Measurements in turns are off by 2 to 5% on a shared machine.
const MIN_SPEEDUP: f64 = 1.03;
/// The smallest predicted speedup that is tried.
const MIN_PREDICTED: f64 = 1.01;
/// The smallest saving of memory that is kept, as a share.
const MIN_SAVED_MEMORY: f64 = 0.02;

/// Returns the optimizations to try, the largest predicted speedup first. Those that only save memory follow if the
/// program needs more than `memory_limit` bytes.
pub fn candidates(study: &Study, memory_limit: Option<f64>) -> Vec<(EditKind, Prediction)> {
    let exceeds = is_over(study.peak_bytes, memory_limit);
    let mut found: Vec<(EditKind, Prediction)> = Vec::new();
    for prediction in &study.what_ifs.predictions {
        let [name] = &prediction.names[..] else { continue };
        let kind = optimization(name).and_then(|one| one.edit());
        let Some(kind) = kind.filter(|kind| !kind.needs_launcher()) else { continue };
        if is_faster(prediction) || (exceeds && saves_memory(prediction)) {
            found.push((kind, prediction.clone()));
        }
    }
    found.sort_by(|(_, a), (_, b)| {
        let key = |one: &Prediction| one.speedup().value;
        is_faster(b).cmp(&is_faster(a)).then(key(b).total_cmp(&key(a)))
    });
    found
}

fn is_faster(prediction: &Prediction) -> bool {
    prediction.speedup().value >= MIN_PREDICTED
}

fn saves_memory(prediction: &Prediction) -> bool {
    let after = prediction.peak_bytes.map(|peak| peak.value);
    is_less(prediction.before_peak_bytes, after)
}

fn is_less(before: Option<f64>, after: Option<f64>) -> bool {
    before.zip(after).is_some_and(|(before, after)| after <= (1.0 - MIN_SAVED_MEMORY) * before)
}

fn is_over(peak: Option<f64>, limit: Option<f64>) -> bool {
    peak.zip(limit).is_some_and(|(peak, limit)| peak > limit)
}

/// An optimization that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Its name: `amp-bf16`.
    pub name: String,
    /// The predicted speedup on the original program.
    pub predicted: f64,
    /// What was measured, or why it could not be tried.
    pub result: Result<Measured, String>,
}

/// A measured optimization, on top of those kept before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Times and memory without and with it.
    pub sides: Sides,
    /// See [`super::accuracy::Pair::drift`].
    pub drift: f64,
    /// Whether the program trains the same as the original. `None`: it was not checked, because the optimization is not
    /// kept anyway, or because it cannot change any value.
    pub check: Option<Check>,
}

/// What becomes of a measured optimization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is faster, or saves memory that the program must save.
    Kept,
    /// It is not clearly faster.
    NotFaster,
    /// The machine's speed changed too much during the measurement.
    TooNoisy,
    /// It needs more memory than allowed.
    TooMuchMemory,
    /// It changes what is trained, or may change it.
    ChangesLoss,
}

impl Measured {
    /// Whether the machine's speed changed so much that the times say little.
    pub fn is_noisy(&self) -> bool {
        self.drift.abs() > MAX_DRIFT
    }

    /// Decides before the losses were compared. [`Verdict::Kept`] is preliminary.
    pub fn by_costs(&self, memory_limit: Option<f64>) -> Verdict {
        let Sides { before_peak_bytes: before, after_peak_bytes: after, .. } = self.sides;
        if is_over(before, memory_limit) {
            return if is_less(before, after) { Verdict::Kept } else { Verdict::NotFaster };
        }
        if is_over(after, memory_limit) {
            return Verdict::TooMuchMemory;
        }
        match self.sides.speedup() {
            _ if self.is_noisy() => Verdict::TooNoisy,
            Some(speedup) if speedup >= MIN_SPEEDUP => Verdict::Kept,
            _ => Verdict::NotFaster,
        }
    }

    /// Decides from the costs and the losses.
    pub fn verdict(&self, memory_limit: Option<f64>) -> Verdict {
        match self.by_costs(memory_limit) {
            Verdict::Kept if self.check.as_ref().is_some_and(|check| !check.is_same()) => {
                Verdict::ChangesLoss
            }
            verdict => verdict,
        }
    }
}

/// The edits whose effect on the losses has to be compared. Loader workers read the same samples; only the random
/// numbers of their transforms are others.
pub fn compared(kinds: &[EditKind]) -> Vec<EditKind> {
    kinds.iter().copied().filter(|kind| *kind != EditKind::LoaderWorkers).collect()
}

#[cfg(test)]
mod tests {
    use ridgeline_operators::range::Range;

    use super::*;
    use crate::numerics::{Trajectory, compare, tolerance};

    fn sides(after_ns: f64, peaks: (f64, f64)) -> Sides {
        Sides {
            before_ns: 100.0,
            after_ns,
            before_peak_bytes: Some(peaks.0),
            after_peak_bytes: Some(peaks.1),
        }
    }

    #[track_caller]
    fn check(after_ns: f64, peaks: (f64, f64), limit: Option<f64>, expected: Verdict) {
        let measured = Measured { sides: sides(after_ns, peaks), drift: 0.05, check: None };
        assert_eq!(measured.verdict(limit), expected);
    }

    #[test]
    fn noisy_measurements_decide_nothing() {
        let measured = Measured { sides: sides(50.0, (1.0, 1.0)), drift: -0.3, check: None };
        assert_eq!(measured.verdict(None), Verdict::TooNoisy);
        assert_eq!(measured.verdict(Some(0.5)), Verdict::NotFaster);
    }

    #[test]
    fn faster_ones_are_kept_within_the_memory() {
        check(90.0, (10.0, 12.0), None, Verdict::Kept);
        check(98.0, (10.0, 5.0), None, Verdict::NotFaster);
        check(90.0, (10.0, 12.0), Some(11.0), Verdict::TooMuchMemory);
        // It must save memory, at the cost of time.
        check(120.0, (20.0, 12.0), Some(11.0), Verdict::Kept);
        check(50.0, (20.0, 20.0), Some(11.0), Verdict::NotFaster);
    }

    #[test]
    fn what_changes_the_loss_is_not_kept() {
        let of = |losses: &[f64]| Trajectory {
            losses: losses.iter().copied().map(Some).collect(),
            ..Trajectory::default()
        };
        let (original, tolerance) = (of(&[1.0, 1.0]), tolerance(&[]).expect("a tolerance"));
        let check = |losses: &[f64]| Some(compare([&original, &original], &of(losses), tolerance));
        let measured = |check| Measured { sides: sides(50.0, (1.0, 1.0)), drift: 0.0, check };
        assert_eq!(measured(check(&[1.0, 1.0])).verdict(None), Verdict::Kept);
        assert_eq!(measured(check(&[1.0, 2.0])).verdict(None), Verdict::ChangesLoss);
        let unknown = Some(Check::Unknown("it failed".to_owned()));
        assert_eq!(measured(unknown).verdict(None), Verdict::ChangesLoss);
    }

    #[test]
    fn the_fastest_is_tried_first() {
        let prediction = |name: &str, time_ns: f64, peak: f64| Prediction {
            names: vec![name.to_owned()],
            before_ns: 100.0,
            time_ns: Range::within_factor(time_ns, 1.1),
            before_peak_bytes: Some(100.0),
            peak_bytes: Some(Range::within_factor(peak, 1.0)),
            samples_factor: 1.0,
            ..Prediction::default()
        };
        let mut study = Study { peak_bytes: Some(100.0), ..Study::default() };
        study.what_ifs.predictions = vec![
            prediction("fused-optimizer", 95.0, 100.0),
            prediction("amp-bf16", 60.0, 80.0),
            prediction("recompute", 120.0, 50.0),
            // Without an edit.
            prediction("gist", 50.0, 50.0),
        ];
        let names = |limit| {
            let found = candidates(&study, limit);
            found.iter().map(|(kind, _)| kind.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["amp-bf16", "fused-optimizer"]);
        assert_eq!(names(Some(70.0)), ["amp-bf16", "fused-optimizer", "recompute"]);
    }
}
