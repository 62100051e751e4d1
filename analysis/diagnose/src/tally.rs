//! Sums over [`Evidence::work`] that several rules ask for.

use std::collections::BTreeMap;

use super::evidence::{Evidence, Key, Work};
use ridgeline_operators::operator::Operator;
use ridgeline_profile::{FileId, Phase};

/// A line of the text that ran.
pub(crate) type Line = (FileId, u32);

/// By line the sum of what `of` gives for each operator's work; lines without any are left out.
pub(crate) fn by_line(
    evidence: &Evidence<'_>,
    of: impl Fn(&Key, &Work, &Operator) -> Option<f64>,
) -> BTreeMap<Line, f64> {
    let mut found = BTreeMap::new();
    for (key, work) in evidence.work {
        let Some(operator) = evidence.operator(key) else { continue };
        if let Some(value) = of(key, work, operator) {
            *found.entry((key.0, key.1)).or_insert(0.0) += value;
        }
    }
    found
}

/// Lines with their values, the highest first.
pub(crate) fn highest_first(by_line: BTreeMap<Line, f64>) -> Vec<(Line, f64)> {
    let mut lines: Vec<(Line, f64)> = by_line.into_iter().collect();
    lines.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    lines
}

/// The work of one line.
pub(crate) fn of_line<'e>(
    evidence: &'e Evidence<'_>,
    line: Line,
) -> impl Iterator<Item = (&'e Key, &'e Work)> {
    let from = (line.0, line.1, Phase::Data, 0);
    let to = (line.0, line.1, Phase::Other, u32::MAX);
    evidence.work.range(from..=to)
}
