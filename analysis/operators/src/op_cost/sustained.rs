//! The rate that a device holds under load: of the type, measured where it was, and no more than
//! its power allows.

use super::Context;
use crate::operator::ElementType;
use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec, Rates};

/// At what rate a device multiplies numbers of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sustained {
    /// Operations per second, were all of it multiplying.
    peak: f64,
    /// Operations per second that its power allows; infinite where that is in the peak already.
    limit: f64,
    /// Whether they are those of tensor cores.
    pub tensor_cores: bool,
    /// How much a tile's loads slow it down: multiplied by the sum of its sides' inverses.
    pub load: f64,
}

/// The tile by which a large square product is multiplied.
const LARGE_TILE: f64 = 1.0 / 256.0 + 1.0 / 128.0;

/// Operations of tensor cores in a clock of a multiprocessor for which `tile_load` stands: those of
/// the GeForce boards that it was fitted on.
const PER_CLOCK: f64 = 512.0;

impl Sustained {
    /// Of numbers of a type.
    pub(super) fn of(element: ElementType, tf32: bool, context: &Context) -> Sustained {
        let device = context.device;
        let by_type: Option<fn(&Rates) -> Option<f64>> = match element {
            ElementType::Float16 => Some(|rates| rates.fp16),
            ElementType::BFloat16 => Some(|rates| rates.bf16),
            ElementType::Float8 => Some(|rates| rates.fp8),
            ElementType::Float32 if tf32 => Some(|rates| rates.tf32),
            _ => None,
        };
        if let Some(by_type) = by_type
            && let Some(peak) = by_type(&device.peaks).filter(|rate| *rate > 0.0)
        {
            return Sustained::typed(peak, ceiling(device, by_type), element, context);
        }
        let products = &context.coefficients.product;
        let load = products.tile_load_scalar;
        let peak = match ceiling(device, |rates| rates.fp32) {
            Some(measured) => measured / (products.scalar.matrix / (1.0 + load * LARGE_TILE)),
            None => {
                let peak = device.scalar_rate() * issued(context);
                soft_minimum(peak, scalar_limit(context))
            }
        };
        Sustained { peak, limit: f64::INFINITY, tensor_cores: false, load }
    }

    fn typed(
        peak: f64,
        measured: Option<f64>,
        element: ElementType,
        context: &Context,
    ) -> Sustained {
        let (device, products) = (context.device, &context.coefficients.product);
        // Before 7.0 there are no tensor cores: FP16 runs where FP32 does, at another rate.
        let tensor_cores = device.kind == DeviceKind::Cpu
            || device.capability().is_none_or(|capability| capability >= (7, 0));
        let (load, of) = if tensor_cores {
            (products.tile_load * loads(peak, device), &products.tensor)
        } else {
            (products.tile_load_scalar, &products.scalar)
        };
        if let Some(measured) = measured {
            // A large square product was measured; the efficiency that one has is in it already.
            let peak = measured * (1.0 + load * LARGE_TILE) / of.matrix;
            return Sustained { peak, limit: f64::INFINITY, tensor_cores, load };
        }
        // A number of twice the bits takes a multiplier of twice the size or more: twice the energy.
        let joules = products.tensor_joules * element.bytes() / 2.0;
        Sustained { peak, limit: allowed(joules, context), tensor_cores, load }
    }

    /// Operations per second of a kernel that keeps this share of the multipliers busy.
    pub(super) fn rate(&self, share: f64) -> f64 {
        soft_minimum(self.peak * share, self.limit)
    }
}

/// By how much the loads of a tile weigh more than on the boards that `tile_load` was fitted on: as
/// fast as numbers are multiplied they have to come. From 9.0 on the multiprocessors of a cluster
/// load for one another (on 10.x two multiply one tile of 256 x 256 together), which saves a third.
fn loads(peak: f64, device: &DeviceSpec) -> f64 {
    let per_clock = peak / (f64::from(device.multiprocessors.max(1)) * device.clock_hz());
    let shared = match device.capability() {
        Some((9 | 10, _)) => 2.0 / 3.0,
        _ => 1.0,
    };
    match device.kind {
        DeviceKind::Gpu => shared * per_clock / PER_CLOCK,
        DeviceKind::Cpu => 0.0,
    }
}

/// The same share where integers have lanes of their own: an H100 reaches 52 of 66.9 TFLOP/s in FP32,
/// an H200 51 (github.com/zzc0721/torch-performance-test-data).
const ISSUE_WITH_INTEGER_LANES: f64 = 0.81;

/// The share on Pascal, for which libraries have Maxwell's kernels: a P4 reaches 4.96 of 5.5 TFLOP/s, a
/// P40 10.07 of 11.76 (the same source).
const ISSUE_ON_PASCAL: f64 = 0.88;

/// A quarter of a multiprocessor issues one instruction of 32 lanes a cycle. Where it has 32 lanes
/// for FP32 (from 8.6 on), whatever a kernel does beside multiplying takes a multiplication's
/// place; where it has 16, every other cycle is free for that. On 8.6, 8.9 and 12.0 half of the lanes
/// also compute the integers of addresses.
fn issued(context: &Context) -> f64 {
    match context.device.capability() {
        Some((6, _)) => ISSUE_ON_PASCAL,
        Some((9..=11, _)) => ISSUE_WITH_INTEGER_LANES,
        Some(capability) if capability >= (8, 6) => context.coefficients.product.issue,
        _ => 1.0,
    }
}

fn ceiling(device: &DeviceSpec, by_type: fn(&Rates) -> Option<f64>) -> Option<f64> {
    by_type(&device.ceilings?.gemm).filter(|rate| *rate > 0.0)
}

/// Operations per second that a board's power is enough for: the peak is that of the boost clock,
/// which a board with little power does not hold.
fn allowed(joules: f64, context: &Context) -> f64 {
    let watts = context.device.tdp_w.filter(|watts| *watts > 0.0);
    watts.map_or(f64::INFINITY, |watts| watts / (joules * process(context)).max(1e-15))
}

/// Power of a board's regulators and fans, in watts.
const BOARD_WATTS: f64 = 20.0;
/// Joules of moving a bit from and to memory: GDDR by Micron's technical brief on GDDR6X, HBM2 by
/// O'Connor et al., MICRO 2017.
const GDDR_JOULES_PER_BIT: f64 = 7.25e-12;
const HBM_JOULES_PER_BIT: f64 = 3.9e-12;

/// Watts that a board's limit leaves beside its memory. This is why a T4 (70 W) holds less than half of
/// its FP32 peak, and a V100 of the same process (250 W) all of it.
fn multiprocessor_watts(device: &DeviceSpec) -> f64 {
    let has_hbm = matches!(device.capability(), Some((6..=10, 0)));
    let joules = if has_hbm { HBM_JOULES_PER_BIT } else { GDDR_JOULES_PER_BIT };
    let left =
        |watts: f64| (watts - BOARD_WATTS - device.bandwidth * 8.0 * joules).max(watts / 4.0);
    device.tdp_w.filter(|watts| *watts > 0.0).map_or(f64::INFINITY, left)
}

/// Operations per second outside of tensor cores that a board's power is enough for. Energy falls with
/// the voltage, and the voltage with the clock down to the lowest that a chip runs at: the clock goes with
/// the cube root of the power above that point, and with the power itself below it. The square root
/// lies between, and gives a T4 and a V100, which are made in the same process, the same energy.
fn scalar_limit(context: &Context) -> f64 {
    let products = &context.coefficients.product;
    let process = match context.device.capability() {
        Some((8, 0)) => products.scalar_joules_of_8_0,
        // Between what foundries announce (0.42) and what an L40S is reported to reach in FP32 (46.9 of
        // 91.6 TFLOP/s at 350 W, which takes 0.91).
        Some((8, 9) | (12, _)) => 0.62,
        _ => process(context),
    };
    let joules = (products.scalar_joules * process).max(1e-15);
    (context.device.scalar_rate() * multiprocessor_watts(context.device) / joules).sqrt()
}

/// Soft, as clocks fall a little before the limit is reached.
fn soft_minimum(rate: f64, limit: f64) -> f64 {
    rate / (1.0 + (rate / limit).powi(8)).sqrt().sqrt().sqrt()
}

/// Energy of an operation by the process that the chip is made in, 12 nm being 1. That one and 8.0's
/// are fitted. The others are assumed: each step of a foundry is taken to save a third or so at the
/// same speed, as foundries announce it. 10.x is taken low enough that power does not bound its
/// tensor cores below 80%.
fn process(context: &Context) -> f64 {
    match context.device.capability() {
        Some((6, _)) => 1.1,
        Some((7, _)) => 1.0,
        Some((8, 0)) => context.coefficients.product.joules_of_8_0,
        Some((8, 6 | 7)) => 0.7,
        Some((10, _)) => 0.25,
        Some((8 | 9 | 12, _)) => 0.42,
        Some((0..6, _)) => 2.0,
        _ => 0.42,
    }
}
