//! What something that was left on costs: iterations ran by turns with it and without.

use super::evidence::Evidence;
use super::finding::Cost;
use super::loading::median;
use ridgeline_recording::observed::SwitchedOff;

/// Fewer iterations with it or without it say too little.
const FEWEST: usize = 3;

/// What an iteration is shorter by without what the agent calls so; nothing where that was not tried, or
/// where it made no difference.
pub(crate) fn cost(evidence: &Evidence<'_>, name: &str) -> Option<Cost> {
    let tried = evidence.manifest()?.observed.switched_off.iter().find(|one| one.name == name)?;
    saved_ns(tried).map(Cost::time)
}

fn saved_ns(tried: &SwitchedOff) -> Option<f64> {
    let of = |ns: &[u64]| median(ns).filter(|_| ns.len() >= FEWEST);
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
    fn the_medians_differ_by_what_it_costs() {
        check(&[90, 30, 31], &[20, 19, 50], Some(11.0));
    }

    #[test]
    fn few_or_no_difference_are_unknown() {
        check(&[30, 31], &[20, 19, 21], None);
        check(&[30, 31, 30], &[], None);
        check(&[20, 20, 20], &[20, 21, 20], None);
    }
}
