//! The cost of a setting that was left on: the run alternated iterations with it and without it.

use super::data_loaders::median;
use super::evidence::Evidence;
use super::finding::Cost;
use ridgeline_recording::observed::SwitchedOff;

/// The minimum number of iterations with it and without it.
const MIN_ITERATIONS: usize = 3;

/// The time per iteration that switching it off saves. `name` is the agent's name for it. Returns
/// `None` if that was not tried or made no difference.
pub(crate) fn cost(evidence: &Evidence<'_>, name: &str) -> Option<Cost> {
    let tried = evidence.manifest()?.observed.switched_off.iter().find(|one| one.name == name)?;
    saved_ns(tried).map(Cost::time)
}

fn saved_ns(tried: &SwitchedOff) -> Option<f64> {
    let of = |ns: &[u64]| median(ns).filter(|_| ns.len() >= MIN_ITERATIONS);
    let saved_ns = of(&tried.with_ns)? - of(&tried.without_ns)?;
    (saved_ns > 0.0).then_some(saved_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(with_ns: &[u64], without_ns: &[u64], expected: Option<f64>) {
        let (with_ns, without_ns) = (with_ns.to_vec(), without_ns.to_vec());
        let tried = SwitchedOff { name: "anomaly".to_owned(), with_ns, without_ns };
        assert_eq!(saved_ns(&tried), expected);
    }

    #[test]
    fn cost_is_the_difference_of_medians() {
        check(&[90, 30, 31], &[20, 19, 50], Some(11.0));
    }

    #[test]
    fn few_iterations_or_no_difference_have_no_cost() {
        check(&[30, 31], &[20, 19, 21], None);
        check(&[30, 31, 30], &[], None);
        check(&[20, 20, 20], &[20, 21, 20], None);
    }
}
