//! The rates that a device can sustain, for kernels with a single bottleneck.

use super::efficiencies::Efficiencies;
use ridgeline_devices::device_spec::DeviceSpec;

/// Sustained rates over a whole step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// FLOP/s on tensor cores.
    pub(super) products: f64,
    /// FLOP/s outside tensor cores.
    pub(super) arithmetic: f64,
    /// Bytes per second of device memory.
    pub(super) bandwidth: f64,
    /// Bytes of the last-level cache.
    pub(super) cache_bytes: f64,
    /// Clocks per second of all multiprocessors together.
    pub(super) clocks: f64,
}

/// Power of the board's regulators and fans, in watts.
const BOARD_POWER_W: f64 = 20.0;
/// Energy per bit moved to or from GDDR memory, in joules: GDDR6X by Micron's technical brief
/// TN-ED-03 (7.25 pJ/bit).
const GDDR_JOULES_PER_BIT: f64 = 7.25e-12;
/// The same for HBM, in joules: HBM2 by O'Connor et al., MICRO 2017 (3.9 pJ/bit).
const HBM_JOULES_PER_BIT: f64 = 3.9e-12;

/// The power left for the multiprocessors of an RTX 4090 (450 W), which they draw at its boost
/// clock.
const REFERENCE_POWER_W: f64 = 450.0 - BOARD_POWER_W - 1.008e12 * 8.0 * GDDR_JOULES_PER_BIT;
/// The dense FP16 rate of an RTX 4090, in FLOP/s.
const REFERENCE_PRODUCTS: f64 = 165.2e12;
/// The boost clock of an RTX 4090.
const REFERENCE_CLOCK_HZ: f64 = 2.52e9;
/// Clocks per second of its 128 multiprocessors.
const REFERENCE_CLOCKS: f64 = 128.0 * REFERENCE_CLOCK_HZ;

/// Tensor-core operations per clock and multiprocessor of a GeForce with FP32 accumulation, which
/// the shares in `efficiencies.json` were fitted on.
const GEFORCE_PER_CLOCK: f64 = 512.0;
/// The slowdown of a GeForce by the loads of a 256 x 128 tile: `tile_load` of `coefficients.json`
/// (7.948, fitted on whole steps of GeForce and data-center GPUs) times the sum of the inverses of
/// both sides.
const TILE_LOAD: f64 = 7.948 * (1.0 / 256.0 + 1.0 / 128.0);

impl Limits {
    /// Returns `None` if a rate is unknown.
    pub(super) fn of(device: &DeviceSpec, efficiencies: &Efficiencies) -> Option<Limits> {
        let (compute_attained, bandwidth_attained) = efficiencies.attained(device);
        let clocks = f64::from(device.multiprocessors) * device.boost_clock_hz?;
        let arithmetic = device.peaks.fp32?;
        let products = device.peaks.fp16.or(device.peaks.fp32)?;
        let power = Power::of(device);
        let fed = fed_share(products / clocks, &device.architecture);
        let product_share = fed * power.sustained_share(products * fed / REFERENCE_PRODUCTS);
        let clock_share = power.sustained_share(clocks / REFERENCE_CLOCKS);
        let limits = Limits {
            products: products * product_share * compute_attained,
            arithmetic: arithmetic * clock_share * compute_attained,
            bandwidth: device.bandwidth * bandwidth_attained,
            cache_bytes: device.l2_bytes.unwrap_or(0.0),
            clocks: clocks * clock_share * compute_attained,
        };
        let known = [limits.products, limits.arithmetic, limits.bandwidth, limits.clocks];
        known.iter().all(|rate| rate.is_finite() && *rate > 0.0).then_some(limits)
    }

    /// Returns the ratio of times between two devices for work that scales with compute by this
    /// share and with bandwidth otherwise (in the logarithm).
    pub(super) fn between(&self, other: &Limits, arithmetic_share: f64) -> f64 {
        (self.arithmetic / other.arithmetic).powf(arithmetic_share)
            * (self.bandwidth / other.bandwidth).powf(1.0 - arithmetic_share)
    }
}

/// The share of the tensor-core rate that loads from shared memory can sustain, relative to a
/// GeForce. A multiprocessor loads equally fast on every board, so tensor cores that compute twice
/// as much per clock wait longer for each tile. `per_clock` is in operations per clock and
/// multiprocessor.
fn fed_share(per_clock: f64, architecture: &str) -> f64 {
    // On 9.x and 10.x the multiprocessors of a cluster share loads (`op_cost/sustained.rs`).
    let shared = if matches!(major(architecture), "9" | "10") { 2.0 / 3.0 } else { 1.0 };
    (1.0 + TILE_LOAD) / (1.0 + TILE_LOAD * shared * per_clock / GEFORCE_PER_CLOCK)
}

fn major(architecture: &str) -> &str {
    architecture.split('.').next().unwrap_or_default()
}

/// The power that a board's limit leaves for its multiprocessors.
struct Power {
    /// In watts; infinite if the limit is unknown.
    left_w: f64,
    /// Energy of an operation at the boost clock, relative to an RTX 4090. Energy is proportional
    /// to the square of the voltage, and the voltage to the clock.
    energy: f64,
}

impl Power {
    fn of(device: &DeviceSpec) -> Power {
        // NVIDIA chips with HBM have compute capability x.0, except 12.0.
        let has_hbm = device.architecture.ends_with(".0") && major(&device.architecture) != "12";
        let joules = if has_hbm { HBM_JOULES_PER_BIT } else { GDDR_JOULES_PER_BIT };
        let memory_w = device.bandwidth * 8.0 * joules;
        let left = |limit_w: f64| (limit_w - BOARD_POWER_W - memory_w).max(limit_w / 4.0);
        let voltage = device.boost_clock_hz.map_or(1.0, |clock| clock / REFERENCE_CLOCK_HZ);
        Power { left_w: device.tdp_w.map_or(f64::INFINITY, left), energy: voltage.powi(2) }
    }

    /// Returns the share of a peak rate that the limit allows. `rate` is relative to an RTX 4090.
    /// Power is proportional to the clock and the square of the voltage, so the clock under a limit
    /// is proportional to its cube root. The energy of an operation is that of a 5 nm chip.
    fn sustained_share(&self, rate: f64) -> f64 {
        (self.left_w / (REFERENCE_POWER_W * rate * self.energy)).cbrt().min(1.0)
    }
}
