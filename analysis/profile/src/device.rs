//! [`Device`]: the device that ran the iteration, and its roofline.

use std::borrow::Cow;

use super::day::Day;

/// The device that ran the iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// The vendor's name, such as `NVIDIA H200`, or the CPU's name; `unknown` if not recorded.
    pub name: String,
    /// `cpu`, `cuda` or `rocm`.
    pub kind: String,
    /// Compute capability such as `(9, 0)`; on ROCm the architecture's number.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors (or compute units).
    pub multiprocessors: Option<u32>,
    /// Datasheet rates, if the device is known.
    pub roof: Option<Roof>,
    /// Rates measured on this GPU, if they were measured.
    pub measured_roof: Option<MeasuredRoof>,
    /// Whether the device is simulated (`tests/gpu/simulated`).
    pub is_simulated: bool,
}

impl Device {
    /// Returns the rates that a kernel can reach: measured rates if known, else the datasheet's.
    pub fn attainable_roof(&self) -> Option<Roof> {
        self.measured_roof.map(|measured| measured.roof).or(self.roof)
    }

    /// Returns the source of [`Self::attainable_roof`]: `measured on 2026-11-24` or `datasheet`.
    /// Returns `None` if the device is unknown.
    pub fn rates_from(&self) -> Option<String> {
        let datasheet = self.roof.map(|_| "datasheet".to_owned());
        self.measured_roof.map(|measured| format!("measured on {}", measured.on)).or(datasheet)
    }

    /// Returns the name for display and for comparing runs: `NVIDIA H100 80GB HBM3 (simulated)`.
    /// Use [`Self::name`] to look the device up.
    pub fn display_name(&self) -> Cow<'_, str> {
        if self.is_simulated {
            Cow::Owned(format!("{} (simulated)", self.name))
        } else {
            Cow::Borrowed(&self.name)
        }
    }
}

/// The roofline of a device: its peak rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Roof {
    /// FP32 operations per second outside tensor cores.
    pub fp32_flops: Option<f64>,
    /// TF32 operations per second on tensor cores, dense.
    pub tf32_flops: Option<f64>,
    /// FP16 and BF16 operations per second on tensor cores, dense.
    pub fp16_flops: Option<f64>,
    /// Bytes per second of device memory.
    pub bandwidth: Option<f64>,
}

/// Measured rates of a GPU and the day of the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRoof {
    /// Measured rates, and datasheet rates for types that were not measured.
    pub roof: Roof,
    /// The day of the measurement.
    pub on: Day,
}
