//! The expressions of a line: the one under the cursor, or all of them.

use ridgeline_base::units;
use ridgeline_profile::{ExpressionCost, Phase};
use ridgeline_python::{SourceIndex, expression_label};

use crate::cost_map::PlacedExpression;
use crate::page::{Page, count};

/// The maximum number of expressions listed.
const MAX_EXPRESSIONS: usize = 5;
/// Expressions below this share of the line are not listed.
const MIN_SHARE_OF_LINE: f64 = 0.01;

/// Writes the most expensive expressions that fit, in source order, with their shares of the line.
pub(super) fn table(
    page: &mut Page,
    index: &SourceIndex,
    placed: &[PlacedExpression<'_>],
    line_ns: f64,
) {
    let time = |one: &PlacedExpression<'_>| one.cost.total_time.total();
    let mut listed: Vec<&PlacedExpression<'_>> =
        placed.iter().filter(|one| time(one) > MIN_SHARE_OF_LINE * line_ns).collect();
    if listed.len() < 2 || page.room() < 3 {
        return;
    }
    let all = listed.len();
    listed.sort_by(|a, b| time(b).total_cmp(&time(a)));
    listed.truncate(MAX_EXPRESSIONS.min(page.room() - 1));
    listed.sort_by_key(|one| (one.span.end, one.span.start));
    let title = match listed.len() {
        shown if shown < all => format!("Expressions: {shown} of {all}"),
        _ => "Expressions".to_owned(),
    };
    let headings = [title, "time".to_owned(), "of line".to_owned()].to_vec();
    let rows = listed.iter().map(|one| {
        let share = units::percent(time(one) / line_ns);
        [expression_label(index, &one.span), times(one.cost), share].to_vec()
    });
    page.table(&std::iter::once(headings).chain(rows).collect::<Vec<_>>());
}

/// `4.2 ms in 12 calls`, `fwd 1.2 · bwd 3.0 ms`.
fn times(cost: &ExpressionCost) -> String {
    let mut time = units::duration(cost.total_time.total());
    let phases: Vec<String> = [(Phase::Forward, "fwd"), (Phase::Backward, "bwd")]
        .into_iter()
        .map(|(phase, name)| (cost.total_time.get(phase), name))
        .filter(|(time_ns, _)| *time_ns > 0.0)
        .map(|(time_ns, name)| format!("{name} {}", units::duration(time_ns)))
        .collect();
    if phases.len() == 2 {
        time = phases.join(" · ");
    }
    if cost.calls > 1.05 {
        time += &format!(" in {} calls", count(cost.calls));
    }
    time
}
