//! What a device can sustain, for kernels that are bound by one thing each.

use super::efficiencies::Efficiencies;
use ridgeline_devices::device_spec::DeviceSpec;

/// Rates per second that hold for a whole step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// Floating-point operations on tensor cores.
    pub(super) products: f64,
    /// Floating-point operations outside of them.
    pub(super) arithmetic: f64,
    /// Bytes of device memory.
    pub(super) bandwidth: f64,
    /// Bytes of the last cache before it.
    pub(super) cache_bytes: f64,
    /// Clocks of all multiprocessors together.
    pub(super) clocks: f64,
}

/// Power of the board's regulators and fans, in watts.
const BOARD_POWER_W: f64 = 20.0;
/// Energy of moving a bit from and to memory, in joules: GDDR6X by Micron's technical brief TN-ED-03
/// (7.25 pJ/bit), HBM2 by O'Connor et al., MICRO 2017 (3.9 pJ/bit).
const GDDR_JOULES_PER_BIT: f64 = 7.25e-12;
const HBM_JOULES_PER_BIT: f64 = 3.9e-12;

/// Power that is left for the multiprocessors of an RTX 4090 (450 W), which they take at its boost clock.
const REFERENCE_POWER_W: f64 = 450.0 - BOARD_POWER_W - 1.008e12 * 8.0 * GDDR_JOULES_PER_BIT;
/// Its dense FP16 rate.
const REFERENCE_PRODUCTS: f64 = 165.2e12;
/// Its boost clock.
const REFERENCE_CLOCK_HZ: f64 = 2.52e9;
/// The clocks of its 128 multiprocessors.
const REFERENCE_CLOCKS: f64 = 128.0 * REFERENCE_CLOCK_HZ;

/// Tensor-core operations per clock and multiprocessor of a GeForce with FP32 accumulation, on which
/// the shares in `efficiencies.json` were fitted.
const GEFORCE_PER_CLOCK: f64 = 512.0;
/// How much the loads of a 256 x 128 tile slow a GeForce down: `tile_load` of `coefficients.json` (7.948,
/// fitted on whole steps of GeForce and data-center GPUs) times the inverses of both sides.
const TILE_LOAD: f64 = 7.948 * (1.0 / 256.0 + 1.0 / 128.0);

impl Limits {
    /// `None` where a rate is not known.
    pub(super) fn of(device: &DeviceSpec, efficiencies: &Efficiencies) -> Option<Limits> {
        let (of_arithmetic, of_bandwidth) = efficiencies.attained(device);
        let clocks = f64::from(device.multiprocessors) * device.boost_clock_hz?;
        let arithmetic = device.peaks.fp32?;
        let products = device.peaks.fp16.or(device.peaks.fp32)?;
        let power = Power::of(device);
        let fed = fed_share(products / clocks, &device.architecture);
        let of_products = fed * power.sustained_share(products * fed / REFERENCE_PRODUCTS);
        let of_clocks = power.sustained_share(clocks / REFERENCE_CLOCKS);
        let limits = Limits {
            products: products * of_products * of_arithmetic,
            arithmetic: arithmetic * of_clocks * of_arithmetic,
            bandwidth: device.bandwidth * of_bandwidth,
            cache_bytes: device.l2_bytes.unwrap_or(0.0),
            clocks: clocks * of_clocks * of_arithmetic,
        };
        let known = [limits.products, limits.arithmetic, limits.bandwidth, limits.clocks];
        known.iter().all(|rate| rate.is_finite() && *rate > 0.0).then_some(limits)
    }

    /// The ratio of times between two devices for work that follows arithmetic with this share, and
    /// bandwidth otherwise (in the logarithm).
    pub(super) fn between(&self, other: &Limits, arithmetic_share: f64) -> f64 {
        (self.arithmetic / other.arithmetic).powf(arithmetic_share)
            * (self.bandwidth / other.bandwidth).powf(1.0 - arithmetic_share)
    }
}

/// The share of the tensor-core rate that loads from shared memory can feed, relative to a GeForce.
/// A multiprocessor loads as fast on every board, so tensor cores that do twice as much per clock wait
/// longer for each tile. `per_clock` is in operations per clock and multiprocessor.
fn fed_share(per_clock: f64, architecture: &str) -> f64 {
    // On 9.x and 10.x the multiprocessors of a cluster share loads (`op_cost/sustained.rs`).
    let shared = if matches!(major(architecture), "9" | "10") { 2.0 / 3.0 } else { 1.0 };
    (1.0 + TILE_LOAD) / (1.0 + TILE_LOAD * shared * per_clock / GEFORCE_PER_CLOCK)
}

fn major(architecture: &str) -> &str {
    architecture.split('.').next().unwrap_or_default()
}

/// What a board's power limit leaves for its multiprocessors.
struct Power {
    /// In watts; infinite where the limit is unknown.
    left_w: f64,
    /// Energy of an operation at the boost clock, relative to an RTX 4090. Energy goes with the square
    /// of the voltage, and the voltage with the clock.
    energy: f64,
}

impl Power {
    fn of(device: &DeviceSpec) -> Power {
        // NVIDIA's chips with HBM have compute capability x.0, except 12.0.
        let has_hbm = device.architecture.ends_with(".0") && major(&device.architecture) != "12";
        let joules = if has_hbm { HBM_JOULES_PER_BIT } else { GDDR_JOULES_PER_BIT };
        let memory_w = device.bandwidth * 8.0 * joules;
        let left = |limit_w: f64| (limit_w - BOARD_POWER_W - memory_w).max(limit_w / 4.0);
        let voltage = device.boost_clock_hz.map_or(1.0, |clock| clock / REFERENCE_CLOCK_HZ);
        Power { left_w: device.tdp_w.map_or(f64::INFINITY, left), energy: voltage.powi(2) }
    }

    /// The share of a peak rate that the limit leaves, where the rate is so many times an RTX 4090's.
    /// Power goes with the clock and the square of the voltage, so the clock that a limit allows goes
    /// with its cube root. The energy of an operation is that of a 5 nm chip.
    fn sustained_share(&self, rate: f64) -> f64 {
        (self.left_w / (REFERENCE_POWER_W * rate * self.energy)).cbrt().min(1.0)
    }
}
