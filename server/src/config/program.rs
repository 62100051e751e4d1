//! The program's name and its arguments.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{MAX_SHOWN_CHARACTERS, clipped};

/// A dotted Python name: `package.train`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModuleName(String);

impl ModuleName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ModuleName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let identifier = |part: &str| {
            !part.is_empty()
                && !part.starts_with(|c: char| c.is_numeric())
                && part.chars().all(|c| c == '_' || c.is_alphanumeric())
        };
        if name.split('.').all(identifier) {
            Ok(ModuleName(name))
        } else {
            Err(de::Error::custom(format!(
                "`{}` is not a valid Python module name",
                clipped(&name, MAX_SHOWN_CHARACTERS)
            )))
        }
    }
}

impl JsonSchema for ModuleName {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "ModuleName".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1})
    }
}

/// One argument of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument(String);

impl Argument {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('\0') {
            return Err(de::Error::custom("an argument cannot contain a NUL byte"));
        }
        Ok(Argument(text))
    }
}

impl JsonSchema for Argument {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Argument".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}
