//! Sums over [`Evidence::work`] that several rules use.

use std::collections::BTreeMap;

use super::evidence::{Evidence, Key, Work};
use ridgeline_operators::operator::Operator;
use ridgeline_profile::{FileId, Phase};

/// A line of the text that ran.
pub(crate) type Line = (FileId, u32);

/// Sums `value_of` over the operators of each line. Lines without a value are left out.
pub(crate) fn by_line(
    evidence: &Evidence<'_>,
    value_of: impl Fn(&Key, &Work, &Operator) -> Option<f64>,
) -> BTreeMap<Line, f64> {
    let mut found = BTreeMap::new();
    for (key, work) in evidence.work {
        let Some(operator) = evidence.operator(key) else { continue };
        if let Some(value) = value_of(key, work, operator) {
            *found.entry((key.0, key.1)).or_insert(0.0) += value;
        }
    }
    found
}

/// Sorts lines by their values, the highest first.
pub(crate) fn highest_first(by_line: BTreeMap<Line, f64>) -> Vec<(Line, f64)> {
    let mut lines: Vec<(Line, f64)> = by_line.into_iter().collect();
    lines.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    lines
}

/// Returns the work of one line.
pub(crate) fn work_of_line<'e>(
    evidence: &'e Evidence<'_>,
    line: Line,
) -> impl Iterator<Item = (&'e Key, &'e Work)> {
    let from = (line.0, line.1, Phase::Data, 0);
    let to = (line.0, line.1, Phase::Other, u32::MAX);
    evidence.work.range(from..=to)
}
