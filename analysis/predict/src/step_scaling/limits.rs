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

/// Power that goes to memory and the board, whatever the multiprocessors do, in watts.
const BOARD_POWER_W: f64 = 60.0;

/// Power that the multiprocessors of an RTX 4090 (5 nm, 450 W) take at its boost clock.
const REFERENCE_POWER_W: f64 = 390.0;
/// Its dense FP16 rate.
const REFERENCE_PRODUCTS: f64 = 165.2e12;
/// Its multiprocessors' clocks: 128 at 2.52 GHz.
const REFERENCE_CLOCKS: f64 = 128.0 * 2.52e9;

impl Limits {
    /// `None` where a rate is not known.
    pub(super) fn of(device: &DeviceSpec, efficiencies: &Efficiencies) -> Option<Limits> {
        let (of_arithmetic, of_bandwidth) = efficiencies.attained(device);
        let clocks = f64::from(device.multiprocessors) * device.boost_clock_hz?;
        let arithmetic = device.peaks.fp32?;
        let products = device.peaks.fp16.or(device.peaks.fp32)?;
        let sustained = |needed_w: f64| sustained_share(device.tdp_w, needed_w);
        let of_products = sustained(REFERENCE_POWER_W * products / REFERENCE_PRODUCTS);
        let of_clocks = sustained(REFERENCE_POWER_W * clocks / REFERENCE_CLOCKS);
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

/// The share of a peak rate that a power limit leaves. A chip's power goes with the clock and the
/// square of the voltage, which itself goes with the clock: the clock that a limit allows goes with
/// its cube root. The energy of an operation is that of a 5 nm chip; older ones never come into this
/// limit before their own clock's.
fn sustained_share(limit_w: Option<f64>, needed_w: f64) -> f64 {
    let Some(limit_w) = limit_w else { return 1.0 };
    let left = (limit_w - BOARD_POWER_W).max(limit_w / 4.0);
    (left / needed_w).cbrt().min(1.0)
}
