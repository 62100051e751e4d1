//! Time intervals.

/// An interval as `(start, end)`, the end excluded.
pub type Interval = (i64, i64);

/// Returns the length of the union of intervals.
pub fn union_ns(mut intervals: Vec<Interval>) -> u64 {
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

/// Returns the parts of an interval that lie in the windows. Windows must be sorted and must not
/// overlap.
pub fn clipped((start_ns, end_ns): Interval, windows: &[Interval]) -> Vec<Interval> {
    let first = windows.partition_point(|(_, window_end)| *window_end <= start_ns);
    let within = windows.get(first..).unwrap_or_default().iter();
    within
        .take_while(|(from, _)| *from < end_ns)
        .map(|(from, to)| (start_ns.max(*from), end_ns.min(*to)))
        .filter(|(from, to)| from < to)
        .collect()
}

/// Returns the union of intervals, sorted and without overlaps.
pub fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut union: Vec<Interval> = Vec::with_capacity(intervals.len());
    for (start, end) in intervals {
        match union.last_mut().filter(|(_, last)| *last >= start) {
            Some((_, last)) => *last = end.max(*last),
            None => union.push((start, end)),
        }
    }
    union
}

/// Returns the parts of an interval that a union does not cover.
pub fn without((start, end): Interval, union: &[Interval]) -> Vec<Interval> {
    let (mut left, mut now) = (Vec::new(), start);
    let first = union.partition_point(|(_, to)| *to <= start);
    for &(from, to) in union.get(first..).unwrap_or_default() {
        if from >= end {
            break;
        }
        if from > now {
            left.push((now, from));
        }
        now = now.max(to);
    }
    if now < end {
        left.push((now, end));
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn union_ns_counts_overlaps_once() {
        assert_eq!(union_ns(vec![]), 0);
        assert_eq!(union_ns(vec![(0, 10), (10, 20)]), 20);
        assert_eq!(union_ns(vec![(5, 6), (0, 10), (3, 12), (20, 20), (30, 31)]), 13);
        assert_eq!(union_ns(vec![(i64::MIN, i64::MAX)]), u64::MAX);
    }

    proptest! {
        #[test]
        fn union_ns_counts_covered_nanoseconds(
            intervals in prop::collection::vec((0i64..200, 0i64..40), 0..30)
        ) {
            let intervals: Vec<(i64, i64)> =
                intervals.into_iter().map(|(start, length)| (start, start + length)).collect();
            let covered = (0..300)
                .filter(|moment| intervals.iter().any(|(start, end)| (start..end).contains(&moment)))
                .count() as u64;
            prop_assert_eq!(union_ns(intervals), covered);
        }

        #[test]
        fn without_returns_the_uncovered_parts(
            interval in (0i64..50, 0i64..50),
            others in prop::collection::vec((0i64..50, 0i64..20), 0..8),
        ) {
            let interval = (interval.0, interval.0 + interval.1);
            let union = merged(others.iter().map(|(start, length)| (*start, start + length)).collect());
            prop_assert!(union.windows(2).all(|pair| pair[0].1 < pair[1].0));
            let left = without(interval, &union);
            let holds = |of: &[Interval], moment: i64| of.iter().any(|(a, b)| *a <= moment && moment < *b);
            for moment in 0..120 {
                let expected = holds(&[interval], moment) && !holds(&union, moment);
                prop_assert_eq!(holds(&left, moment), expected, "{}", moment);
            }
        }
    }
}
