//! The measured rates of this machine's GPUs: one small file in the cache for each GPU model and
//! driver. Predictions for that GPU use these rates instead of its datasheet's.
//!
//! A file contains names, versions, a date and rates: no path, no environment variable.
//! Measurements of a simulated GPU are marked, stored separately, and never used for a real one.

mod flow;

use std::fs::{self, File};
use std::hash::Hasher as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) use flow::{DeviceMeasurement, MeasureDevice, Target};
use ridgeline_analysis::base::units;
use ridgeline_analysis::devices::device_spec::{self, DeviceSpec};
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::predict::measured_rates::plausible;
use ridgeline_analysis::profile::day::Day;
use ridgeline_gpu::ceilings::Ceilings;
use ridgeline_gpu::devices::{Devices, Gpu};
use serde::{Deserialize, Serialize};

use crate::store::{Store, StoreError, create_private, write_atomic};

/// The version of the file format.
const VERSION: u32 = 1;
/// The maximum size of a file, in bytes.
const READ_LIMIT: u64 = 64 << 10;
/// The maximum number of files read. A cache shared by several machines has some dozens.
const MAX_FILES: usize = 256;

/// The properties of a GPU that its rates depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The name reported by the driver.
    pub name: String,
    pub capability: Option<(u32, u32)>,
    /// The driver version from NVML, else the newest CUDA version that the driver supports.
    pub driver: String,
    /// Whether the GPU is simulated.
    pub simulated: bool,
}

impl Identity {
    /// The identity of a GPU found on this machine.
    pub(crate) fn of(gpu: &Gpu, devices: &Devices) -> Identity {
        let driver = devices.nvml.clone().unwrap_or_else(|_| match devices.driver {
            ridgeline_gpu::devices::Driver::Ready { cuda: (major, minor) } => {
                format!("for CUDA {major}.{minor}")
            }
            _ => "unknown".to_owned(),
        });
        Identity {
            name: gpu.name.clone(),
            capability: gpu.capability,
            driver,
            simulated: gpu.is_simulated,
        }
    }

    fn file(&self, store: &Store) -> PathBuf {
        let mut hasher = fnv::FnvHasher::default();
        let capability = format!("{:?}", self.capability);
        for part in [&self.name, &capability, &self.driver] {
            hasher.write(part.as_bytes());
            hasher.write_u8(0);
        }
        hasher.write_u8(u8::from(self.simulated));
        folder(store).join(format!("{:016x}.json", hasher.finish()))
    }
}

/// A measurement of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    version: u32,
    pub device: Identity,
    /// The date in UTC, as `2026-11-24`.
    measured_on: String,
    /// All measured rates, unfiltered.
    pub ceilings: Ceilings,
}

impl Measurement {
    /// Creates a measurement dated today.
    pub(crate) fn now(device: Identity, ceilings: Ceilings) -> Measurement {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let today = Day::of_unix_seconds(since.map_or(0, |since| since.as_secs()));
        Measurement { version: VERSION, device, measured_on: today.to_string(), ceilings }
    }

    /// The rates that predictions use, and the reason for each omitted rate.
    pub(crate) fn rates(&self) -> (device_spec::Ceilings, Vec<String>) {
        let measured_on = self.measured_on.parse().ok();
        let rates = device_spec::Ceilings { measured_on, ..self.ceilings.rates() };
        plausible(&rates, DeviceTable::shipped().find(&self.device.name))
    }

    /// The rates that predictions use, for display: `copy 2.9 TB/s (87% of the datasheet) · …`.
    pub(crate) fn summary(&self) -> String {
        let (rates, _) = self.rates();
        let sold = DeviceTable::shipped().find(&self.device.name);
        let of = |name: &str, rate: Option<f64>, sold: Option<f64>, unit: &str| {
            let rate = rate?;
            let share = sold
                .map(|sold| format!(" ({} of the datasheet value)", units::percent(rate / sold)));
            Some(format!("{name} {}{}", units::rate(rate, unit), share.unwrap_or_default()))
        };
        let peak = |by: fn(&DeviceSpec) -> Option<f64>| sold.and_then(by);
        let gemm = &rates.gemm;
        let parts = [
            of("copy", rates.bandwidth, peak(|it| Some(it.bandwidth)), "B/s"),
            of("FP32", gemm.fp32, peak(|it| it.peaks.fp32), "FLOP/s"),
            of("TF32", gemm.tf32, peak(|it| it.peaks.tf32), "FLOP/s"),
            of("FP16", gemm.fp16, peak(|it| it.peaks.fp16), "FLOP/s"),
            of("BF16", gemm.bf16, peak(|it| it.peaks.bf16), "FLOP/s"),
            rates.launch_ns.map(|time| format!("launch {}", units::duration(time))),
            of("host to device", rates.host_to_device, None, "B/s"),
            of("device to host", rates.device_to_host, None, "B/s"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }

    /// The date of the measurement: `2026-11-24`.
    pub(crate) fn day(&self) -> &str {
        &self.measured_on
    }

    /// Stores it in the cache, replacing an older one of the same GPU and driver.
    ///
    /// # Errors
    /// If the cache cannot be written.
    pub(crate) fn keep(&self, store: &Store) -> Result<(), StoreError> {
        create_private(&folder(store))?;
        let file = self.device.file(store);
        let text = serde_json::to_vec_pretty(self);
        let text = text.map_err(|error| StoreError::at(&file, error.into()))?;
        write_atomic(&file, &text)
    }
}

fn folder(store: &Store) -> PathBuf {
    store.cache().join("gpu-rates")
}

/// The stored measurement of a GPU with its driver.
pub(crate) fn of_device(store: &Store, device: &Identity) -> Option<Measurement> {
    read(&device.file(store)).filter(|found| found.device == *device)
}

/// Reads a file. Returns `None` if it is damaged or not ours.
fn read(file: &Path) -> Option<Measurement> {
    let facts = fs::metadata(file).ok()?;
    if !facts.is_file() || facts.len() > READ_LIMIT {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(READ_LIMIT).read_to_end(&mut bytes).ok()?;
    let found: Measurement = serde_json::from_slice(&bytes).ok()?;
    let is_day = found.measured_on.parse::<Day>().is_ok();
    (found.version == VERSION && is_day).then_some(found)
}

/// All measurements of real or of simulated GPUs, oldest first.
fn all(store: &Store, simulated: bool) -> Vec<Measurement> {
    let files = fs::read_dir(folder(store)).into_iter().flatten().flatten().take(MAX_FILES);
    let mut found: Vec<Measurement> = files.filter_map(|entry| read(&entry.path())).collect();
    found.retain(|one| one.device.simulated == simulated);
    found.sort_by(|a, b| a.measured_on.cmp(&b.measured_on));
    found
}

/// The newest measured rates of this machine's GPU of that name, or `None` if it was never
/// measured.
pub(crate) fn of_name(name: &str, simulated: bool) -> Option<device_spec::Ceilings> {
    let store = Store::open().ok()?;
    let newest = all(&store, simulated).into_iter().rfind(|one| one.device.name == name)?;
    Some(newest.rates().0)
}

/// Adds this machine's measured rates to the devices of a table, as real or as simulated GPUs.
pub(crate) fn add_to(table: &mut DeviceTable, simulated: bool) {
    // Without a user folder nothing was stored.
    let Ok(store) = Store::open() else { return };
    for measurement in all(&store, simulated) {
        table.set_ceilings(&measurement.device.name, measurement.rates().0);
    }
}

#[cfg(test)]
mod tests {
    use ridgeline_gpu::ceilings::{Precision, RateStatistics};

    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        (folder, store)
    }

    fn identity() -> Identity {
        Identity {
            name: "NVIDIA H200".to_owned(),
            capability: Some((9, 0)),
            driver: "580.65.06".to_owned(),
            simulated: false,
        }
    }

    fn measurement(device: Identity) -> Measurement {
        let of = |rate| RateStatistics { median: rate, low: rate, high: rate, samples: 15 };
        let ceilings = Ceilings {
            device_name: device.name.clone(),
            copy_bandwidth: of(4.3e12),
            matmul_flops: vec![(Precision::Bf16, of(780e12)), (Precision::Tf32, of(9e15))],
            launch_seconds: Some(of(2.5e-6)),
            host_to_device: of(55e9),
            device_to_host: of(54e9),
            notes: Vec::new(),
        };
        Measurement::now(device, ceilings)
    }

    #[test]
    fn a_measurement_is_keyed_by_gpu_and_driver() {
        let (_folder, store) = store();
        let measurement = measurement(identity());
        measurement.keep(&store).expect("written");
        assert_eq!(of_device(&store, &identity()), Some(measurement.clone()));
        for other in [
            Identity { driver: "590.10".to_owned(), ..identity() },
            Identity { capability: None, ..identity() },
            Identity { simulated: true, ..identity() },
        ] {
            assert_eq!(of_device(&store, &other), None, "{other:?}");
        }
        assert_eq!(all(&store, false), [measurement]);
    }

    #[test]
    fn simulated_rates_are_separate() {
        let (_folder, store) = store();
        measurement(Identity { simulated: true, ..identity() }).keep(&store).expect("written");
        assert_eq!(all(&store, false), []);
        assert_eq!(all(&store, true).len(), 1);
    }

    #[test]
    fn absurd_rates_are_stored_but_not_used() {
        let (rates, refused) = measurement(identity()).rates();
        assert_eq!((rates.bandwidth, rates.gemm.tf32), (Some(4.3e12), None));
        assert!(rates.measured_on.is_some());
        assert!(
            refused[0].starts_with("a TF32 GEMM rate of 9.0 PFLOP/s is ignored"),
            "{refused:?}"
        );
    }

    #[test]
    fn the_file_contains_only_gpu_date_and_rates() {
        let (_folder, store) = store();
        measurement(identity()).keep(&store).expect("written");
        let text = fs::read(identity().file(&store)).expect("the file");
        let document: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let keys: Vec<&String> = document.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["ceilings", "device", "measured_on", "version"]);
        let keys: Vec<&String> = document["device"].as_object().expect("one").keys().collect();
        assert_eq!(keys, ["capability", "driver", "name", "simulated"]);
    }

    #[test]
    fn a_damaged_file_is_ignored() {
        let (_folder, store) = store();
        let kept = measurement(identity());
        kept.keep(&store).expect("written");
        let file = identity().file(&store);
        let text = fs::read_to_string(&file).expect("the file");
        let day = kept.day();
        for damaged in
            ["{".to_owned(), "[]".to_owned(), text.replace(day, "soon"), "x".repeat(100_000)]
        {
            fs::write(&file, damaged).expect("written");
            assert_eq!(of_device(&store, &identity()), None);
            assert_eq!(all(&store, false), []);
        }
    }

    #[test]
    fn a_table_takes_the_newest_rates_of_its_devices() {
        let mut table = DeviceTable::shipped().clone();
        let mut older = measurement(Identity { driver: "570.1".to_owned(), ..identity() });
        older.measured_on = "2025-01-01".to_owned();
        let (_folder, store) = store();
        older.keep(&store).expect("written");
        measurement(identity()).keep(&store).expect("written");
        for one in all(&store, false) {
            table.set_ceilings(&one.device.name, one.rates().0);
        }
        let device = table.find("NVIDIA H200").expect("a GPU of the table");
        assert_eq!(device.rates_from(), format!("measured on {}", measurement(identity()).day()));
        let other = table.find("NVIDIA B200").expect("a GPU of the table");
        assert_eq!(other.rates_from(), "datasheet");
    }
}
