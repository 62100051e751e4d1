//! Compares what an edited program trains with what the original trains: the losses and gradient norms of the first
//! optimizer steps, both from the same random seed. The original runs twice, which shows how well it repeats itself.

use ridgeline_base::units;
use serde::{Deserialize, Serialize};

use super::rewrite::EditKind;

/// The first steps of a program (`trajectory.json` of the agent).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Trajectory {
    /// The loss of each backward pass; `None` if it is not finite or cannot be read.
    pub losses: Vec<Option<f64>>,
    /// Before each optimizer step: the number of losses so far, and the L2 norm of all its gradients.
    pub gradient_norms: Vec<(u64, Option<f64>)>,
}

/// The largest accepted differences, as shares: 0.01 is 1%.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    /// Mean difference of the losses.
    pub loss: f64,
    /// Mean difference of the gradient norms, which rounding changes more.
    pub gradients: f64,
}

/// The same arithmetic in another order.
const SAME_PRECISION: Tolerance = Tolerance { loss: 0.01, gradients: 0.05 };
/// TF32 has the mantissa of FP16, with sums in FP32.
const TF32: Tolerance = Tolerance { loss: 0.02, gradients: 0.1 };
/// Activations and products in 16 bits. Losses of published mixed-precision training stay within a few percent of FP32
/// from the first steps on (Micikevicius et al., ICLR 2018).
const HALF_PRECISION: Tolerance = Tolerance { loss: 0.05, gradients: 0.2 };

/// The tolerance for a program with these edits. Returns `None` if it reads other random numbers by design, so that the
/// values cannot be compared: loader workers have generators of their own.
pub fn tolerance(kinds: &[EditKind]) -> Option<Tolerance> {
    let of = |kind: &EditKind| match kind {
        EditKind::LoaderWorkers => None,
        EditKind::AutocastBFloat16 | EditKind::AutocastFloat16 => Some(HALF_PRECISION),
        EditKind::Tf32 => Some(TF32),
        _ => Some(SAME_PRECISION),
    };
    let each: Option<Vec<Tolerance>> = kinds.iter().map(of).collect();
    Some(each?.into_iter().fold(SAME_PRECISION, |a, b| Tolerance {
        loss: a.loss.max(b.loss),
        gradients: a.gradients.max(b.gradients),
    }))
}

/// The differences between an edited program and the original.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numerics {
    /// Number of compared losses.
    pub losses: usize,
    /// Mean difference of the losses, as a share of their mean. `None`: the edited program has losses that are not
    /// finite where the original's are.
    pub loss: Option<f64>,
    /// The same for the gradient norms. `None` also if there are none.
    pub gradients: Option<f64>,
    /// The difference of the losses between two runs of the original.
    pub noise: f64,
    /// What is accepted.
    pub tolerance: Tolerance,
}

/// Whether an edit changes what is trained, if that is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Both versions ran.
    Compared(Numerics),
    /// The reason why it is unknown, as a clause.
    Unknown(String),
}

impl Numerics {
    /// Whether the edited program trains the same, within the tolerance.
    pub fn is_same(&self) -> bool {
        let is_within = |found: Option<f64>, most: f64| found.is_some_and(|found| found <= most);
        is_within(self.loss, self.tolerance.loss)
            && (self.gradients.is_none() || is_within(self.gradients, self.tolerance.gradients))
    }
}

impl Check {
    /// Formats it: `same loss within 0.02% over 20 backward passes`.
    pub fn words(&self) -> String {
        let found = match self {
            Check::Compared(found) => found,
            Check::Unknown(why) => return format!("effect on the loss unknown: {why}"),
        };
        let Some(loss) = found.loss else {
            return "the loss becomes infinite or NaN".to_owned();
        };
        let over = match found.losses {
            1 => "over 1 backward pass".to_owned(),
            losses => format!("over {losses} backward passes"),
        };
        if found.is_same() {
            return format!("same loss within {} {over}", share(loss));
        }
        let mut words = format!("loss off by {} {over}", share(loss));
        if let Some(gradients) = found.gradients {
            words += &format!(", gradients by {}", share(gradients));
        }
        let Tolerance { loss, gradients } = found.tolerance;
        words + &format!(" (accepted: {} and {})", units::percent(loss), units::percent(gradients))
    }

    /// Whether the edit may be kept: it trains the same.
    pub fn is_same(&self) -> bool {
        matches!(self, Check::Compared(found) if found.is_same())
    }
}

/// Compares the original (two runs) with the edited program.
pub fn compare(
    [first, again]: [&Trajectory; 2],
    edited: &Trajectory,
    tolerance: Tolerance,
) -> Check {
    let unknown = |why: &str| Check::Unknown(why.to_owned());
    let noise = match difference(&first.losses, &again.losses) {
        Difference::None => return unknown("no backward pass was seen"),
        Difference::NotFinite => {
            return unknown("the original's losses are not the same in two runs");
        }
        Difference::Of(noise) => noise,
    };
    if noise > tolerance.loss {
        return Check::Unknown(format!(
            "the original's losses differ by {} between two runs from the same seed",
            share(noise)
        ));
    }
    let loss = match difference(&first.losses, &edited.losses) {
        Difference::None => return unknown("the edited program has no backward pass"),
        Difference::NotFinite => None,
        Difference::Of(loss) => Some(loss),
    };
    // A gradient scaler skips steps, so steps are matched by the losses before them.
    let norms = first.gradient_norms.iter().filter_map(|(at, norm)| {
        let same = edited.gradient_norms.iter().find(|(other, _)| other == at)?;
        Some((*norm, same.1))
    });
    let (before, after): (Vec<_>, Vec<_>) = norms.unzip();
    let gradients = match difference(&before, &after) {
        Difference::Of(gradients) => Some(gradients),
        Difference::None | Difference::NotFinite => None,
    };
    let losses = first.losses.len().min(edited.losses.len());
    Check::Compared(Numerics { losses, loss, gradients, noise, tolerance })
}

enum Difference {
    /// There is nothing to compare.
    None,
    /// A value is missing where the original has one.
    NotFinite,
    /// The mean difference as a share of the mean.
    Of(f64),
}

fn difference(before: &[Option<f64>], after: &[Option<f64>]) -> Difference {
    let (mut size, mut off, mut count) = (0.0, 0.0, 0);
    for (before, after) in before.iter().zip(after) {
        let Some(before) = before else { continue };
        let Some(after) = after else { return Difference::NotFinite };
        size += before.abs();
        off += (after - before).abs();
        count += 1;
    }
    match count {
        0 => Difference::None,
        _ if off == 0.0 => Difference::Of(0.0),
        _ if size > 0.0 => Difference::Of(off / size),
        _ => Difference::NotFinite,
    }
}

/// Small shares need more digits than `units::percent` has.
fn share(share: f64) -> String {
    match 100.0 * share {
        percent if percent < 0.001 => "0.001%".to_owned(),
        percent if percent < 0.01 => format!("{percent:.3}%"),
        percent if percent < 1.0 => format!("{percent:.2}%"),
        percent => format!("{percent:.1}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trajectory(losses: &[f64]) -> Trajectory {
        let finite = |value: &f64| Some(*value).filter(|value| value.is_finite());
        let gradient_norms = (1..).zip(losses.iter().map(|loss| Some(2.0 * loss))).collect();
        Trajectory { losses: losses.iter().map(finite).collect(), gradient_norms }
    }

    #[track_caller]
    fn check(again: &[f64], edited: &[f64], is_same: bool, expected: &str) {
        let first = trajectory(&[2.0, 1.0, 1.0]);
        let found = compare([&first, &trajectory(again)], &trajectory(edited), SAME_PRECISION);
        assert_eq!((found.is_same(), found.words().as_str()), (is_same, expected));
    }

    #[test]
    fn differences_in_words() {
        let same = [2.0, 1.0, 1.0];
        check(&same, &same, true, "same loss within 0.001% over 3 backward passes");
        check(&same, &[2.0, 1.0, 1.002], true, "same loss within 0.05% over 3 backward passes");
        check(
            &same,
            &[2.0, 1.0, 1.4],
            false,
            "loss off by 10.0% over 3 backward passes, gradients by 10.0% (accepted: 1% and 5%)",
        );
        check(&same, &[2.0, f64::NAN, 1.0], false, "the loss becomes infinite or NaN");
        // It ended earlier.
        check(&same, &[2.0], true, "same loss within 0.001% over 1 backward pass");
        check(
            &same,
            &[],
            false,
            "effect on the loss unknown: the edited program has no backward pass",
        );
        check(
            &[2.0, 1.0, 1.4],
            &same,
            false,
            "effect on the loss unknown: the original's losses differ by 10.0% between two runs from the same seed",
        );
    }

    #[test]
    fn skipped_steps_do_not_shift_gradients() {
        let first = trajectory(&[2.0, 1.0, 4.0]);
        let mut edited = first.clone();
        edited.gradient_norms.remove(0);
        let found = compare([&first, &first], &edited, SAME_PRECISION);
        assert!(
            matches!(found, Check::Compared(Numerics { gradients: Some(0.0), .. })),
            "{found:?}"
        );
    }

    #[test]
    fn tolerances_follow_precision() {
        let of = |kinds: &[EditKind]| tolerance(kinds).map(|one| one.loss);
        assert_eq!(of(&[]), Some(0.01));
        assert_eq!(of(&[EditKind::Compile, EditKind::AutocastBFloat16]), Some(0.05));
        assert_eq!(of(&[EditKind::Compile, EditKind::LoaderWorkers]), None);
    }
}
