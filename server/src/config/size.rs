//! Sizes in bytes.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{MAX_SHOWN_CHARACTERS, clipped};

/// A size in bytes, written as a number or as `"16 GB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(super) u64);

impl Size {
    /// The number of bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.0
    }

    /// Parses `16 GB`. Returns `None` if it is not a size.
    pub(crate) fn parse(text: &str) -> Option<Size> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = match unit.trim() {
            "" | "B" => 1.0,
            "kB" | "KB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "TB" => 1e12,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => return None,
        };
        let bytes = number.parse::<f64>().ok()? * scale;
        // A float-to-integer cast saturates. A value above an exabyte is a typing error.
        (1.0..=1e18).contains(&bytes).then_some(Size(bytes as u64))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl de::Visitor<'_> for SizeVisitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a size such as \"16 GB\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Size, E> {
                match u64::try_from(value) {
                    Ok(bytes) if bytes > 0 => Ok(Size(bytes)),
                    _ => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
                }
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text).ok_or_else(|| {
                    E::invalid_value(
                        de::Unexpected::Str(&clipped(text, MAX_SHOWN_CHARACTERS)),
                        &self,
                    )
                })
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": r"^[0-9.]+ *(B|[kK]B|MB|GB|TB|KiB|MiB|GiB)?$"}
        ]})
    }
}
