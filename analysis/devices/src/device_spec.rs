//! Static properties of a device: its components, peak rates and price.

use crate::occupancy::{self, Limits};
use ridgeline_profile::day::Day;
use ridgeline_profile::{MeasuredRoof, Roof};

/// One device. Rates are per second, dense (no sparsity), at the boost clock.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Model with form factor and memory: `H200-SXM5-141GB`.
    pub name: String,
    /// Names that drivers report for it.
    pub aliases: Vec<String>,
    /// GPU or CPU.
    pub kind: DeviceKind,
    /// `NVIDIA` or `AMD`; the vendor of a CPU.
    pub vendor: String,
    /// Compute capability (`9.0`) or AMD's target (`gfx942`); empty if unknown.
    pub architecture: String,
    /// Streaming multiprocessors or compute units; cores of a CPU.
    pub multiprocessors: u32,
    /// The clock that is guaranteed under any load, in hertz.
    pub base_clock_hz: Option<f64>,
    /// The clock of the peak rates, in hertz.
    pub boost_clock_hz: Option<f64>,
    /// Device memory as sold, in bytes (units of 1e9).
    pub memory_bytes: u64,
    /// Size of the last-level cache before device memory, in bytes.
    pub l2_bytes: Option<f64>,
    /// Bandwidth of device memory, in bytes per second.
    pub bandwidth: f64,
    /// Datasheet peak rates in operations per second.
    pub peaks: Rates,
    /// Maximum board power in watts.
    pub tdp_w: Option<f64>,
    /// Price per hour.
    pub price: Option<Price>,
    /// Measured rates; `None` if the device was never measured.
    pub ceilings: Option<Ceilings>,
    /// Source of the numbers.
    pub source: String,
    /// The source that the numbers were checked against, if any.
    pub verified_by: Option<String>,
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A device with its own memory, multiprocessors and kernel launches.
    Gpu,
    /// A CPU, which has none of the three.
    Cpu,
}

/// Operations per second by type; `None` if the device does not support the type or the rate is
/// unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// FP32 outside of tensor cores.
    pub fp32: Option<f64>,
    /// FP32 inputs on tensor cores, computed in TF32.
    pub tf32: Option<f64>,
    /// FP16 with FP32 accumulation.
    pub fp16: Option<f64>,
    /// BF16 with FP32 accumulation.
    pub bf16: Option<f64>,
    /// FP8.
    pub fp8: Option<f64>,
}

/// Price of one device hour.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// US dollars per device and hour.
    pub usd_per_hour: f64,
    /// Day of the price such as `2026-11-20`; `None` if a user's price has no date.
    pub date: Option<String>,
    /// The provider; `None` for a user's own price.
    pub source: Option<String>,
}

/// Measured rates of a device, as medians of the `gpu` crate's measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ceilings {
    /// Bytes read and written per second by a copy within device memory.
    pub bandwidth: Option<f64>,
    /// Operations per second of a large square GEMM, by type.
    pub gemm: Rates,
    /// Host nanoseconds from one launch of an empty kernel to the next.
    pub launch_ns: Option<f64>,
    /// Bytes per second from page-locked host memory to the device.
    pub host_to_device: Option<f64>,
    /// Bytes per second from the device to page-locked host memory.
    pub device_to_host: Option<f64>,
    /// Day of the measurement of this GPU; `None` for a CPU, whose rates come from its recording.
    pub measured_on: Option<Day>,
}

impl Ceilings {
    /// Returns the measured roofline, with datasheet rates for types that were not measured.
    /// Returns `None` if no GPU was measured.
    pub fn roof(&self, datasheet: Option<Roof>) -> Option<MeasuredRoof> {
        let datasheet = datasheet.unwrap_or_default();
        let roof = Roof {
            fp32_flops: self.gemm.fp32.or(datasheet.fp32_flops),
            tf32_flops: self.gemm.tf32.or(datasheet.tf32_flops),
            fp16_flops: self.gemm.fp16.or(self.gemm.bf16).or(datasheet.fp16_flops),
            bandwidth: self.bandwidth.or(datasheet.bandwidth),
        };
        Some(MeasuredRoof { roof, on: self.measured_on? })
    }
}

impl DeviceSpec {
    /// Returns the datasheet roofline.
    pub fn roof(&self) -> Roof {
        Roof {
            fp32_flops: self.peaks.fp32,
            tf32_flops: self.peaks.tf32,
            fp16_flops: self.peaks.fp16,
            bandwidth: Some(self.bandwidth),
        }
    }

    /// Returns the compute capability such as `(9, 0)`, for NVIDIA GPUs only.
    pub fn capability(&self) -> Option<(u32, u32)> {
        if !self.is_nvidia() {
            return None;
        }
        let (major, minor) = self.architecture.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// Returns the limits of a multiprocessor: threads, blocks, registers and shared memory.
    /// Returns `None` for AMD GPUs, CPUs, and capabilities that the occupancy calculator does not
    /// know.
    pub fn limits(&self) -> Option<&'static Limits> {
        occupancy::limits_of(self.capability()?)
    }

    /// Whether the device is an NVIDIA GPU.
    pub fn is_nvidia(&self) -> bool {
        self.kind == DeviceKind::Gpu && self.vendor.eq_ignore_ascii_case("nvidia")
    }

    /// Returns the measured roofline; `None` if this GPU was never measured.
    pub fn measured_roof(&self) -> Option<MeasuredRoof> {
        self.ceilings?.roof(Some(self.roof()))
    }

    /// Returns the source of the rates: `measured on 2026-11-24` or `datasheet`.
    pub fn rates_from(&self) -> String {
        match self.ceilings.and_then(|ceilings| ceilings.measured_on) {
            Some(day) => format!("measured on {day}"),
            None => "datasheet".to_owned(),
        }
    }

    /// Returns the memory bandwidth that a kernel can reach, in bytes per second: measured if
    /// known, else the datasheet's.
    pub fn attainable_bandwidth(&self) -> f64 {
        let measured = self.ceilings.and_then(|ceilings| ceilings.bandwidth);
        measured.filter(|rate| *rate > 0.0).unwrap_or(self.bandwidth)
    }

    /// Returns the ratio of memory bandwidths of this device and `other`: of measured bandwidths if
    /// both are known, else of both datasheets. Comparing a measured rate with a datasheet rate
    /// would make the measured GPU look too slow.
    pub fn bandwidth_over(&self, other: &DeviceSpec) -> f64 {
        let measured = |device: &DeviceSpec| {
            device.ceilings.and_then(|ceilings| ceilings.bandwidth).filter(|rate| *rate > 0.0)
        };
        match (measured(self), measured(other)) {
            (Some(own), Some(other)) => own / other,
            _ => self.bandwidth / other.bandwidth,
        }
    }

    /// Returns the operations per second outside of tensor cores.
    pub fn scalar_rate(&self) -> f64 {
        self.peaks.fp32.filter(|rate| *rate > 0.0).unwrap_or(self.bandwidth * 10.0)
    }

    /// Returns the clock of the peak rates in hertz, or a typical clock if the datasheet has none.
    pub fn clock_hz(&self) -> f64 {
        self.boost_clock_hz.or(self.base_clock_hz).filter(|clock| *clock > 0.0).unwrap_or(1.8e9)
    }
}
