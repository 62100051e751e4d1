//! The Mann-Whitney U test: do the iterations of one run tend to take longer than those of another?
//!
//! It only assumes that iterations are independent and identically distributed. Unlike tests for
//! normal distributions, it suits iteration times, which have a long tail. Mann and Whitney, "On a
//! test of whether one of two random variables is stochastically larger than the other" (1947).

use ridgeline_base::statistics::upper_tail;
use serde::Serialize;

/// The significance level: the maximum p-value of a reported change.
pub const SIGNIFICANCE: f64 = 0.05;

/// The maximum number of values, over both samples, for which the exact distribution is computed.
const MAX_EXACT_VALUES: usize = 40;
/// The maximum number of values per sample; more do not add information.
const MAX_VALUES: usize = 10_000;

/// The result of the test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Test {
    /// Name of the test: `Mann-Whitney U`.
    pub name: &'static str,
    /// The U statistic: the number of pairs in which the later value is larger; ties count half.
    pub u: f64,
    /// p-value of the later values being larger.
    pub p_slower: f64,
    /// p-value of the later values being smaller.
    pub p_faster: f64,
    /// The smallest p-value possible with this number of values.
    pub p_least: f64,
    /// Whether the p-values are exact instead of approximated with the normal distribution.
    pub is_exact: bool,
}

impl Test {
    /// Whether there are enough values for a significant result.
    pub fn can_detect_change(&self) -> bool {
        self.p_least <= SIGNIFICANCE
    }
}

/// Compares two samples, ignoring values that are not finite. Returns `None` if a sample is empty.
pub fn mann_whitney(before: &[f64], after: &[f64]) -> Option<Test> {
    let numbers = |values: &[f64]| -> Vec<f64> {
        values.iter().copied().filter(|value| value.is_finite()).take(MAX_VALUES).collect()
    };
    let (before, after) = (numbers(before), numbers(after));
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let ranked = Ranked::new(&before, &after);
    let (n, m) = (before.len() as f64, after.len() as f64);
    let u = ranked.sum_after as f64 / 2.0 - m * (m + 1.0) / 2.0;
    let is_exact = before.len() + after.len() <= MAX_EXACT_VALUES;
    let (p_slower, p_faster) = if is_exact { ranked.exact() } else { ranked.normal(n, m) };
    let p_least = 1.0 / ways(before.len() + after.len(), after.len());
    Some(Test { name: "Mann-Whitney U", u, p_slower, p_faster, p_least, is_exact })
}

/// Both samples, ranked together. Ranks are doubled so that the ranks of ties are integers.
struct Ranked {
    /// All ranks, doubled.
    ranks: Vec<u64>,
    /// Sum of the doubled ranks of the later sample.
    sum_after: u64,
    /// Number of values in the later sample.
    count_after: usize,
    /// Sum of `t³ - t` over groups of `t` ties.
    ties: f64,
}

impl Ranked {
    fn new(before: &[f64], after: &[f64]) -> Ranked {
        let mut all: Vec<(f64, bool)> = before.iter().map(|&value| (value, false)).collect();
        all.extend(after.iter().map(|&value| (value, true)));
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ranked = Ranked {
            ranks: Vec::with_capacity(all.len()),
            sum_after: 0,
            count_after: after.len(),
            ties: 0.0,
        };
        let mut first = 1_u64;
        for group in all.chunk_by(|a, b| a.0 == b.0) {
            let count = group.len() as u64;
            // Twice the mean of `first` to `first + count - 1`.
            let rank = 2 * first + count - 1;
            let later = group.iter().filter(|(_, is_after)| *is_after).count() as u64;
            ranked.sum_after += rank * later;
            ranked.ranks.extend(std::iter::repeat_n(rank, group.len()));
            ranked.ties += (count as f64).powi(3) - count as f64;
            first += count;
        }
        ranked
    }

    /// Returns the shares of all assignments of ranks whose sum is at least, and at most, the
    /// observed one.
    fn exact(&self) -> (f64, f64) {
        let most = self.ranks.iter().sum::<u64>() as usize;
        // ways[k][s]: ways to choose k of the ranks so far with sum s.
        let mut ways = vec![vec![0.0_f64; most + 1]; self.count_after + 1];
        if let Some(none) = ways.first_mut().and_then(|row| row.first_mut()) {
            *none = 1.0;
        }
        for &rank in &self.ranks {
            let rank = rank as usize;
            for chosen in (1..=self.count_after).rev() {
                let (fewer, these) = ways.split_at_mut(chosen);
                let (Some(fewer), Some(these)) = (fewer.last(), these.first_mut()) else {
                    continue;
                };
                for (to, from) in these.iter_mut().skip(rank).zip(fewer) {
                    *to += from;
                }
            }
        }
        let sums = ways.last().map(Vec::as_slice).unwrap_or_default();
        let at = self.sum_after as usize;
        let all: f64 = sums.iter().sum();
        let at_least: f64 = sums.iter().skip(at).sum();
        let at_most: f64 = sums.iter().take(at + 1).sum();
        (at_least / all, at_most / all)
    }

    /// Returns the same with the normal approximation, corrected for ties and continuity.
    fn normal(&self, n: f64, m: f64) -> (f64, f64) {
        let all = n + m;
        let u = self.sum_after as f64 / 2.0 - m * (m + 1.0) / 2.0;
        let variance = n * m / 12.0 * ((all + 1.0) - self.ties / (all * (all - 1.0)));
        if variance <= 0.0 {
            return (1.0, 1.0);
        }
        let tail = |distance: f64| upper_tail((distance - 0.5) / variance.sqrt());
        (tail(u - n * m / 2.0), tail(n * m / 2.0 - u))
    }
}

/// Returns the number of ways to choose `k` of `n`, infinite if it overflows.
fn ways(n: usize, k: usize) -> f64 {
    (1..=k.min(n - k)).fold(1.0, |ways, at| ways * (n - at + 1) as f64 / at as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(before: &[f64], after: &[f64], slower: f64, faster: f64) {
        let test = mann_whitney(before, after).expect("a test");
        assert!(
            (test.p_slower - slower).abs() < 1e-4 && (test.p_faster - faster).abs() < 1e-4,
            "{test:?}"
        );
    }

    /// `scipy.stats.mannwhitneyu(after, before, method="exact", alternative=...)`, and the tables
    /// of the paper: with 3 and 3 values one of 20 ways is the extreme one.
    #[test]
    fn p_values_match_scipy_and_the_paper() {
        check(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 1.0 / 20.0, 1.0);
        check(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0], 1.0, 1.0 / 20.0);
        check(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0], 2.0 / 20.0, 19.0 / 20.0);
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0], 1.0 / 252.0, 1.0);
        // U = 4 of 16: 12 of 70 ways are at most as small.
        check(&[2.0, 5.0, 7.0, 8.0], &[1.0, 3.0, 4.0, 6.0], 63.0 / 70.0, 12.0 / 70.0);
    }

    #[test]
    fn ties_count_half() {
        let test = mann_whitney(&[1.0, 1.0, 1.0], &[1.0, 1.0, 1.0]).expect("a test");
        assert_eq!((test.u, test.p_slower, test.p_faster), (4.5, 1.0, 1.0));
        // Of the 6 ways to choose 2 of the ranks 1.5, 1.5, 3.5, 3.5, one has the sum 7.
        check(&[1.0, 1.0], &[2.0, 2.0], 1.0 / 6.0, 1.0);
    }

    #[test]
    fn few_values_are_never_significant() {
        let p_least = |n: usize, m: usize| {
            mann_whitney(&vec![1.0; n], &vec![2.0; m])
                .map(|test| (test.p_least, test.can_detect_change()))
        };
        assert_eq!(p_least(2, 2), Some((1.0 / 6.0, false)));
        assert_eq!(p_least(3, 3), Some((0.05, true)));
        assert_eq!(p_least(1, 19), Some((0.05, true)));
        assert_eq!(p_least(0, 5), None);
    }

    #[test]
    fn many_values_use_the_normal_approximation() {
        // Tables of the normal distribution: 1.6449 and 2.5758 leave 5% and 0.5% above them.
        assert!((upper_tail(1.644_854) - 0.05).abs() < 1e-6);
        assert!((upper_tail(2.575_829) - 0.005).abs() < 1e-6);
        assert!((upper_tail(-1.0) - 0.841_345).abs() < 1e-6);
        let before: Vec<f64> = (0..500).map(f64::from).collect();
        let after: Vec<f64> = before.iter().map(|value| value + 100.0).collect();
        let test = mann_whitney(&before, &after).expect("a test");
        assert!(!test.is_exact && test.p_slower < 1e-6 && test.p_faster > 0.999, "{test:?}");
    }

    #[test]
    fn exact_and_normal_agree() {
        let before: Vec<f64> = (0..18).map(|value| f64::from(value * 7 % 18)).collect();
        let after: Vec<f64> = (0..18).map(|value| f64::from(value * 5 % 18) + 3.4).collect();
        let ranked = Ranked::new(&before, &after);
        let ((exact, _), (normal, _)) = (ranked.exact(), ranked.normal(18.0, 18.0));
        assert!((exact - normal).abs() < 0.005, "{exact} {normal}");
    }

    #[test]
    fn non_finite_values_are_ignored() {
        assert_eq!(mann_whitney(&[f64::NAN], &[1.0]), None);
        check(&[f64::NAN, 1.0, 2.0, 3.0], &[4.0, 5.0, f64::INFINITY, 6.0], 0.05, 1.0);
    }

    proptest! {
        #[test]
        fn a_sample_does_not_differ_from_itself(values in proptest::collection::vec(any::<f64>(), 1..60)) {
            if let Some(test) = mann_whitney(&values, &values) {
                prop_assert!(test.p_slower > SIGNIFICANCE && test.p_faster > SIGNIFICANCE);
            }
        }

        #[test]
        fn swapping_sides_swaps_probabilities(
            a in proptest::collection::vec(0_u8..20, 1..30),
            b in proptest::collection::vec(0_u8..20, 1..30),
        ) {
            let (a, b): (Vec<f64>, Vec<f64>) =
                (a.into_iter().map(f64::from).collect(), b.into_iter().map(f64::from).collect());
            let (one, other) = (mann_whitney(&a, &b).expect("it"), mann_whitney(&b, &a).expect("it"));
            prop_assert!((one.p_slower - other.p_faster).abs() < 1e-9);
            prop_assert!((0.0..=1.0 + 1e-9).contains(&one.p_slower));
        }
    }
}
