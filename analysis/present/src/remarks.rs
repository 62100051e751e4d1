//! Remarks: the headline of the training loop and the most expensive lines, as one sentence each.
//!
//! They are for editors that cannot be told to refresh hints: diagnostics are the one thing that
//! every editor updates at once. There are few of them, because editors list diagnostics and jump
//! from one to the next.

use std::ops::Range;

use super::headline::headline;
use super::headline::with_provenance;
use super::page::ordinal;
use super::share::{rank, share};
use crate::cost_map::{CostMap, StatementCost};
use ridgeline_base::units;
use ridgeline_profile::Profile;
use ridgeline_python::SourceIndex;

/// The maximum number of lines with a remark, over the whole project.
const MAX_LINES: usize = 3;

/// Lines below this share of the iteration have no remark.
const MIN_SHARE: f64 = 0.05;

/// A sentence about a source range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The first word of the statement. Editors underline it, and a fully underlined statement
    /// would look like an error.
    pub span: Range<usize>,
    /// `2nd most expensive line: 5.2 ms · 33%`.
    pub message: String,
    /// Whether it is the headline at the training loop.
    pub is_headline: bool,
}

/// Returns the remarks on one file, in source order.
pub fn remarks(profile: &Profile, costs: &CostMap, index: &SourceIndex) -> Vec<Remark> {
    let first_word = |span: &Range<usize>| {
        let text = index.text().get(span.clone()).unwrap_or_default();
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
        // A statement that begins with a bracket is marked at the bracket.
        let first_length = text.chars().next().map_or(0, char::len_utf8);
        span.start..span.start + end.max(first_length)
    };
    let mut found = Vec::new();
    if let Some(training) = &costs.training_loop {
        let message = headline(profile, training.provenance);
        if !message.is_empty() {
            let span = first_word(&training.header);
            found.push(Remark { span, message, is_headline: true });
        }
    }
    // The loop's line already has the headline.
    let is_loop = |cost: &&StatementCost| {
        costs.training_loop.as_ref().is_some_and(|training| training.header == cost.span)
    };
    for cost in costs.statements.iter().filter(|cost| !is_loop(cost)) {
        let self_ns = cost.self_time.total();
        let share = share(&cost.self_time, profile);
        let Some(rank) = rank(profile, self_ns).filter(|rank| *rank <= MAX_LINES) else { continue };
        if share < MIN_SHARE {
            continue;
        }
        let rank_text = if rank == 1 { String::new() } else { format!("{} ", ordinal(rank)) };
        // The hint of the line includes its calls, so mark self time as such.
        let is_own = self_ns < 0.95 * cost.total_time.total();
        let here = if is_own { " self" } else { "" };
        let time = format!("{} · {}", units::duration(self_ns), units::percent(share));
        let message = format!(
            "{rank_text}most expensive line: {}{here}",
            with_provenance(time, cost.provenance)
        );
        found.push(Remark { span: first_word(&cost.span), message, is_headline: false });
    }
    found.sort_by_key(|remark| remark.span.start);
    found
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::costs;
    use ridgeline_compare::fixture::{TRAIN, profile};

    fn check(today: Option<&str>, expected: Expect) {
        let (profile, costs, index) = costs(TRAIN, today);
        let mut shown = String::new();
        for remark in remarks(&profile, &costs, &index) {
            let word = &index.text()[remark.span.clone()];
            let line = index.lines().line_of(remark.span.start);
            shown += &format!("{line} {word}: {}\n", remark.message);
        }
        expected.assert_eq(&shown);
    }

    #[test]
    fn the_loop_and_the_most_expensive_lines() {
        check(
            None,
            expect![[r#"
                8 x: most expensive line: 50 ms · 50%
                9 return: 3rd most expensive line: 10 ms · 10%
                14 for: 320 samples/s · 100 ms · peak 120 MB / 23.7 GB
                19 optimizer: 2nd most expensive line: 20 ms · 20%
            "#]],
        );
    }

    #[test]
    fn remarks_follow_their_statements() {
        let (text, _) = profile(TRAIN);
        let today = format!("import os\n{}", text.replace("torch.relu", "torch.tanh"));
        check(
            Some(&today),
            expect![[r#"
                9 x: most expensive line: was 50 ms · 50%
                10 return: 3rd most expensive line: 10 ms · 10%
                15 for: 320 samples/s · 100 ms · peak 120 MB / 23.7 GB
                20 optimizer: 2nd most expensive line: 20 ms · 20%
            "#]],
        );
    }
}
