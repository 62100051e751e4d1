//! Heat: the statements in which an iteration's time is spent, for a color strip next to the text.
//!
//! It uses the time of the statement's hint, so that the two agree.

use std::ops::Range;

use super::hints::shown_ns;
use super::share::share_of_whole;
use crate::cost_map::CostMap;
use ridgeline_profile::{Profile, Provenance};

/// The maximum number of marks. With more, the strip would not point anywhere in particular.
pub const MAX_STATEMENTS: usize = 64;

/// Statements below this share of the iteration get no mark.
const MIN_SHARE: f64 = 0.002;

/// A statement that takes a relevant share of the iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct HotStatement {
    /// Byte range of the statement, or of its header if it is a compound statement.
    pub span: Range<usize>,
    /// Share of the iteration's time, 0 to 1, including calls.
    pub share: f64,
    /// The origin of the number.
    pub provenance: Provenance,
}

/// Returns the hottest statements of one file, hottest first.
pub fn heat(profile: &Profile, costs: &CostMap) -> Vec<HotStatement> {
    let hot = costs.statements.iter().filter_map(|cost| {
        let share = share_of_whole(shown_ns(profile, costs, cost)?, profile);
        Some(HotStatement { span: cost.span.clone(), share, provenance: cost.provenance })
    });
    let mut hot: Vec<HotStatement> = hot.filter(|found| found.share >= MIN_SHARE).collect();
    // The sort is stable: equal statements stay in source order.
    hot.sort_by(|a, b| b.share.total_cmp(&a.share));
    hot.truncate(MAX_STATEMENTS);
    hot
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::costs;
    use ridgeline_compare::fixture::TRAIN;

    fn check(marked: &str, today: Option<&str>, expected: Expect) {
        let (profile, costs, index) = costs(marked, today);
        let mut shown = String::new();
        for found in heat(&profile, &costs) {
            let line = index.text()[found.span].lines().next().unwrap_or_default();
            shown += &format!("{:.3} {:?}  {line}\n", found.share, found.provenance);
        }
        expected.assert_eq(&shown);
    }

    #[test]
    fn the_hottest_first() {
        check(
            TRAIN,
            None,
            expect![[r#"
                0.650 Measured  loss = F.cross_entropy(model(x), y)
                0.500 Measured  x = torch.relu(self.conv(x))
                0.200 Measured  optimizer.step()
                0.100 Measured  return self.head(
                0.080 Measured  for x, y in loader:
                0.002 Measured  optimizer.zero_grad()
            "#]],
        );
    }

    #[test]
    fn a_changed_statement_is_stale() {
        let (text, _) = ridgeline_compare::fixture::profile(TRAIN);
        let today = text.replace("torch.relu", "torch.tanh");
        let (profile, costs, index) = costs(TRAIN, Some(&today));
        let changed = heat(&profile, &costs)
            .into_iter()
            .find(|found| index.text()[found.span.clone()].contains("tanh"));
        assert_eq!(changed.map(|found| found.provenance), Some(Provenance::Stale));
    }

    #[test]
    fn the_number_of_marks_is_limited() {
        let marked: String =
            (0..200).map(|line| format!("f({line})  #= f{}\n", 1 + line % 7)).collect();
        let (profile, costs, _) = costs(&marked, None);
        let found = heat(&profile, &costs);
        assert_eq!(found.len(), MAX_STATEMENTS);
        assert!(found.is_sorted_by(|a, b| a.share >= b.share));
    }
}
