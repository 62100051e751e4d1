//! The budgets of `ridgeline check`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{Count, MAX_SHOWN_CHARACTERS, PathInside, Size, clipped};

/// The maximum number of findings of a severity.
type Findings = Count<0, 1_000_000>;

/// Limits of `ridgeline check`. Command-line options take precedence.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Check {
    /// Baseline to compare runs with, relative to this file: output of `check --write-baseline` or
    /// `profile --json`.
    pub baseline: Option<PathInside>,
    /// Maximum increase of iteration time and peak memory over the baseline. Default: 5%.
    pub max_regression: Option<Percent>,
    /// Maximum peak memory of an iteration.
    pub max_memory: Option<Size>,
    /// Maximum iteration time in milliseconds.
    pub max_time: Option<Milliseconds>,
    /// Maximum number of findings.
    pub max_findings: MaxFindings,
    /// Whether the check fails if something cannot be checked. Default: false.
    pub strict: bool,
}

/// Maximum number of findings at each severity and above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MaxFindings {
    /// Warnings: findings that cost 5% or more of iteration time or peak memory.
    pub warning: Option<Findings>,
    /// Warnings, and findings that cost 1% or more.
    pub information: Option<Findings>,
    /// All findings.
    pub hint: Option<Findings>,
}

/// A fraction, written as `"5%"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Percent(f64);

impl Percent {
    /// The fraction, between 0 and 10.
    pub(crate) fn share(self) -> f64 {
        self.0
    }

    /// Parses `5%`. Returns `None` unless it is a percentage from 0% to 1000%.
    pub(crate) fn parse(text: &str) -> Option<Percent> {
        let number: f64 = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
        (0.0..=1000.0).contains(&number).then_some(Percent(number / 100.0))
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PercentVisitor;
        impl de::Visitor<'_> for PercentVisitor {
            type Value = Percent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage from \"0%\" to \"1000%\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Percent, E> {
                let wrong = || de::Unexpected::Str(text);
                Percent::parse(text).ok_or_else(|| match text.len() > MAX_SHOWN_CHARACTERS {
                    true => E::custom(format!(
                        "`{}` is not a percentage",
                        clipped(text, MAX_SHOWN_CHARACTERS)
                    )),
                    false => E::invalid_value(wrong(), &self),
                })
            }
        }
        deserializer.deserialize_str(PercentVisitor)
    }
}

impl JsonSchema for Percent {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": r"^ *[0-9.]+ *% *$"})
    }
}

/// A time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Milliseconds(f64);

impl Milliseconds {
    /// The time in nanoseconds.
    pub(crate) fn nanoseconds(self) -> f64 {
        self.0 * 1e6
    }

    /// Returns `None` if the value is not a time between 0 and one day.
    pub(crate) fn new(milliseconds: f64) -> Option<Milliseconds> {
        const MAX: f64 = 86_400_000.0;
        (milliseconds > 0.0 && milliseconds <= MAX).then_some(Milliseconds(milliseconds))
    }
}

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MillisecondsVisitor;
        impl de::Visitor<'_> for MillisecondsVisitor {
            type Value = Milliseconds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("milliseconds: a number above 0, at most 86400000")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Milliseconds, E> {
                self.visit_f64(value as f64)
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Milliseconds, E> {
                Milliseconds::new(value)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Float(value), &self))
            }
        }
        deserializer.deserialize_any(MillisecondsVisitor)
    }
}

impl JsonSchema for Milliseconds {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Milliseconds".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "exclusiveMinimum": 0, "maximum": 86_400_000})
    }
}
