//! The sustained arithmetic rate of a device: for each type, measured where possible, and limited
//! by power.

use super::Context;
use crate::operator::ElementType;
use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec, Rates};

/// The rate at which a device multiplies numbers of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sustained {
    /// Operations per second if every cycle multiplied.
    peak: f64,
    /// Operations per second that the power limit allows. Infinite if `peak` already accounts for
    /// it.
    limit: f64,
    /// Whether this is the rate of tensor cores.
    pub tensor_cores: bool,
    /// Slowdown by a tile's loads: a factor on the sum of the inverses of the tile's sides.
    pub load: f64,
}

/// The sum of the inverse sides of the tile used for a large square matrix multiplication.
const LARGE_TILE: f64 = 1.0 / 256.0 + 1.0 / 128.0;

/// Tensor-core operations per clock and multiprocessor to which `tile_load` refers: the value of
/// the GeForce boards that it was fitted on.
const REFERENCE_OPERATIONS_PER_CLOCK: f64 = 512.0;

impl Sustained {
    /// Returns the rate for an element type.
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
        let matmuls = &context.coefficients.product;
        let load = matmuls.tile_load_scalar;
        let peak = match ceiling(device, |rates| rates.fp32) {
            Some(measured) => measured / (matmuls.scalar.matrix / (1.0 + load * LARGE_TILE)),
            None => {
                let peak = device.scalar_rate() * issue_share(context);
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
        let (device, matmuls) = (context.device, &context.coefficients.product);
        // Before 7.0 there are no tensor cores. FP16 runs on the FP32 units, at another rate.
        let tensor_cores = device.kind == DeviceKind::Cpu
            || device.capability().is_none_or(|capability| capability >= (7, 0));
        let (load, efficiencies) = if tensor_cores {
            (matmuls.tile_load * load_weight(peak, device), &matmuls.tensor)
        } else {
            (matmuls.tile_load_scalar, &matmuls.scalar)
        };
        if let Some(measured) = measured {
            // The ceiling was measured with a large square matrix multiplication and already
            // includes its efficiency.
            let peak = measured * (1.0 + load * LARGE_TILE) / efficiencies.matrix;
            return Sustained { peak, limit: f64::INFINITY, tensor_cores, load };
        }
        // Twice the bits take a multiplier of at least twice the size, and twice the energy.
        let joules = matmuls.tensor_joules * element.bytes() / 2.0;
        Sustained { peak, limit: power_limited_rate(joules, context), tensor_cores, load }
    }

    /// Returns the operations per second of a kernel that keeps this share of the multipliers busy.
    pub(super) fn rate(&self, share: f64) -> f64 {
        soft_minimum(self.peak * share, self.limit)
    }
}

/// Returns the weight of tile loads relative to the boards that `tile_load` was fitted on: operands
/// must arrive as fast as they are multiplied. From 9.0 on, the multiprocessors of a cluster share
/// loads (on 10.x two multiply one 256 x 256 tile together), which saves a third.
fn load_weight(peak: f64, device: &DeviceSpec) -> f64 {
    let per_clock = peak / (f64::from(device.multiprocessors.max(1)) * device.clock_hz());
    let shared = match device.capability() {
        Some((9 | 10, _)) => 2.0 / 3.0,
        _ => 1.0,
    };
    match device.kind {
        DeviceKind::Gpu => shared * per_clock / REFERENCE_OPERATIONS_PER_CLOCK,
        DeviceKind::Cpu => 0.0,
    }
}

/// [`issue_share`] where integers have their own lanes: an H100 reaches 52 of 66.9 TFLOP/s in FP32,
/// an H200 51 (github.com/zzc0721/torch-performance-test-data).
const ISSUE_WITH_INTEGER_LANES: f64 = 0.81;

/// [`issue_share`] on Pascal, for which libraries use Maxwell's kernels: a P4 reaches 4.96 of 5.5
/// TFLOP/s, a P40 10.07 of 11.76 (same source).
const ISSUE_ON_PASCAL: f64 = 0.88;

/// Returns the share of the issue slots left for multiplications. A quarter of a multiprocessor
/// issues one instruction of 32 lanes per cycle. With 32 FP32 lanes (from 8.6 on), all other
/// instructions take slots from multiplications. With 16, every second cycle is free for them. On
/// 8.6, 8.9 and 12.0, half of the lanes also compute address integers.
fn issue_share(context: &Context) -> f64 {
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

/// Returns the operations per second that a board's power budget allows. The peak assumes the boost
/// clock, which a board with little power does not sustain.
fn power_limited_rate(joules: f64, context: &Context) -> f64 {
    let watts = context.device.tdp_w.filter(|watts| *watts > 0.0);
    watts.map_or(f64::INFINITY, |watts| watts / (joules * relative_energy(context)).max(1e-15))
}

/// Power of a board's voltage regulators and fans, in watts.
const BOARD_WATTS: f64 = 20.0;
/// Energy of moving one bit from or to memory, in joules. GDDR: Micron's technical brief on GDDR6X.
/// HBM2: O'Connor et al., MICRO 2017.
const GDDR_JOULES_PER_BIT: f64 = 7.25e-12;
const HBM_JOULES_PER_BIT: f64 = 3.9e-12;

/// Returns the power that a board's limit leaves after its memory, in watts. It is why a T4 (70 W)
/// sustains less than half of its FP32 peak, and a V100 of the same process (250 W) all of it.
fn multiprocessor_watts(device: &DeviceSpec) -> f64 {
    let has_hbm = matches!(device.capability(), Some((6..=10, 0)));
    let joules = if has_hbm { HBM_JOULES_PER_BIT } else { GDDR_JOULES_PER_BIT };
    let remaining_watts =
        |watts: f64| (watts - BOARD_WATTS - device.bandwidth * 8.0 * joules).max(watts / 4.0);
    device.tdp_w.filter(|watts| *watts > 0.0).map_or(f64::INFINITY, remaining_watts)
}

/// Returns the operations per second outside tensor cores that a board's power budget allows.
/// Energy falls with the voltage, and the voltage falls with the clock down to the chip's minimum:
/// the clock follows the cube root of the power above that point, and the power itself below it.
/// The square root lies in between. It gives a T4 and a V100, which share a process, the same
/// energy.
fn scalar_limit(context: &Context) -> f64 {
    let matmuls = &context.coefficients.product;
    let relative_energy = match context.device.capability() {
        Some((8, 0)) => matmuls.scalar_joules_of_8_0,
        // Between the foundries' figure (0.42) and the FP32 rate reported for an L40S (46.9 of 91.6
        // TFLOP/s at 350 W, which requires 0.91).
        Some((8, 9) | (12, _)) => 0.62,
        _ => relative_energy(context),
    };
    let joules = (matmuls.scalar_joules * relative_energy).max(1e-15);
    (context.device.scalar_rate() * multiprocessor_watts(context.device) / joules).sqrt()
}

/// Returns a smooth minimum, since clocks already fall a little before the limit is reached.
fn soft_minimum(rate: f64, limit: f64) -> f64 {
    rate / (1.0 + (rate / limit).powi(8)).sqrt().sqrt().sqrt()
}

/// Returns the energy per operation relative to a 12 nm process. The values of 12 nm and of 8.0 are
/// fitted. The others are assumed: each foundry step saves about a third at the same speed, as
/// foundries announce. 10.x is low enough that power does not limit its tensor cores below 80%.
fn relative_energy(context: &Context) -> f64 {
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
