//! The devices that are known: the table that ships (`device_table.json`), and what a person added.

use std::sync::LazyLock;

use serde::Deserialize;

use super::device_row::DeviceRow;
use super::device_spec::{Ceilings, DeviceSpec, Price};
use ridgeline_profile::Roof;

/// Devices by name. The order is the table's, older first; a person's own come last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceTable {
    devices: Vec<DeviceSpec>,
}

/// A name that no device of the table has.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("unknown device `{wanted}`. Similar names: {}", self.nearest.join(", "))]
pub struct UnknownDevice {
    /// As asked for, clipped.
    pub wanted: String,
    /// Names of the table, nearest first, at most [`NEAREST`].
    pub nearest: Vec<String>,
}

/// How many names an [`UnknownDevice`] offers.
pub const NEAREST: usize = 5;
/// A person may add this many devices.
pub const MOST_ADDED: usize = 256;

impl DeviceTable {
    /// The table that ships.
    pub fn shipped() -> &'static DeviceTable {
        &SHIPPED
    }

    /// A table of these devices.
    pub fn of(devices: impl IntoIterator<Item = DeviceSpec>) -> DeviceTable {
        DeviceTable { devices: devices.into_iter().collect() }
    }

    /// Every device.
    pub fn devices(&self) -> &[DeviceSpec] {
        &self.devices
    }

    /// The device by the name that torch, the driver or a trace gives it.
    ///
    /// Names have to agree in every word but the maker's, since one word more is another GPU:
    /// `RTX 3080` and `RTX 3080 Ti`, `RTX 4090` and `RTX 4090 Laptop GPU`, `A100-SXM4-40GB` and a
    /// slice of it.
    pub fn find(&self, device_name: &str) -> Option<&DeviceSpec> {
        let wanted = words_of(device_name);
        if wanted.is_empty() {
            return None;
        }
        // A person's own row stands for the shipped one of the same name.
        self.devices.iter().rev().find(|device| {
            words_of(&device.name) == wanted
                || device.aliases.iter().any(|name| words_of(name) == wanted)
        })
    }

    /// The device that a person means: by its full name, or by a part of it that only one has
    /// (`4090`, `h200`). Spaces, dashes and capitals do not count.
    ///
    /// # Errors
    /// Where none or several have it, with the nearest names.
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
            let holding: Vec<&DeviceSpec> =
                self.devices.iter().filter(|device| has_part(&device.name, &letters)).collect();
            if let [device] = holding[..] {
                return Ok(device);
            }
        }
        Err(UnknownDevice {
            wanted: wanted.chars().take(60).collect(),
            nearest: self.nearest(&letters),
        })
    }

    /// The devices that a person means: the one that [`Self::choose`] gives, or all variants of a model, such
    /// as the three boards of `H100`.
    ///
    /// # Errors
    /// Where no device has the name, with the nearest names.
    pub fn choose_variants(&self, wanted: &str) -> Result<Vec<&DeviceSpec>, UnknownDevice> {
        self.choose(wanted).map(|device| vec![device]).or_else(|unknown| {
            let model = words_of(wanted).concat();
            let is_variant = |device: &&DeviceSpec| words_of(&device.name).first() == Some(&model);
            let variants: Vec<&DeviceSpec> = self.devices.iter().filter(is_variant).collect();
            if variants.is_empty() { Err(unknown) } else { Ok(variants) }
        })
    }

    /// Adds a device. One of the same name is replaced; what is beyond [`MOST_ADDED`] is refused,
    /// and `false` says so.
    pub fn add(&mut self, device: DeviceSpec) -> bool {
        let words = words_of(&device.name);
        self.devices.retain(|known| words_of(&known.name) != words);
        let room = self.devices.len() < SHIPPED.devices.len() + MOST_ADDED;
        if room {
            self.devices.push(device);
        }
        room
    }

    /// Sets what a device was measured to reach, by the name that its driver gives it. A name that is not in
    /// the table changes nothing.
    pub fn set_ceilings(&mut self, device_name: &str, ceilings: Ceilings) {
        let Some(found) = self.find(device_name).map(|device| device.name.clone()) else { return };
        for device in self.devices.iter_mut().filter(|device| device.name == found) {
            device.ceilings = Some(ceilings);
        }
    }

    /// Sets what an hour of a device costs.
    ///
    /// # Errors
    /// Where the name is not known.
    pub fn set_price(&mut self, name: &str, price: Price) -> Result<(), UnknownDevice> {
        let chosen = self.choose(name)?.name.clone();
        for device in self.devices.iter_mut().filter(|device| device.name == chosen) {
            device.price = Some(price.clone());
        }
        Ok(())
    }

    /// Names whose letters are like those of the wanted one: those that hold them first, and those
    /// that begin alike before those that only look alike (by Jaro and Winkler's similarity).
    fn nearest(&self, letters: &str) -> Vec<String> {
        let mut scored: Vec<(f64, &str)> = self
            .devices
            .iter()
            .map(|device| {
                let name = words_of(&device.name).concat();
                let held = if !letters.is_empty() && name.contains(letters) { 1.0 } else { 0.0 };
                let alike = name.bytes().zip(letters.bytes()).take_while(|(a, b)| a == b).count();
                let begun = alike as f64 / letters.len().max(1) as f64;
                (held + begun + strsim::jaro_winkler(&name, letters), device.name.as_str())
            })
            .collect();
        scored.sort_by(|left, right| right.0.total_cmp(&left.0));
        scored.into_iter().take(NEAREST).map(|(_, name)| name.to_owned()).collect()
    }
}

/// The roof of a device by the name that torch, the driver or a trace gives it; `None` where it is
/// not in the table that ships.
pub fn roof(device_name: &str) -> Option<Roof> {
    SHIPPED.find(device_name).map(DeviceSpec::roof)
}

/// A name is looked up at this length at most; no real one comes near.
const LONGEST_NAME: usize = 200;

/// Drivers before 2021 left the maker out, and wrote `Tesla` where they now write `NVIDIA`.
fn words_of(name: &str) -> Vec<String> {
    if name.len() > LONGEST_NAME {
        return Vec::new();
    }
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .filter(|word| !matches!(word.as_str(), "" | "nvidia" | "tesla" | "amd" | "geforce"))
        .collect()
}

/// Whether a name has letters in it that neither begin nor end within a number: `3080` is in
/// `RTX3080-10GB`, `80` is not.
fn has_part(name: &str, letters: &str) -> bool {
    let name = words_of(name).concat();
    let digit_at = |index: usize| name.as_bytes().get(index).is_some_and(u8::is_ascii_digit);
    name.match_indices(letters).any(|(start, part)| {
        let end = start + part.len();
        let cut_before = start > 0 && digit_at(start - 1) && digit_at(start);
        let cut_after = digit_at(end - 1) && digit_at(end);
        !cut_before && !cut_after
    })
}

#[derive(Deserialize)]
struct Rows {
    gpus: Vec<DeviceRow>,
}

static SHIPPED: LazyLock<DeviceTable> = LazyLock::new(|| {
    // A table that cannot be read is the fault of a change to it, which the tests show.
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
    fn names_as_torch_and_traces_give_them() {
        check("NVIDIA H200", Some("H200-SXM5-141GB"));
        check("Tesla V100-SXM2-16GB", Some("V100-SXM2-16GB"));
        check("Tesla V100-DGXS-32GB", Some("V100-SXM2-32GB"));
        check("NVIDIA A100-PG509-200", Some("A100-SXM4-40GB"));
        check("NVIDIA H100 80GB HBM3", Some("H100-SXM5-80GB"));
        check("NVIDIA B200", Some("B200-SXM6-180GB"));
        check("AMD Instinct MI300X", Some("MI300X"));
    }

    #[test]
    fn names_of_older_drivers() {
        check("GeForce RTX 2080 Ti", Some("RTX2080Ti"));
        check("A100-SXM4-40GB", Some("A100-SXM4-40GB"));
    }

    #[test]
    fn another_gpu_with_almost_the_same_name_is_unknown() {
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
    fn every_row_of_the_file_is_read_and_found_by_each_of_its_names_alone() {
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
    fn a_part_of_a_name_will_do_where_it_is_one_device_s_alone() {
        let chosen = |wanted: &str| SHIPPED.choose(wanted).map(|device| device.name.as_str());
        assert_eq!(chosen("4090"), Ok("RTX4090"));
        assert_eq!(chosen("rtx 4090"), Ok("RTX4090"));
        assert_eq!(chosen("h200"), Ok("H200-SXM5-141GB"));
        assert_eq!(chosen("A10"), Ok("A10"));
        assert_eq!(chosen("GeForce RTX 3080"), Ok("RTX3080-10GB"));
        let several = chosen("a100").unwrap_err();
        assert!(several.nearest.iter().filter(|name| name.starts_with("A100")).count() >= 4);
        assert!(chosen("80").is_err());
        assert!(chosen("").is_err());
        assert!(chosen("RTX 3080 Ti").unwrap_err().nearest.contains(&"RTX3080-10GB".to_owned()));
        assert_eq!(chosen(&"x".repeat(10_000)).unwrap_err().wanted.len(), 60);
    }

    #[test]
    fn the_name_of_a_model_means_all_its_variants() {
        let chosen = |wanted: &str| SHIPPED.choose_variants(wanted).map(|all| all.len());
        assert_eq!(chosen("H200"), Ok(1));
        assert_eq!(chosen("h100"), Ok(3));
        assert_eq!(chosen("NVIDIA V100"), Ok(4));
        for wanted in ["80", "", "H", "RTX"] {
            assert!(chosen(wanted).is_err(), "{wanted}");
        }
    }

    #[test]
    fn a_person_s_row_and_price_stand_for_the_shipped_ones() {
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
