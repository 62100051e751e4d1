//! Predicts the time of a kernel on another GPU: wave scaling, after Yu et al., "Habitat: A
//! Runtime-Based Computational Performance Predictor for Deep Neural Network Training", USENIX ATC
//! 2021, section 3.
//!
//! A GPU runs the `B` thread blocks of a kernel in waves of `W` blocks. With memory bandwidth `D`,
//! clock `C` and the kernel's memory-boundedness `γ`, a kernel that took `T_o` on the origin `o`
//! takes on the destination `d` (their equation 1)
//!
//! ```text
//! T_d = ⌈B/W_d⌉ / ⌈B/W_o⌉ · (D_o/D_d · W_d/W_o)^γ · (C_o/C_d)^(1-γ) · T_o
//! ```
//!
//! where, for intensity `x` and the destination's ridge point `R`, `γ` is `1 - x/2R` left of the
//! ridge and `R/2x` right of it. If the intensity is unknown, `γ` is 1, as in the paper.
//!
//! Changes for current GPUs, and the reasons:
//!
//! - *The rate of a multiprocessor instead of the clock.* Multiprocessors of the GPUs in the paper
//!   have 64 or 128 FP32 lanes; an A100's has 64 and an RTX 3090's 128 at nearly the same clock. `C`
//!   is therefore the peak FP32 rate over the number of multiprocessors. Kernels on tensor cores
//!   are not scaled here at all: libraries choose different kernels on every GPU, so their
//!   operators use the operator model (Habitat's "kernel-varying" operations, its section 4).
//! - *Resident blocks share their multiprocessor.* If the destination runs fewer blocks on each
//!   (1,536 threads rather than 2,048), a wave has less work and ends sooner. In the formula's
//!   compute term the time of a wave does not depend on its size, so it includes the number of
//!   blocks on each multiprocessor.
//! - *A wave is never larger than the grid.* Otherwise a larger GPU is predicted to take longer for
//!   a kernel that fills neither.
//! - *The L2 cache.* It grew from 6 MB (RTX 3090) to 72 MB (RTX 4090), and tensors that one
//!   operator writes and the next reads stay in it. Data that fits moves at the rate of the cache.
//! - *A minimum.* Starting and ending a kernel takes time that did not improve with clocks or
//!   bandwidth.
//! - *Measured bandwidth* replaces the datasheet value if the device has been measured.

use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::occupancy;
use ridgeline_devices::occupancy::Launch;

/// The properties of a kernel that scaling uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kernel {
    /// The launch configuration.
    pub launch: Launch,
    /// Time on the origin, in nanoseconds.
    pub time_ns: f64,
    /// Floating-point operations, if known.
    pub flops: Option<f64>,
    /// Minimum bytes moved, if known.
    pub bytes: Option<f64>,
}

/// The minimum time of a kernel, in nanoseconds: tiny kernels take 1.2 to 2.2 µs on the GPUs of the
/// sample traces, from a V100 to a B200.
pub const FLOOR_NS: f64 = 1_500.0;

/// The 80% error factor of element-wise kernels, between any two of five GPUs
/// (`analysis/tests/wave_scaling.rs`).
pub const SPREAD: f64 = 1.2;
/// The same for kernels that work on rows (softmax, norms), whose algorithm depends on the row
/// length and the GPU.
pub const ROW_SPREAD: f64 = 1.65;

/// The speed of L2 relative to device memory: 2.3 on an A100 and 3 to 5 on others, by the
/// microbenchmarks of Jia et al. (2018, 2019) and Luo et al. (2024). This is the minimum.
const L2_SPEED: f64 = 2.3;

/// The share of the cache available to one operator's tensors; weights and other tensors use the
/// rest.
const L2_SHARE: f64 = 0.5;

/// Returns the time on `to`, in nanoseconds, of a kernel that took [`Kernel::time_ns`] on `from`.
pub fn scaled_ns(kernel: &Kernel, from: &DeviceSpec, to: &DeviceSpec) -> f64 {
    let floor = FLOOR_NS.min(kernel.time_ns);
    floor + (kernel.time_ns - floor) * factor(kernel, from, to)
}

/// Returns `T_d / T_o` for the time beyond the minimum.
pub fn factor(kernel: &Kernel, from: &DeviceSpec, to: &DeviceSpec) -> f64 {
    let gamma = memory_boundedness(kernel, to);
    let bandwidth =
        from.bandwidth_over(to) * speedup_in_l2(kernel, from) / speedup_in_l2(kernel, to);
    let rate = match (from.peaks.fp32, to.peaks.fp32) {
        (Some(from), Some(to)) => from / to,
        _ => bandwidth,
    };
    let factor = match waves(kernel, from).zip(waves(kernel, to)) {
        Some((from_waves, to_waves)) => {
            let rate_each = rate * f64::from(to.multiprocessors) / f64::from(from.multiprocessors);
            let count = to_waves.count / from_waves.count;
            let by_memory = bandwidth * to_waves.blocks / from_waves.blocks;
            let by_compute = rate_each * to_waves.on_each / from_waves.on_each;
            count * by_memory.powf(gamma) * by_compute.powf(1.0 - gamma)
        }
        // Their equation 2: the limit of many waves, which needs no occupancy (for AMD GPUs and
        // launches that were not fully recorded).
        None => bandwidth.powf(gamma) * rate.powf(1.0 - gamma),
    };
    if factor.is_finite() && factor > 0.0 { factor } else { 1.0 }
}

/// The waves of a grid on a GPU.
#[derive(Clone, Copy, Debug)]
struct Waves {
    /// The number of waves.
    count: f64,
    /// Blocks in the first wave.
    blocks: f64,
    /// The maximum number of these on one multiprocessor.
    on_each: f64,
}

fn waves(kernel: &Kernel, device: &DeviceSpec) -> Option<Waves> {
    let capability = device.capability()?;
    let resident = occupancy::occupancy(&kernel.launch, capability, device.multiprocessors)?;
    let grid = kernel.launch.grid?.iter().map(|blocks| f64::from(*blocks)).product::<f64>();
    let multiprocessors = f64::from(device.multiprocessors);
    let full = f64::from(resident.blocks_per_multiprocessor) * multiprocessors;
    if grid < 1.0 || full < 1.0 {
        return None;
    }
    let blocks = full.min(grid);
    Some(Waves { count: (grid / full).ceil(), blocks, on_each: (blocks / multiprocessors).ceil() })
}

/// Returns `γ`: 1 is fully bandwidth-bound, 0 fully compute-bound.
fn memory_boundedness(kernel: &Kernel, to: &DeviceSpec) -> f64 {
    let (Some(flops), Some(bytes), Some(peak)) = (kernel.flops, kernel.bytes, to.peaks.fp32) else {
        return 1.0;
    };
    if flops <= 0.0 || bytes <= 0.0 {
        return 1.0;
    }
    let intensity = flops / bytes;
    let ridge = peak / to.bandwidth;
    if intensity < ridge { 1.0 - 0.5 * intensity / ridge } else { 0.5 * ridge / intensity }
}

/// Returns the speedup of a kernel's memory accesses because part of its data is in L2.
fn speedup_in_l2(kernel: &Kernel, device: &DeviceSpec) -> f64 {
    let (Some(bytes), Some(l2)) = (kernel.bytes, device.l2_bytes) else { return 1.0 };
    if bytes <= 0.0 {
        return 1.0;
    }
    let cached = (L2_SHARE * l2 / bytes).min(1.0);
    1.0 / (cached / L2_SPEED + (1.0 - cached))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_devices::device_table::DeviceTable;

    fn device(name: &str) -> DeviceSpec {
        DeviceTable::shipped().find(name).unwrap().clone()
    }

    /// A kernel with many blocks on tensors of 1 GB, for which neither the minimum nor L2 matters.
    fn large(flops: f64) -> Kernel {
        Kernel {
            launch: launch(1_000_000, 256),
            time_ns: 1e9,
            flops: Some(flops),
            bytes: Some(1e9),
        }
    }

    fn launch(grid: u32, threads: u32) -> Launch {
        Launch {
            grid: Some([grid, 1, 1]),
            block: Some([threads, 1, 1]),
            registers: Some(32),
            shared_memory_bytes: Some(0),
            reported_occupancy_percent: None,
        }
    }

    #[track_caller]
    fn check(kernel: &Kernel, from: &str, to: &str, expected: f64) {
        let found = factor(kernel, &device(from), &device(to));
        assert!((found / expected - 1.0).abs() < 0.02, "{found} rather than {expected}");
    }

    #[test]
    fn the_same_gpu_takes_the_same_time() {
        for gpu in DeviceTable::shipped().devices() {
            for kernel in [large(0.0), large(1e12), Kernel { time_ns: 1000.0, ..Kernel::default() }]
            {
                assert!((scaled_ns(&kernel, gpu, gpu) / kernel.time_ns - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn bandwidth_bound_kernels_scale_with_bandwidth() {
        check(&large(0.0), "V100-SXM2-16GB", "A100-SXM4-40GB", 900.0 / 1555.0);
        check(&Kernel { flops: None, ..large(0.0) }, "T4", "H200-SXM5-141GB", 320.0 / 4800.0);
    }

    #[test]
    fn compute_bound_kernels_scale_with_the_total_rate() {
        check(&large(1e15), "A100-SXM4-40GB", "RTX3090", 19.5 / 35.6);
    }

    #[test]
    fn a_small_grid_does_not_gain_from_more_multiprocessors() {
        let small = Kernel { launch: launch(40, 256), flops: Some(1e15), ..large(0.0) };
        let (from, to) = (device("V100-SXM2-16GB"), device("A100-SXM4-40GB"));
        let one_each = (15.7 / 80.0) / (19.5 / 108.0);
        check(&small, &from.name, &to.name, one_each);
    }

    #[test]
    fn the_last_wave_counts_in_full() {
        // 128 blocks of 1,024 threads: two waves on an RTX 3090 (82 multiprocessors with room for
        // one block each), one on an RTX 4090.
        let kernel = Kernel { launch: launch(128, 1024), flops: Some(1e15), ..large(0.0) };
        let one_wave = (35.6 / 82.0) / (82.6 / 128.0);
        check(&kernel, "RTX3090", "RTX4090", one_wave / 2.0);
    }

    #[test]
    fn data_that_fits_a_larger_cache_is_faster() {
        let (from, to) = (device("RTX3090"), device("RTX4090"));
        let small = Kernel { bytes: Some(20e6), ..large(0.0) };
        assert!(factor(&small, &from, &to) < 0.6 * factor(&large(0.0), &from, &to));
    }

    #[test]
    fn kernels_have_a_minimum_time() {
        let kernel = Kernel { time_ns: 3000.0, ..large(0.0) };
        let scaled = scaled_ns(&kernel, &device("T4"), &device("B200-SXM6-180GB"));
        assert!((FLOOR_NS..2000.0).contains(&scaled), "{scaled}");
    }

    #[test]
    fn kernels_without_a_launch_use_the_limit_of_many_waves() {
        let kernel = Kernel { launch: Launch::default(), ..large(0.0) };
        check(&kernel, "MI300X", "H200-SXM5-141GB", 5300.0 / 4800.0);
    }

    #[test]
    fn invalid_numbers_give_a_finite_factor() {
        let kernel = Kernel {
            launch: launch(u32::MAX, 1024),
            time_ns: f64::MAX,
            flops: Some(f64::MAX),
            bytes: Some(f64::MIN_POSITIVE),
        };
        assert!(factor(&kernel, &device("T4"), &device("L4")).is_finite());
    }
}
