//! [`IgnoredFinding`]: findings that a project hides.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{MAX_SHOWN_CHARACTERS, clipped};

/// The maximum length of an entry, in bytes.
const MAX_BYTES: usize = 1024;

/// A rule (`hidden-sync`), or a rule in some files (`hidden-sync:old/*.py`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IgnoredFinding(String);

impl IgnoredFinding {
    /// The entry as written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'
}

impl<'de> Deserialize<'de> for IgnoredFinding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IgnoredFinding, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (rule, glob) = text.split_once(':').unwrap_or((&text, "*"));
        let is_rule = rule == "*" || (!rule.is_empty() && rule.chars().all(is_of_a_name));
        let is_glob = !glob.is_empty() && !glob.contains(['\\', '\0']) && !glob.starts_with('/');
        if is_rule && is_glob && text.len() <= MAX_BYTES {
            return Ok(IgnoredFinding(text));
        }
        let text = clipped(&text, MAX_SHOWN_CHARACTERS);
        Err(D::Error::custom(format!(
            "`{text}` matches no finding: use a finding name such as `hidden-sync`, optionally \
            with files, such as `hidden-sync:old/*.py`"
        )))
    }
}

impl JsonSchema for IgnoredFinding {
    fn schema_name() -> Cow<'static, str> {
        "Silenced".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The name of a finding (`hidden-sync`), optionally with files relative \
                to the project root: `hidden-sync:old/*.py`. `*` matches every finding.",
            "type": "string",
            "pattern": "^([a-z0-9-]+|\\*)(:[^/\\\\].*)?$",
            "maxLength": MAX_BYTES,
        })
    }
}

#[cfg(test)]
mod tests {
    use ridgeline_analysis::diagnose;

    use super::*;

    fn read(text: &str) -> Option<IgnoredFinding> {
        serde_json::from_value(serde_json::Value::from(text)).ok()
    }

    #[test]
    fn every_rule_can_be_suppressed() {
        for (rule, _) in diagnose::rules() {
            assert!(read(rule).is_some() && read(&format!("{rule}:old/*.py")).is_some(), "{rule}");
        }
        assert!(read("*:old").is_some());
    }

    #[test]
    fn an_entry_that_suppresses_nothing_is_refused() {
        for wrong in
            ["", "Hidden", "hidden sync", "hidden-sync:", "hidden-sync:/tmp", "x:a\\b", ":a"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(read(&"x".repeat(2000)), None);
    }
}
