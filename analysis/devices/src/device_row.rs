//! A device as written in a file: the rows of `device_table.json`, and GPUs that a user adds. Rates
//! are in the units of datasheets.

use serde::Deserialize;

use super::device_spec::{DeviceKind, DeviceSpec, Price, Rates};

/// One GPU, with the keys of `docs/configuration.md`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRow {
    /// Name.
    pub name: String,
    /// Names that drivers report for it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// `NVIDIA` or `AMD`.
    #[serde(default = "nvidia")]
    pub vendor: String,
    /// Compute capability (`9.0`) or AMD's target (`gfx942`).
    pub architecture: String,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: u32,
    /// Memory in units of 1e9 bytes, as sold.
    pub memory_gb: f64,
    /// L2 cache in units of 1e6 bytes, as sold.
    pub l2_mb: Option<f64>,
    pub base_clock_mhz: Option<f64>,
    pub boost_clock_mhz: Option<f64>,
    /// Memory bandwidth in 1e9 bytes per second.
    pub bandwidth_gb_per_s: f64,
    /// FP32 outside tensor cores, in 1e12 operations per second.
    pub fp32_tflops: Option<f64>,
    /// TF32 on tensor cores, dense, in 1e12 operations per second.
    pub tf32_tflops: Option<f64>,
    /// FP16 with FP32 accumulation, dense, in 1e12 operations per second.
    pub fp16_tflops: Option<f64>,
    /// BF16, dense, in 1e12 operations per second.
    pub bf16_tflops: Option<f64>,
    /// FP8, dense, in 1e12 operations per second.
    pub fp8_tflops: Option<f64>,
    /// Board power in watts.
    pub tdp_w: Option<f64>,
    /// Price per hour.
    pub price: Option<PriceRow>,
    /// Source of the numbers.
    #[serde(default)]
    pub source: String,
    /// The source that the numbers were checked against.
    pub verified_by: Option<String>,
    /// Additional information.
    pub note: Option<String>,
}

/// Price of one GPU hour, as written in a file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceRow {
    pub usd_per_hour: f64,
    /// Day of the price such as `2026-11-20`.
    pub date: Option<String>,
    /// The provider.
    pub source: Option<String>,
}

/// An invalid row.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{key}`: {why}")]
pub struct BadRow {
    /// The invalid key.
    pub key: &'static str,
    /// The error, with the values that are allowed.
    pub why: String,
}

fn nvidia() -> String {
    "NVIDIA".to_owned()
}

const MAX_TEXT_BYTES: usize = 200;
const MAX_ALIASES: usize = 32;

impl DeviceRow {
    /// Converts the row to a device if every number is plausible. The limits are wide: they catch a
    /// wrong unit, not an inaccurate value.
    ///
    /// # Errors
    /// Returns the first key with an invalid value.
    pub fn into_spec(self) -> Result<DeviceSpec, BadRow> {
        text("name", &self.name)?;
        if !self.name.contains(|c: char| c.is_ascii_alphanumeric()) {
            return bad("name", "must contain a letter or a digit".to_owned());
        }
        if self.aliases.len() > MAX_ALIASES {
            return bad("aliases", format!("has more than {MAX_ALIASES} aliases"));
        }
        for alias in &self.aliases {
            text("aliases", alias)?;
        }
        text("architecture", &self.architecture)?;
        text("source", &self.source)?;
        if !["nvidia", "amd"].contains(&self.vendor.to_ascii_lowercase().as_str()) {
            return bad("vendor", "must be `NVIDIA` or `AMD`".to_owned());
        }
        if !(1..=4096).contains(&self.multiprocessors) {
            return bad("multiprocessors", "must be a number from 1 to 4096".to_owned());
        }
        let memory = between("memory_gb", self.memory_gb, 0.5, 10_000.0)?;
        let bandwidth = between("bandwidth_gb_per_s", self.bandwidth_gb_per_s, 1.0, 1e6)?;
        let clock = |key, mhz: Option<f64>| optional(key, mhz, 100.0, 20_000.0, 1e6);
        let rate = |key, tera: Option<f64>| optional(key, tera, 0.01, 1e6, 1e12);
        let price = self.price.map(PriceRow::into_price).transpose()?;
        let peaks = Rates {
            fp32: rate("fp32_tflops", self.fp32_tflops)?,
            tf32: rate("tf32_tflops", self.tf32_tflops)?,
            fp16: rate("fp16_tflops", self.fp16_tflops)?,
            bf16: rate("bf16_tflops", self.bf16_tflops)?,
            fp8: rate("fp8_tflops", self.fp8_tflops)?,
        };
        if peaks.fp32.is_none() {
            return bad("fp32_tflops", "is missing".to_owned());
        }
        Ok(DeviceSpec {
            name: self.name,
            aliases: self.aliases,
            kind: DeviceKind::Gpu,
            vendor: self.vendor,
            architecture: self.architecture,
            multiprocessors: self.multiprocessors,
            base_clock_hz: clock("base_clock_mhz", self.base_clock_mhz)?,
            boost_clock_hz: clock("boost_clock_mhz", self.boost_clock_mhz)?,
            memory_bytes: (memory * 1e9) as u64,
            l2_bytes: optional("l2_mb", self.l2_mb, 0.01, 1e5, 1e6)?,
            bandwidth: bandwidth * 1e9,
            peaks,
            tdp_w: optional("tdp_w", self.tdp_w, 1.0, 1e5, 1.0)?,
            price,
            ceilings: None,
            source: self.source,
            verified_by: self.verified_by,
        })
    }
}

impl PriceRow {
    /// Converts the row to a price if it is plausible.
    ///
    /// # Errors
    /// Returns the first key with an invalid value.
    pub fn into_price(self) -> Result<Price, BadRow> {
        let usd_per_hour = between("usd_per_hour", self.usd_per_hour, 0.0, 1e6)?;
        if self.date.as_deref().is_some_and(|date| !is_date(date)) {
            return bad("date", "must be a date such as `2026-11-20`".to_owned());
        }
        if let Some(source) = &self.source {
            text("source", source)?;
        }
        Ok(Price { usd_per_hour, date: self.date, source: self.source })
    }
}

fn bad<T>(key: &'static str, why: String) -> Result<T, BadRow> {
    Err(BadRow { key, why })
}

fn text(key: &'static str, value: &str) -> Result<(), BadRow> {
    if value.len() > MAX_TEXT_BYTES || value.chars().any(char::is_control) {
        return bad(key, format!("must be one line of at most {MAX_TEXT_BYTES} bytes"));
    }
    Ok(())
}

fn between(key: &'static str, value: f64, low: f64, high: f64) -> Result<f64, BadRow> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        bad(key, format!("must be a number from {low} to {high}"))
    }
}

fn optional(
    key: &'static str,
    value: Option<f64>,
    low: f64,
    high: f64,
    unit: f64,
) -> Result<Option<f64>, BadRow> {
    value.map(|value| Ok(between(key, value, low, high)? * unit)).transpose()
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |part: &str, digits: usize| {
        (part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| part.parse::<u32>().ok())
            .flatten()
    };
    let [year, month, day] = parts[..] else { return false };
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> DeviceRow {
        serde_json::from_str(
            r#"{"name": "X1", "architecture": "9.0", "multiprocessors": 100, "memory_gb": 80,
                "bandwidth_gb_per_s": 3000, "fp32_tflops": 60,
                "price": {"usd_per_hour": 1.5, "date": "2026-01-31"}}"#,
        )
        .unwrap()
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut DeviceRow), key: &str) {
        let mut row = row();
        change(&mut row);
        assert_eq!(row.into_spec().unwrap_err().key, key);
    }

    #[test]
    fn a_row_converts_to_base_units() {
        let device = row().into_spec().unwrap();
        assert_eq!((device.memory_bytes, device.bandwidth), (80_000_000_000, 3e12));
        assert_eq!(device.peaks.fp32, Some(6e13));
        assert_eq!(device.capability(), Some((9, 0)));
        assert_eq!(device.limits().unwrap().threads, 2048);
        assert_eq!(device.price.unwrap().date.unwrap(), "2026-01-31");
    }

    #[test]
    fn implausible_values_are_rejected_with_their_key() {
        check(|row| row.name = " ".to_owned(), "name");
        check(|row| row.name = "a\nb".to_owned(), "name");
        check(|row| row.vendor = "Acme".to_owned(), "vendor");
        check(|row| row.multiprocessors = 0, "multiprocessors");
        check(|row| row.memory_gb = f64::NAN, "memory_gb");
        check(|row| row.bandwidth_gb_per_s = -1.0, "bandwidth_gb_per_s");
        check(|row| row.fp32_tflops = None, "fp32_tflops");
        check(|row| row.fp16_tflops = Some(f64::INFINITY), "fp16_tflops");
        check(|row| row.tdp_w = Some(0.0), "tdp_w");
        check(|row| row.price.as_mut().unwrap().usd_per_hour = -2.0, "usd_per_hour");
        check(|row| row.price.as_mut().unwrap().date = Some("yesterday".to_owned()), "date");
        check(|row| row.price.as_mut().unwrap().date = Some("2026-13-01".to_owned()), "date");
    }

    #[test]
    fn amd_devices_have_no_compute_capability() {
        let mut row = row();
        row.vendor = "AMD".to_owned();
        assert_eq!(row.into_spec().unwrap().capability(), None);
    }
}
