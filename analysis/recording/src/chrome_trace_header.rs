//! The header of a trace: devices, base time, rank. Everything else is skipped and never stored,
//! above all `metadata` with the environment of the recording process.

use serde::Deserialize;
use serde_json::Value;

use super::chrome_trace_json::Token;
use super::trace::{DeviceProperties, Distributed};

/// A member of the top-level object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderKey {
    Events,
    BaseTime,
    Devices,
    Distributed,
    Other,
}

impl HeaderKey {
    pub(super) fn of(key: &[u8]) -> HeaderKey {
        match key {
            b"baseTimeNanoseconds" => HeaderKey::BaseTime,
            b"deviceProperties" => HeaderKey::Devices,
            b"distributedInfo" => HeaderKey::Distributed,
            _ => HeaderKey::Other,
        }
    }
}

/// The members that are stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub(super) base_time_ns: Option<i64>,
    pub(super) devices: Vec<DeviceProperties>,
    pub(super) distributed: Option<Distributed>,
}

impl Header {
    /// Stores the value of a member, if it is valid.
    pub(super) fn set(&mut self, key: HeaderKey, value: Token<'_>) {
        match key {
            HeaderKey::BaseTime => self.base_time_ns = value.signed(),
            HeaderKey::Devices => {
                let all: Vec<Value> = parse(value).unwrap_or_default();
                self.devices = all.iter().filter_map(device).collect();
            }
            HeaderKey::Distributed => {
                self.distributed = parse::<Value>(value).map(|info| Distributed {
                    backend: info.get("backend").and_then(Value::as_str).map(str::to_owned),
                    rank: info.get("rank").and_then(Value::as_i64),
                    world_size: info.get("world_size").and_then(Value::as_i64),
                });
            }
            HeaderKey::Events | HeaderKey::Other => {}
        }
    }
}

fn parse<T: for<'de> Deserialize<'de>>(value: Token<'_>) -> Option<T> {
    serde_json::from_slice(value.nested()?).ok()
}

fn device(properties: &Value) -> Option<DeviceProperties> {
    let number = |key: &str| properties.get(key).and_then(Value::as_u64);
    let small = |key: &str| number(key).and_then(|value| u32::try_from(value).ok());
    Some(DeviceProperties {
        number: properties.get("id")?.as_i64()?,
        name: properties.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
        capability: small("computeMajor").zip(small("computeMinor")),
        multiprocessors: small("numSms"),
        memory_bytes: number("totalGlobalMem"),
        warp_size: small("warpSize"),
        max_threads_per_multiprocessor: small("maxThreadsPerMultiprocessor"),
    })
}
