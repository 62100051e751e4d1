//! The known devices: the shipped table (`device_table.json`) and devices that the user added.

use std::sync::LazyLock;

use serde::Deserialize;

use super::device_row::DeviceRow;
use super::device_spec::{Ceilings, DeviceSpec, Price};
use ridgeline_profile::Roof;

/// Devices by name, in the order of the shipped table (older first), then the user's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceTable {
    devices: Vec<DeviceSpec>,
}

/// The error for a name that matches no device of the table.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("unknown device `{wanted}`. Similar names: {}", self.nearest.join(", "))]
pub struct UnknownDevice {
    /// The requested name, truncated.
    pub wanted: String,
    /// The most similar names of the table, best match first, at most [`MAX_SUGGESTIONS`].
    pub nearest: Vec<String>,
}

/// The maximum number of names in an [`UnknownDevice`].
pub const MAX_SUGGESTIONS: usize = 5;
/// The maximum number of devices a user can add.
pub const MAX_ADDED: usize = 256;

impl DeviceTable {
    /// Returns the shipped table.
    pub fn shipped() -> &'static DeviceTable {
        &SHIPPED
    }

    /// Creates a table of these devices.
    pub fn of(devices: impl IntoIterator<Item = DeviceSpec>) -> DeviceTable {
        DeviceTable { devices: devices.into_iter().collect() }
    }

    pub fn devices(&self) -> &[DeviceSpec] {
        &self.devices
    }

    /// Finds a device by the name that PyTorch, the driver or a trace reports.
    ///
    /// All words of the names except the vendor's must match, because one additional word means
    /// another GPU: `RTX 3080` and `RTX 3080 Ti`, `RTX 4090` and `RTX 4090 Laptop GPU`,
    /// `A100-SXM4-40GB` and a MIG slice of it.
    pub fn find(&self, device_name: &str) -> Option<&DeviceSpec> {
        let wanted = words_of(device_name);
        if wanted.is_empty() {
            return None;
        }
        // A user's row overrides the shipped row of the same name.
        self.devices.iter().rev().find(|device| {
            words_of(&device.name) == wanted
                || device.aliases.iter().any(|name| words_of(name) == wanted)
        })
    }

    /// Finds the device for a name that the user typed: a full name, or a part of a name that only
    /// one device has (`4090`, `h200`). Ignores spaces, dashes and case.
    ///
    /// # Errors
    /// If no device or several match, with the most similar names.
    pub fn choose(&self, wanted: &str) -> Result<&DeviceSpec, UnknownDevice> {
        if let Some(device) = self.find(wanted) {
            return Ok(device);
        }
        let letters = words_of(wanted).concat();
        if !letters.is_empty() {
            let exact = |device: &&DeviceSpec| words_of(&device.name).concat() == letters;
            if let Some(device) = self.devices.iter().rev().find(exact) {
                return Ok(device);
            }
            let matching: Vec<&DeviceSpec> =
                self.devices.iter().filter(|device| has_part(&device.name, &letters)).collect();
            if let [device] = matching[..] {
                return Ok(device);
            }
        }
        Err(UnknownDevice {
            wanted: wanted.chars().take(60).collect(),
            nearest: self.nearest(&letters),
        })
    }

    /// Finds the devices for a name that the user typed: the one that [`Self::choose`] returns, or
    /// all variants of a model that have the other words, such as the boards of `H100` and the two
    /// of `A100 80GB`.
    ///
    /// # Errors
    /// If no device matches, with the most similar names.
    pub fn choose_variants(&self, wanted: &str) -> Result<Vec<&DeviceSpec>, UnknownDevice> {
        self.choose(wanted).map(|device| vec![device]).or_else(|unknown| {
            let words = words_of(wanted);
            let variants = |words: &[String]| -> Vec<&DeviceSpec> {
                self.devices.iter().filter(|device| has_words(&device.name, words)).collect()
            };
            let variants = match variants(&[words.concat()]) {
                found if found.is_empty() => variants(&words),
                found => found,
            };
            if variants.is_empty() { Err(unknown) } else { Ok(variants) }
        })
    }

    /// Adds a device and replaces one of the same name. Returns `false` if the user has already
    /// added [`MAX_ADDED`] devices.
    pub fn add(&mut self, device: DeviceSpec) -> bool {
        let words = words_of(&device.name);
        self.devices.retain(|known| words_of(&known.name) != words);
        let has_room = self.devices.len() < SHIPPED.devices.len() + MAX_ADDED;
        if has_room {
            self.devices.push(device);
        }
        has_room
    }

    /// Sets the measured rates of a device, by the name that its driver reports. Does nothing if
    /// the name is not in the table.
    pub fn set_ceilings(&mut self, device_name: &str, ceilings: Ceilings) {
        let Some(found) = self.find(device_name).map(|device| device.name.clone()) else { return };
        for device in self.devices.iter_mut().filter(|device| device.name == found) {
            device.ceilings = Some(ceilings);
        }
    }

    /// Sets the price of a device.
    ///
    /// # Errors
    /// If the name is unknown.
    pub fn set_price(&mut self, name: &str, price: Price) -> Result<(), UnknownDevice> {
        let chosen = self.choose(name)?.name.clone();
        for device in self.devices.iter_mut().filter(|device| device.name == chosen) {
            device.price = Some(price.clone());
        }
        Ok(())
    }

    /// Returns the most similar names: first names that contain the requested one, then names with
    /// a common prefix, then names with a high Jaro-Winkler similarity.
    fn nearest(&self, letters: &str) -> Vec<String> {
        let mut scored: Vec<(f64, &str)> = self
            .devices
            .iter()
            .map(|device| {
                let name = words_of(&device.name).concat();
                let contains =
                    if !letters.is_empty() && name.contains(letters) { 1.0 } else { 0.0 };
                let equal_bytes =
                    name.bytes().zip(letters.bytes()).take_while(|(a, b)| a == b).count();
                let common_prefix = equal_bytes as f64 / letters.len().max(1) as f64;
                (
                    contains + common_prefix + strsim::jaro_winkler(&name, letters),
                    device.name.as_str(),
                )
            })
            .collect();
        scored.sort_by(|left, right| right.0.total_cmp(&left.0));
        scored.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
    }
}

/// Returns the datasheet roofline of a device by the name that PyTorch, the driver or a trace
/// reports. Returns `None` if it is not in the shipped table.
pub fn roof(device_name: &str) -> Option<Roof> {
    SHIPPED.find(device_name).map(DeviceSpec::roof)
}

/// The maximum length of a name that is looked up; no real name comes close.
const MAX_NAME_BYTES: usize = 200;

/// Splits a name into lower-case words without the vendor. Drivers before 2021 omitted the vendor,
/// and reported `Tesla` where current drivers report `NVIDIA`.
fn words_of(name: &str) -> Vec<String> {
    if name.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .filter(|word| !matches!(word.as_str(), "" | "nvidia" | "tesla" | "amd" | "geforce"))
        .collect()
}

/// Whether a name contains letters whose match does not start or end within a number: `3080`
/// matches `RTX3080-10GB`, `80` does not match `RTX3080`.
fn has_part(name: &str, letters: &str) -> bool {
    let words = words_of(name);
    let starts: Vec<usize> = words
        .iter()
        .scan(0, |at, word| {
            let start = *at;
            *at += word.len();
            Some(start)
        })
        .collect();
    let name = words.concat();
    let digit_at = |index: usize| name.as_bytes().get(index).is_some_and(u8::is_ascii_digit);
    let cuts_number =
        |at: usize| at > 0 && !starts.contains(&at) && digit_at(at - 1) && digit_at(at);
    name.match_indices(letters)
        .any(|(start, part)| !cuts_number(start) && !cuts_number(start + part.len()))
}

/// Whether a name has these words or their parts in this order, the first one as its model: `a100
/// 80gb` matches `A100-SXM4-80GB`.
fn has_words(name: &str, wanted: &[String]) -> bool {
    let words = words_of(name);
    let Some((model, rest)) = wanted.split_first() else { return false };
    let mut words = words.iter();
    words.next() == Some(model) && rest.iter().all(|part| words.any(|word| has_part(word, part)))
}

#[derive(Deserialize)]
struct Rows {
    gpus: Vec<DeviceRow>,
}

static SHIPPED: LazyLock<DeviceTable> = LazyLock::new(|| {
    // The tests check that every row of the table is valid.
    let rows = serde_json::from_str::<Rows>(include_str!("device_table.json"));
    let rows = rows.map(|rows| rows.gpus).unwrap_or_default();
    DeviceTable { devices: rows.into_iter().filter_map(|row| row.into_spec().ok()).collect() }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(device_name: &str, expected: Option<&str>) {
        assert_eq!(SHIPPED.find(device_name).map(|device| device.name.as_str()), expected);
    }

    #[test]
    fn names_from_torch_and_traces_are_found() {
        check("NVIDIA H200", Some("H200-SXM5-141GB"));
        check("Tesla V100-SXM2-16GB", Some("V100-SXM2-16GB"));
        check("Tesla V100-DGXS-32GB", Some("V100-SXM2-32GB"));
        check("NVIDIA A100-PG509-200", Some("A100-SXM4-40GB"));
        check("NVIDIA H100 80GB HBM3", Some("H100-SXM5-80GB"));
        check("NVIDIA B200", Some("B200-SXM6-180GB"));
        check("AMD Instinct MI300X", Some("MI300X"));
    }

    #[test]
    fn names_from_older_drivers_are_found() {
        check("GeForce RTX 2080 Ti", Some("RTX2080Ti"));
        check("A100-SXM4-40GB", Some("A100-SXM4-40GB"));
    }

    #[test]
    fn similar_names_of_other_gpus_are_not_found() {
        check("NVIDIA GeForce RTX 3080 Ti", None);
        check("NVIDIA GeForce RTX 4090 Laptop GPU", None);
        check("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None);
        check("NVIDIA A100", None);
        check("NVIDIA", None);
        check("", None);
        check("AMD EPYC 7B13", None);
        check(&"H200".repeat(1000), None);
    }

    #[test]
    fn every_row_is_valid_and_found_by_its_names() {
        assert_eq!(SHIPPED.devices.len(), 48);
        for device in &SHIPPED.devices {
            for name in device.aliases.iter().chain([&device.name]) {
                check(name, Some(&device.name));
            }
        }
    }

    #[test]
    fn rates_are_plausible_and_have_a_source() {
        for device in &SHIPPED.devices {
            let name = &device.name;
            assert!(!device.source.is_empty(), "{name}");
            assert!((1e11..1e13).contains(&device.bandwidth), "{name}");
            assert!((1e12..1e15).contains(&device.peaks.fp32.unwrap()), "{name}");
            assert!(device.peaks.tf32 <= device.peaks.fp16, "{name}");
            assert!((8e9..3e11).contains(&(device.memory_bytes as f64)), "{name}");
            assert!((50.0..2000.0).contains(&device.tdp_w.unwrap()), "{name}");
            assert!(!device.is_nvidia() || device.limits().is_some(), "{name}");
            if let Some(price) = &device.price {
                assert!((0.05..50.0).contains(&price.usd_per_hour), "{name}");
                assert_eq!(price.date.as_ref().unwrap().len(), "2026-11-20".len(), "{name}");
                assert!(price.source.is_some(), "{name}");
            }
        }
    }

    #[test]
    fn the_roof_is_in_operations_and_bytes_per_second() {
        let roof = roof("NVIDIA H200").unwrap();
        assert_eq!(roof.bandwidth, Some(4.8e12));
        assert_eq!(roof.fp32_flops.map(f64::round), Some(66.9e12));
    }

    #[test]
    fn an_unambiguous_part_of_a_name_is_enough() {
        let chosen = |wanted: &str| SHIPPED.choose(wanted).map(|device| device.name.as_str());
        assert_eq!(chosen("4090"), Ok("RTX4090"));
        assert_eq!(chosen("rtx 4090"), Ok("RTX4090"));
        assert_eq!(chosen("h200"), Ok("H200-SXM5-141GB"));
        assert_eq!(chosen("A10"), Ok("A10"));
        assert_eq!(chosen("GeForce RTX 3080"), Ok("RTX3080-10GB"));
        assert_eq!(chosen("3080"), Ok("RTX3080-10GB"));
        assert_eq!(chosen("H100-SXM5"), Ok("H100-SXM5-80GB"));
        let several = chosen("a100").unwrap_err();
        assert!(several.nearest.iter().filter(|name| name.starts_with("A100")).count() >= 4);
        assert!(chosen("80").is_err());
        assert!(chosen("").is_err());
        assert!(chosen("RTX 3080 Ti").unwrap_err().nearest.contains(&"RTX3080-10GB".to_owned()));
        assert_eq!(chosen(&"x".repeat(10_000)).unwrap_err().wanted.len(), 60);
    }

    #[test]
    fn a_model_name_selects_all_variants() {
        let chosen = |wanted: &str| SHIPPED.choose_variants(wanted).map(|all| all.len());
        assert_eq!(chosen("H200"), Ok(1));
        assert_eq!(chosen("h100"), Ok(3));
        assert_eq!(chosen("NVIDIA V100"), Ok(4));
        // Words that several variants have, in their order.
        assert_eq!(chosen("A100-SXM4"), Ok(2));
        assert_eq!(chosen("a100 80gb"), Ok(2));
        assert_eq!(chosen("V100-SXM"), Ok(2));
        assert!(chosen("A100 96GB").is_err());
        for wanted in ["80", "", "H", "RTX"] {
            assert!(chosen(wanted).is_err(), "{wanted}");
        }
    }

    #[test]
    fn user_rows_and_prices_override_the_shipped_ones() {
        let mut table = SHIPPED.clone();
        let price = Price { usd_per_hour: 0.1, date: None, source: None };
        table.set_price("4090", price.clone()).unwrap();
        assert_eq!(table.find("RTX4090").unwrap().price, Some(price.clone()));
        assert!(table.set_price("RTX 9999", price).is_err());
        let mut own = table.find("T4").unwrap().clone();
        own.multiprocessors = 1;
        assert!(table.add(own));
        assert_eq!(table.find("Tesla T4").unwrap().multiprocessors, 1);
        assert_eq!(table.devices().len(), SHIPPED.devices.len());
    }
}
