//! The device to run on.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{MAX_SHOWN_CHARACTERS, clipped};

/// The device to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// A GPU if available, else the CPU.
    #[default]
    Auto,
    Cpu,
    /// torch's default GPU.
    Cuda,
    /// One GPU, by its torch index.
    CudaIndex(u16),
}

impl DeviceChoice {
    /// Parses `auto`, `cpu`, `cuda` or `cuda:1`.
    pub(crate) fn parse(text: &str) -> Option<DeviceChoice> {
        match text {
            "auto" => Some(DeviceChoice::Auto),
            "cpu" => Some(DeviceChoice::Cpu),
            "cuda" => Some(DeviceChoice::Cuda),
            _ => {
                let index = text.strip_prefix("cuda:")?;
                let digits = !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit());
                digits.then(|| index.parse().ok()).flatten().map(DeviceChoice::CudaIndex)
            }
        }
    }
}

/// The allowed values of `device`, for messages.
pub(crate) const DEVICES: &str = "`auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`";

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda => f.write_str("cuda"),
            DeviceChoice::CudaIndex(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        DeviceChoice::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "unknown device `{}`: use {DEVICES}",
                clipped(&text, MAX_SHOWN_CHARACTERS)
            ))
        })
    }
}

impl JsonSchema for DeviceChoice {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Device".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^(auto|cpu|cuda|cuda:[0-9]{1,5})$"})
    }
}
