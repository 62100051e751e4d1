//! Fitted factors on the parts of operators, and their effect on a whole step.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::parts::Part;

/// Factors of one optimization, with their source.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Factors {
    /// The data they were fitted to, and their held-out errors.
    pub source: String,
    /// By kind of part: factor on its modeled time after the change.
    pub factors: BTreeMap<String, f64>,
    /// Factor on the measured time that the modeled parts do not explain.
    pub rest: f64,
    /// Share of the cost model's error that carries over if the model overestimates the step, from
    /// 0 to 1.
    pub carried: f64,
    /// Uncertainty factor of a step's prediction in nine of ten cases.
    pub range: f64,
}

impl Factors {
    /// Returns the factor of a kind, or 1 if it was not fitted.
    pub fn of(&self, kind: &str) -> f64 {
        self.factors.get(kind).copied().unwrap_or(1.0)
    }

    /// Returns the factor on an operator's time, or `None` if its parts have no time.
    pub fn operator_ratio(&self, parts: &[Part]) -> Option<f64> {
        let (before, after) = self.sums(parts);
        (before > 0.0 && after > 0.0).then(|| after / before)
    }

    /// Predicts the time of a step from its measured time, both in nanoseconds.
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

/// Factors of mixed precision, from FP32 to FP16.
pub fn mixed_precision() -> &'static Factors {
    &MIXED_PRECISION
}

/// Factors of `torch.compile`.
pub fn compiled() -> &'static Factors {
    &COMPILED
}

/// Factors of channels_last.
pub fn channels_last() -> &'static Factors {
    &CHANNELS_LAST
}

fn read(text: &str) -> Factors {
    // A test checks that the files are valid.
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_files_are_valid_and_name_their_source() {
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
    fn unexplained_time_has_its_own_factor() {
        let parts = [Part::same("half", 40.0), Part::same("other", 20.0)];
        let found = halving().step_ns(100.0, &parts).expect("a time");
        assert!((found - (20.0 + 20.0 + 0.1 * 40.0)).abs() < 1e-9, "{found}");
    }

    #[test]
    fn steps_shorter_than_their_parts_keep_the_ratio() {
        let found = halving().step_ns(10.0, &[Part::same("half", 40.0)]).expect("a time");
        assert!((found - 5.0).abs() < 1e-9, "{found}");
        assert_eq!(halving().step_ns(10.0, &[]), None);
        assert_eq!(halving().operator_ratio(&[]), None);
    }
}
