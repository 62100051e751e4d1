//! Heat: in which statements an iteration's time is spent, for a strip of colour beside the text.
//!
//! It is the time that the statement's hint shows, so that the two agree.

use std::ops::Range;

use super::hints::shown_ns;
use super::share::share_of_whole;
use crate::cost_map::CostMap;
use ridgeline_profile::{Profile, Provenance};

/// A strip with more marks than this shows no place in particular.
pub const MAX_STATEMENTS: usize = 64;

/// Statements under this share of the iteration are cold.
const LEAST_SHARE: f64 = 0.002;

/// A statement that is hot.
#[derive(Clone, Debug, PartialEq)]
pub struct HotStatement {
    /// Bytes of the statement; of a compound statement, its header.
    pub span: Range<usize>,
    /// Of the iteration's time, with what the statement calls: 0 to 1.
    pub share: f64,
    /// Where the number comes from.
    pub provenance: Provenance,
}

/// The hottest statements of one file, hottest first.
pub fn heat(profile: &Profile, costs: &CostMap) -> Vec<HotStatement> {
    let hot = costs.statements.iter().filter_map(|cost| {
        let share = share_of_whole(shown_ns(profile, costs, cost)?, profile);
        Some(HotStatement { span: cost.span.clone(), share, provenance: cost.provenance })
    });
    let mut hot: Vec<HotStatement> = hot.filter(|found| found.share >= LEAST_SHARE).collect();
    // The sort is stable: of equals, the upper one comes first.
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
    fn a_changed_statement_says_so() {
        let (text, _) = ridgeline_compare::fixture::profile(TRAIN);
        let today = text.replace("torch.relu", "torch.tanh");
        let (profile, costs, index) = costs(TRAIN, Some(&today));
        let changed = heat(&profile, &costs)
            .into_iter()
            .find(|found| index.text()[found.span.clone()].contains("tanh"));
        assert_eq!(changed.map(|found| found.provenance), Some(Provenance::Stale));
    }

    #[test]
    fn no_more_than_can_be_told_apart() {
        let marked: String =
            (0..200).map(|line| format!("f({line})  #= f{}\n", 1 + line % 7)).collect();
        let (profile, costs, _) = costs(&marked, None);
        let found = heat(&profile, &costs);
        assert_eq!(found.len(), MAX_STATEMENTS);
        assert!(found.is_sorted_by(|a, b| a.share >= b.share));
    }
}
