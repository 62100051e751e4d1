//! Fitted factors on the parts of operators, and what a whole step becomes by them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::parts::Part;

/// Factors of one optimization, with where they come from.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Factors {
    /// What they were fitted on, and their errors on what the fit had not seen.
    pub source: String,
    /// By the kind of part: what its modelled time after the change is multiplied by.
    pub factors: BTreeMap<String, f64>,
    /// What becomes of the measured time that the modelled parts do not explain.
    pub rest: f64,
    /// How far the cost model's error before the change is one after it too, where it takes the step
    /// for longer than it was measured to be: 1 wholly, 0 not at all.
    pub carried: f64,
    /// By which factor a step's prediction may be off, nine times in ten.
    pub range: f64,
}

impl Factors {
    /// Of one kind; 1 for what was not fitted.
    pub fn of(&self, kind: &str) -> f64 {
        self.factors.get(kind).copied().unwrap_or(1.0)
    }

    /// What an operator's time is multiplied by. `None` of parts without a time.
    pub fn operator_ratio(&self, parts: &[Part]) -> Option<f64> {
        let (before, after) = self.sums(parts);
        (before > 0.0 && after > 0.0).then(|| after / before)
    }

    /// What becomes of a step that was measured to take so many nanoseconds.
    pub fn step_ns(&self, measured_ns: f64, parts: &[Part]) -> Option<f64> {
        let (before, after) = self.sums(parts);
        if !(before > 0.0 && after > 0.0 && measured_ns > 0.0) {
            return None;
        }
        Some(if before > measured_ns {
            after * (measured_ns / before).powf(self.carried)
        } else {
            after + (measured_ns - before) * self.rest
        })
    }

    fn sums(&self, parts: &[Part]) -> (f64, f64) {
        let before = parts.iter().map(|part| part.before_ns).sum();
        let after = parts.iter().map(|part| part.after_ns * self.of(part.kind)).sum();
        (before, after)
    }
}

static COMPILED: LazyLock<Factors> = LazyLock::new(|| read(include_str!("compiled.json")));
static CHANNELS_LAST: LazyLock<Factors> =
    LazyLock::new(|| read(include_str!("channels_last.json")));
static MIXED_PRECISION: LazyLock<Factors> =
    LazyLock::new(|| read(include_str!("mixed_precision.json")));

/// Of mixed precision, from FP32 to FP16.
pub fn mixed_precision() -> &'static Factors {
    &MIXED_PRECISION
}

/// Of `torch.compile`.
pub fn compiled() -> &'static Factors {
    &COMPILED
}

/// Of channels-last order.
pub fn channels_last() -> &'static Factors {
    &CHANNELS_LAST
}

fn read(text: &str) -> Factors {
    // A test holds the files to this.
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_are_built_in_are_read_and_say_where_they_come_from() {
        for factors in [compiled(), channels_last(), mixed_precision()] {
            assert!(factors.source.starts_with("Fitted by"), "{}", factors.source);
            assert!(factors.source.contains("eld out"), "{}", factors.source);
            assert!(!factors.factors.is_empty());
            let all = factors.factors.values().chain([&factors.rest]);
            assert!(all.into_iter().all(|factor| (0.005..=100.0).contains(factor)));
            assert!((0.0..=1.0).contains(&factors.carried));
            assert!((1.0..2.0).contains(&factors.range));
        }
    }

    fn halving() -> Factors {
        let factors = BTreeMap::from([("half".to_owned(), 0.5)]);
        Factors { factors, rest: 0.1, carried: 1.0, ..Factors::default() }
    }

    #[test]
    fn what_the_parts_do_not_explain_is_counted_apart() {
        let parts = [Part::same("half", 40.0), Part::same("other", 20.0)];
        let found = halving().step_ns(100.0, &parts).expect("a time");
        assert!((found - (20.0 + 20.0 + 0.1 * 40.0)).abs() < 1e-9, "{found}");
    }

    #[test]
    fn a_step_shorter_than_its_parts_keeps_their_ratio() {
        let found = halving().step_ns(10.0, &[Part::same("half", 40.0)]).expect("a time");
        assert!((found - 5.0).abs() < 1e-9, "{found}");
        assert_eq!(halving().step_ns(10.0, &[]), None);
        assert_eq!(halving().operator_ratio(&[]), None);
    }
}
