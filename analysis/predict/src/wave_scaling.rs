//! What a kernel that was measured on one GPU takes on another: wave scaling, after Yu et al.,
//! "Habitat: A Runtime-Based Computational Performance Predictor for Deep Neural Network Training",
//! USENIX ATC 2021, section 3.
//!
//! A GPU runs a kernel's `B` thread blocks in waves of `W` blocks. With `D` the memory bandwidth,
//! `C` the clock and `γ` the kernel's memory-boundedness, a kernel that took `T` on the origin `o`
//! takes on the destination `d` (their equation 1)
//!
//! ```text
//! T_d = ⌈B/W_d⌉ / ⌈B/W_o⌉ · (D_o/D_d · W_d/W_o)^γ · (C_o/C_d)^(1-γ) · T_o
//! ```
//!
//! and, of the intensity `x` and the destination's ridge `R`, `γ` is `1 - x/2R` left of the ridge
//! and `R/2x` right of it. Where nothing is known of the intensity, `γ` is 1, as theirs is.
//!
//! What today's GPUs need beside that, and why:
//!
//! - *The rate of a multiprocessor in place of the clock.* Multiprocessors of the GPUs in the paper
//!   have 64 or 128 FP32 lanes; an A100's has 64 and an RTX 3090's 128 at nearly the same clock. `C`
//!   is therefore the peak FP32 rate over the number of multiprocessors. Kernels on tensor cores
//!   are not scaled here at all: libraries choose other kernels on every GPU, so their operators go
//!   by the operator model (Habitat's "kernel-varying" operations, its section 4).
//! - *Resident blocks share their multiprocessor.* Where the destination keeps fewer blocks on each
//!   (1,536 threads rather than 2,048), a wave has less to do and ends sooner. In the formula's
//!   compute term a wave takes as long whatever its size, so the blocks on each multiprocessor
//!   enter it.
//! - *A wave is never larger than the grid.* Otherwise a larger GPU is predicted to take longer for
//!   a kernel that fills neither.
//! - *The L2 cache.* It grew from 6 MB (RTX 3090) to 72 MB (RTX 4090), and tensors that one operator
//!   leaves and the next reads stay in it. What fits counts as moved at the cache's rate.
//! - *A floor.* No kernel takes less than starting and ending it, and that did not become faster
//!   with clocks or bandwidth.
//! - *Measured bandwidth* stands for the datasheet's where the device has been measured.

use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::occupancy;
use ridgeline_devices::occupancy::Launch;

/// A kernel as far as scaling it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kernel {
    /// How it was launched.
    pub launch: Launch,
    /// What it took on the origin, in nanoseconds.
    pub time_ns: f64,
    /// Its floating-point operations, where they are known.
    pub flops: Option<f64>,
    /// The bytes that it moves at the least, where they are known.
    pub bytes: Option<f64>,
}

/// What a kernel takes at the least, in nanoseconds: kernels on a few numbers take 1.2 to 2.2 µs on
/// the GPUs of the sample traces, from a V100 to a B200.
pub const FLOOR_NS: f64 = 1_500.0;

/// Four of five kernels that work on elements lie within this factor of what was measured, between any
/// two of five GPUs (`analysis/tests/wave_scaling.rs`).
pub const SPREAD: f64 = 1.2;
/// The same of kernels that work on rows (softmax, norms), which choose another way by the row's length
/// and the GPU.
pub const SPREAD_OF_ROWS: f64 = 1.65;

/// How much faster L2 is than device memory: 2.3 times on an A100 and 3 to 5 times on others, by the
/// microbenchmarks of Jia et al. (2018, 2019) and Luo et al. (2024). The least is taken.
const L2_SPEED: f64 = 2.3;

/// The share of the cache that one operator's tensors find: weights and other tensors want it too.
const L2_SHARE: f64 = 0.5;

/// What a kernel takes on `to`, in nanoseconds, that took [`Kernel::time_ns`] on `from`.
pub fn scaled_ns(kernel: &Kernel, from: &DeviceSpec, to: &DeviceSpec) -> f64 {
    let floor = FLOOR_NS.min(kernel.time_ns);
    floor + (kernel.time_ns - floor) * factor(kernel, from, to)
}

/// `T_d / T_o`, beyond the floor.
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
        // Their equation 2: the limit of many waves, which needs no occupancy (AMD's GPUs, a launch
        // that was not recorded in full).
        None => bandwidth.powf(gamma) * rate.powf(1.0 - gamma),
    };
    if factor.is_finite() && factor > 0.0 { factor } else { 1.0 }
}

/// How a grid runs on a GPU.
#[derive(Clone, Copy, Debug)]
struct Waves {
    /// How many there are.
    count: f64,
    /// Blocks of the first.
    blocks: f64,
    /// Of these, on the multiprocessor that has most.
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

/// `γ`: 1 is bound by memory alone, 0 by arithmetic alone.
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

/// How many times faster than from memory a kernel's bytes come, part of which are in L2.
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

    /// A kernel of many blocks on tensors of 1 GB, so that neither the floor nor L2 counts.
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
    fn many_waves_bound_by_memory_go_by_bandwidth() {
        check(&large(0.0), "V100-SXM2-16GB", "A100-SXM4-40GB", 900.0 / 1555.0);
        check(&Kernel { flops: None, ..large(0.0) }, "T4", "H200-SXM5-141GB", 320.0 / 4800.0);
    }

    #[test]
    fn many_waves_bound_by_arithmetic_go_by_the_rate_of_all_multiprocessors() {
        check(&large(1e15), "A100-SXM4-40GB", "RTX3090", 19.5 / 35.6);
    }

    #[test]
    fn a_grid_that_fills_neither_does_not_gain_from_more_multiprocessors() {
        let small = Kernel { launch: launch(40, 256), flops: Some(1e15), ..large(0.0) };
        let (from, to) = (device("V100-SXM2-16GB"), device("A100-SXM4-40GB"));
        let one_each = (15.7 / 80.0) / (19.5 / 108.0);
        check(&small, &from.name, &to.name, one_each);
    }

    #[test]
    fn the_last_wave_counts_in_full() {
        // 128 blocks of 1,024 threads: two waves on an RTX 3090 (82 multiprocessors with room for
        // one each), one on an RTX 4090.
        let kernel = Kernel { launch: launch(128, 1024), flops: Some(1e15), ..large(0.0) };
        let one_wave = (35.6 / 82.0) / (82.6 / 128.0);
        check(&kernel, "RTX3090", "RTX4090", one_wave / 2.0);
    }

    #[test]
    fn what_fits_a_larger_cache_is_faster_there() {
        let (from, to) = (device("RTX3090"), device("RTX4090"));
        let small = Kernel { bytes: Some(20e6), ..large(0.0) };
        assert!(factor(&small, &from, &to) < 0.6 * factor(&large(0.0), &from, &to));
    }

    #[test]
    fn no_kernel_is_faster_than_its_floor() {
        let kernel = Kernel { time_ns: 3000.0, ..large(0.0) };
        let scaled = scaled_ns(&kernel, &device("T4"), &device("B200-SXM6-180GB"));
        assert!((FLOOR_NS..2000.0).contains(&scaled), "{scaled}");
    }

    #[test]
    fn without_waves_the_limit_of_many_holds() {
        let kernel = Kernel { launch: Launch::default(), ..large(0.0) };
        check(&kernel, "MI300X", "H200-SXM5-141GB", 5300.0 / 4800.0);
    }

    #[test]
    fn absurd_numbers_give_a_number() {
        let kernel = Kernel {
            launch: launch(u32::MAX, 1024),
            time_ns: f64::MAX,
            flops: Some(f64::MAX),
            bytes: Some(f64::MIN_POSITIVE),
        };
        assert!(factor(&kernel, &device("T4"), &device("L4")).is_finite());
    }
}
