//! The times of the expressions within a line.
//!
//! A frame is in one expression at a time: an argument is evaluated before the call that gets it.
//! So the time of a context on a line belongs to one expression, that of the innermost frame there,
//! and the expressions of a line add up to the line.

use std::collections::HashMap;

use super::Sums;
use super::contexts::Contexts;
use super::costs::is_within;
use super::join::Join;
use super::lines::{LineIndex, Lines};
use ridgeline_profile::{
    EXPRESSIONS_PER_LINE, ExpressionCost, ExpressionRange, LineCost, Provenance,
};
use ridgeline_recording::manifest::{Expression, Manifest};

/// Adds to each line its most expensive expressions.
pub(super) fn add_expressions(
    join: &Join<'_>,
    contexts: &Contexts<'_>,
    sums: &Sums,
    manifest: &Manifest,
    lines: &mut Lines,
) {
    if manifest.expressions.is_empty() {
        return;
    }
    let mut found = Found { expressions: &manifest.expressions, costs: HashMap::new() };
    let (log, stacks) = (join.places.log, &join.places.log.stacks);
    for (_, context, cost, factor) in sums.by_context(contexts) {
        lines.each_frame_on(stacks, context.stacks(), |line, frame| {
            if let Some(evaluated) = frame.expression.and_then(|at| found.cost(line, at)) {
                *evaluated.total_time.get_mut(context.phase) += cost.time_ns * factor;
            }
        });
    }
    let share = 1.0 / join.windows.len().max(1) as f64;
    for moment in log.threads.iter().flat_map(|thread| &thread.moments) {
        if moment.evaluates
            && is_within(join.windows, moment.time_ns)
            && let Some(line) = lines.of_stack(moment.stack)
            && let Some(expression) = stacks.top(moment.stack).and_then(|frame| frame.expression)
            && let Some(cost) = found.cost(line, expression)
        {
            cost.calls += share;
        }
    }
    found.add_to(lines);
}

struct Found<'a> {
    expressions: &'a [Expression],
    costs: HashMap<(LineIndex, ExpressionRange), ExpressionCost>,
}

impl Found<'_> {
    /// Returns the cost of an expression so far. Several instructions may have one range, such as
    /// the call in `for batch in batches():` and the steps of that loop.
    fn cost(&mut self, line: LineIndex, expression: u32) -> Option<&mut ExpressionCost> {
        let [first, column, last, end_column] = self.expressions.get(expression as usize)?.range;
        // Line 0: the text is unknown.
        if first == 0 {
            return None;
        }
        let range = ExpressionRange { line: first, column, end_line: last, end_column };
        let new = || ExpressionCost { range, ..ExpressionCost::default() };
        Some(self.costs.entry((line, range)).or_insert_with(new))
    }

    fn add_to(self, lines: &mut Lines) {
        for ((line, _), found) in self.costs {
            // The estimated time of a compiled function's line is in none of its expressions.
            let is_measured = |cost: &&mut LineCost| cost.provenance == Provenance::Measured;
            if let Some(cost) = lines.cost_mut(line).filter(is_measured)
                && found.total_time.total() > 0.0
            {
                cost.expressions.push(found);
            }
        }
        lines.each_cost(|cost| {
            let time = |one: &ExpressionCost| one.total_time.total();
            cost.expressions
                .sort_by(|a, b| time(b).total_cmp(&time(a)).then(a.range.cmp(&b.range)));
            cost.expressions.truncate(EXPRESSIONS_PER_LINE);
            cost.expressions.sort_by_key(|one| one.range);
        });
    }
}
