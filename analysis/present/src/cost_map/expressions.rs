//! The expressions of a statement in the current text.

use std::ops::Range;

use super::{CostMap, StatementCost};
use ridgeline_profile::{ExpressionCost, ExpressionRange, Profile, Provenance};
use ridgeline_python::syntax::index::SourceIndex;

/// The cost of an expression, mapped to a span of the current text.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedExpression<'a> {
    /// Byte range of the expression.
    pub span: Range<usize>,
    pub cost: &'a ExpressionCost,
}

impl CostMap {
    /// Returns the expressions of a statement, in source order. None if the statement changed or
    /// its costs are estimates: their times are measured, or unknown.
    pub fn expressions<'a>(
        &'a self,
        profile: &'a Profile,
        cost: &StatementCost,
        index: &SourceIndex,
    ) -> Vec<PlacedExpression<'a>> {
        if cost.provenance != Provenance::Measured {
            return Vec::new();
        }
        let lines = self.recorded_lines(profile, cost);
        let expressions = lines.flat_map(|line| &line.expressions);
        let place = |line| Some(self.map.place(line)?.line);
        let mut placed: Vec<PlacedExpression<'_>> = expressions
            .filter_map(|cost| {
                Some(PlacedExpression { span: expression_span(index, cost.range, place)?, cost })
            })
            .filter(|placed| cost.span.start <= placed.span.start)
            .filter(|placed| placed.span.end <= cost.span.end)
            .collect();
        // Outer expressions before those that begin with them.
        placed.sort_by_key(|one| (one.span.start, usize::MAX - one.span.end));
        placed
    }

    /// Returns the innermost expression that contains an offset.
    pub fn expression_at<'a>(
        &'a self,
        profile: &'a Profile,
        cost: &StatementCost,
        index: &SourceIndex,
        offset: usize,
    ) -> Option<PlacedExpression<'a>> {
        let around = self.expressions(profile, cost, index).into_iter();
        around.filter(|one| one.span.contains(&offset)).min_by_key(|one| one.span.len())
    }
}

/// Returns the span of an expression. `place` maps a line of the text that ran to the current one.
pub(crate) fn expression_span(
    index: &SourceIndex,
    range: ExpressionRange,
    place: impl Fn(u32) -> Option<u32>,
) -> Option<Range<usize>> {
    let offset = |line: u32, column: u32| {
        let trimmed = index.lines().trimmed(index.text(), place(line)?);
        let offset = trimmed.start.checked_add(column as usize)?;
        (offset <= trimmed.end).then_some(offset)
    };
    let span = offset(range.line, range.column)?..offset(range.end_line, range.end_column)?;
    // The recording may be of another text.
    index.text().get(span.clone()).filter(|text| !text.is_empty())?;
    Some(span)
}
