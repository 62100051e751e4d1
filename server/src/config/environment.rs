//! Environment variables for the program.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{MAX_SHOWN_CHARACTERS, clipped};

/// Serde's default errors quote the value, which may be a secret here.
macro_rules! refuse_without_quoting {
    ($message:literal) => {
        fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
            Err(E::custom($message))
        }
        fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
            Err(E::custom($message))
        }
        fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
            Err(E::custom($message))
        }
        fn visit_seq<A: de::SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
            Err(de::Error::custom($message))
        }
    };
}

/// Environment variables for the program. Their values may be secrets, so `Debug` shows only the
/// names and no message quotes a value.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Names and values.
    pub(crate) fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Variables;
        impl<'de> de::Visitor<'de> for Variables {
            type Value = Environment;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of NAME = \"value\"")
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Environment, E> {
                Err(E::custom("the environment must be a table of NAME = \"value\""))
            }
            refuse_without_quoting!("the environment must be a table of NAME = \"value\"");
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Environment, A::Error> {
                let mut variables = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name.is_empty() || name.contains(['=', '\0']) {
                        return Err(de::Error::custom(format!(
                            "`{}` is not a valid environment variable name",
                            clipped(&name, MAX_SHOWN_CHARACTERS)
                        )));
                    }
                    let EnvironmentValue(value) = map.next_value()?;
                    variables.insert(name, value);
                }
                Ok(Environment(variables))
            }
        }
        deserializer.deserialize_any(Variables)
    }
}

impl JsonSchema for Environment {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Environment".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": {"type": "string"}})
    }
}

/// A string whose deserialization errors do not quote it.
struct EnvironmentValue(String);

impl<'de> Deserialize<'de> for EnvironmentValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;
        impl<'de> de::Visitor<'de> for Value {
            type Value = EnvironmentValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<EnvironmentValue, E> {
                if text.contains('\0') {
                    return Err(E::custom("a value cannot contain a NUL byte"));
                }
                Ok(EnvironmentValue(text.to_owned()))
            }
            refuse_without_quoting!("the value of an environment variable must be a string");
        }
        deserializer.deserialize_any(Value)
    }
}
