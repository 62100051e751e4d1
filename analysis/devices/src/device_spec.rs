//! What is known of a device before anything ran on it: its parts, its peak rates, its price.

use crate::occupancy::{self, Limits};
use ridgeline_profile::day::Day;
use ridgeline_profile::{MeasuredRoof, Roof};

/// One device. Rates are per second, dense (no sparsity), at the boost clock.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// The model with its form and memory: `H200-SXM5-141GB`.
    pub name: String,
    /// The names that its driver gives it.
    pub aliases: Vec<String>,
    /// A GPU or a processor.
    pub kind: DeviceKind,
    /// `NVIDIA` or `AMD`; of a processor, its maker.
    pub vendor: String,
    /// Compute capability (`9.0`), AMD's target (`gfx942`); empty where unknown.
    pub architecture: String,
    /// Streaming multiprocessors or compute units; of a processor, cores.
    pub multiprocessors: u32,
    /// The clock that it holds under any load, in hertz.
    pub base_clock_hz: Option<f64>,
    /// The clock of the peak rates, in hertz.
    pub boost_clock_hz: Option<f64>,
    /// Device memory as sold, in bytes (units of 1e9).
    pub memory_bytes: u64,
    /// The last cache before device memory, in bytes.
    pub l2_bytes: Option<f64>,
    /// Of device memory, in bytes per second.
    pub bandwidth: f64,
    /// The datasheet's operations per second.
    pub peaks: Rates,
    /// The power that the board may draw, in watts.
    pub tdp_w: Option<f64>,
    /// What an hour of it costs.
    pub price: Option<Price>,
    /// What it was measured to reach; `None` where it never was.
    pub ceilings: Option<Ceilings>,
    /// Where these numbers come from.
    pub source: String,
    /// What they were compared with, if anything.
    pub verified_by: Option<String>,
}

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// With device memory, multiprocessors and kernel launches.
    Gpu,
    /// A processor, which has none of the three.
    Cpu,
}

/// Operations per second by type; `None` where the device lacks the type or it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// FP32 outside tensor cores.
    pub fp32: Option<f64>,
    /// FP32 numbers on tensor cores, in TF32.
    pub tf32: Option<f64>,
    /// FP16 with FP32 accumulation.
    pub fp16: Option<f64>,
    /// BF16 with FP32 accumulation.
    pub bf16: Option<f64>,
    /// FP8.
    pub fp8: Option<f64>,
}

/// What an hour of a device costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// US dollars for one device for an hour.
    pub usd_per_hour: f64,
    /// When it was so, as `2026-11-20`; `None` where its person did not say.
    pub date: Option<String>,
    /// Who asks it, in words; `None` where it is a person's own.
    pub source: Option<String>,
}

/// What a device was measured to reach, as the `gpu` crate measures it: medians.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ceilings {
    /// Bytes read and written per second by a copy within device memory.
    pub bandwidth: Option<f64>,
    /// Operations per second of a large square matrix product, by type.
    pub gemm: Rates,
    /// Host nanoseconds from one launch of an empty kernel to the next.
    pub launch_ns: Option<f64>,
    /// Bytes per second from page-locked memory to the device.
    pub host_to_device: Option<f64>,
    /// Bytes per second from the device to page-locked memory.
    pub device_to_host: Option<f64>,
    /// When this GPU was measured; `None` of a processor, whose rates are those of its recording.
    pub measured_on: Option<Day>,
}

impl Ceilings {
    /// The roofline as measured, with the datasheet's rate for each type that was not measured. `None`
    /// where no GPU was measured.
    pub fn roof(&self, sold: Option<Roof>) -> Option<MeasuredRoof> {
        let sold = sold.unwrap_or_default();
        let roof = Roof {
            fp32_flops: self.gemm.fp32.or(sold.fp32_flops),
            tf32_flops: self.gemm.tf32.or(sold.tf32_flops),
            fp16_flops: self.gemm.fp16.or(self.gemm.bf16).or(sold.fp16_flops),
            bandwidth: self.bandwidth.or(sold.bandwidth),
        };
        Some(MeasuredRoof { roof, on: self.measured_on? })
    }
}

impl DeviceSpec {
    /// Its roofline by the datasheet.
    pub fn roof(&self) -> Roof {
        Roof {
            fp32_flops: self.peaks.fp32,
            tf32_flops: self.peaks.tf32,
            fp16_flops: self.peaks.fp16,
            bandwidth: Some(self.bandwidth),
        }
    }

    /// Compute capability, of NVIDIA's alone: `(9, 0)`.
    pub fn capability(&self) -> Option<(u32, u32)> {
        if !self.is_nvidia() {
            return None;
        }
        let (major, minor) = self.architecture.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// What each multiprocessor has: threads, blocks, registers and shared memory. `None` of AMD's,
    /// of processors, and of capabilities that are not in the occupancy calculator.
    pub fn limits(&self) -> Option<&'static Limits> {
        occupancy::limits_of(self.capability()?)
    }

    /// Whether it is one of NVIDIA's GPUs.
    pub fn is_nvidia(&self) -> bool {
        self.kind == DeviceKind::Gpu && self.vendor.eq_ignore_ascii_case("nvidia")
    }

    /// Its roofline as measured; `None` where this GPU was never measured.
    pub fn measured_roof(&self) -> Option<MeasuredRoof> {
        self.ceilings?.roof(Some(self.roof()))
    }

    /// Where its rates come from: `measured on 2026-11-24` or `datasheet`.
    pub fn rates_from(&self) -> String {
        match self.ceilings.and_then(|ceilings| ceilings.measured_on) {
            Some(day) => format!("measured on {day}"),
            None => "datasheet".to_owned(),
        }
    }

    /// Bytes of device memory per second that a kernel can have: as measured, else as sold.
    pub fn attainable_bandwidth(&self) -> f64 {
        let measured = self.ceilings.and_then(|ceilings| ceilings.bandwidth);
        measured.filter(|rate| *rate > 0.0).unwrap_or(self.bandwidth)
    }

    /// How many times the memory bandwidth of `other` it has: by what both were measured to reach, else
    /// by both datasheets. A measured rate over a datasheet's would make the measured GPU too slow.
    pub fn bandwidth_over(&self, other: &DeviceSpec) -> f64 {
        let measured = |device: &DeviceSpec| {
            device.ceilings.and_then(|ceilings| ceilings.bandwidth).filter(|rate| *rate > 0.0)
        };
        match (measured(self), measured(other)) {
            (Some(own), Some(other)) => own / other,
            _ => self.bandwidth / other.bandwidth,
        }
    }

    /// Operations per second outside of tensor cores.
    pub fn scalar_rate(&self) -> f64 {
        self.peaks.fp32.filter(|rate| *rate > 0.0).unwrap_or(self.bandwidth * 10.0)
    }

    /// Clocks per second, as the peak rates have them; a usual one where no sheet says it.
    pub fn clock_hz(&self) -> f64 {
        self.boost_clock_hz.or(self.base_clock_hz).filter(|clock| *clock > 0.0).unwrap_or(1.8e9)
    }
}
