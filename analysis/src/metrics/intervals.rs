//! Stretches of time, each from its start to its end.

/// The length of the union of intervals, each from start to end.
pub fn union_ns(mut intervals: Vec<(i64, i64)>) -> u64 {
    intervals.sort_unstable();
    let mut total = 0u64;
    let mut covered_to = i64::MIN;
    for (start, end) in intervals {
        let start = start.max(covered_to);
        if end > start {
            total = total.saturating_add(end.abs_diff(start));
            covered_to = end;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_union_counts_each_moment_once() {
        assert_eq!(union_ns(vec![]), 0);
        assert_eq!(union_ns(vec![(0, 10), (10, 20)]), 20);
        assert_eq!(union_ns(vec![(5, 6), (0, 10), (3, 12), (20, 20), (30, 31)]), 13);
        assert_eq!(union_ns(vec![(i64::MIN, i64::MAX)]), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_union_is_the_number_of_covered_nanoseconds(
            intervals in prop::collection::vec((0i64..200, 0i64..40), 0..30)
        ) {
            let intervals: Vec<(i64, i64)> =
                intervals.into_iter().map(|(start, length)| (start, start + length)).collect();
            let covered = (0..300)
                .filter(|moment| intervals.iter().any(|(start, end)| (start..end).contains(&moment)))
                .count() as u64;
            prop_assert_eq!(union_ns(intervals), covered);
        }
    }
}
