//! Occupancy of NVIDIA GPUs: how many of the threads that a multiprocessor can hold a kernel
//! launch keeps there.
//!
//! The rules are those of NVIDIA's occupancy calculator (`cuda_occupancy.h`). The profiler applies
//! them with the default limit of 48 KiB of shared memory and reports 0% above it: 15% of an H100's
//! and 55% of a B200's kernel time in the sample traces. Computed here from the launch, the figure
//! equals the profiler's on all of 83,319 kernels of real traces below that limit (compute
//! capability 7.0, 7.5, 8.0, 9.0, 10.0, 10.3) and is right above it.

/// A kernel's launch, as far as the trace tells it (ROCm tells grid and block alone).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y and z.
    pub block: Option<[u32; 3]>,
    /// Registers of each thread.
    pub registers: Option<u32>,
    /// Bytes of shared memory of each block, static and dynamic.
    pub shared_memory_bytes: Option<u32>,
    /// `est. achieved occupancy %` as the profiler reports it. It reports 0 above 48 KiB of shared
    /// memory, which is wrong: show [`occupancy`] instead.
    pub reported_occupancy_percent: Option<f32>,
}

/// How full a kernel launch keeps a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Occupancy {
    /// Blocks that fit a multiprocessor at once.
    pub blocks_per_multiprocessor: u32,
    /// Threads that would be resident if the grid filled every multiprocessor, as a share (0 to 1)
    /// of those that fit.
    pub theoretical: f64,
    /// The same with the grid that was launched: a grid of few blocks leaves multiprocessors empty.
    pub achieved: f64,
}

/// The occupancy of a launch. Nothing where the trace does not tell the launch in full (ROCm), where
/// the device is not in the table, or where the launch cannot be (no threads, too many registers).
pub fn occupancy(
    launch: &Launch,
    capability: (u32, u32),
    multiprocessors: u32,
) -> Option<Occupancy> {
    let limits = limits_of(capability)?;
    let grid = product(launch.grid?)?;
    let threads = u32::try_from(product(launch.block?)?).ok()?;
    let blocks = limits.blocks_that_fit(threads, launch.registers?, launch.shared_memory_bytes?)?;
    if multiprocessors == 0 || grid == 0 {
        return None;
    }
    let share = |blocks: f64| blocks * f64::from(threads) / f64::from(limits.threads);
    let launched = grid as f64 / f64::from(multiprocessors);
    Some(Occupancy {
        blocks_per_multiprocessor: blocks,
        theoretical: share(f64::from(blocks)),
        achieved: share(f64::from(blocks).min(launched)),
    })
}

/// What a multiprocessor has, by compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    capability: (u32, u32),
    /// Threads that can be resident.
    pub threads: u32,
    warps: u32,
    /// Blocks that can be resident.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory, of which each block may have nearly all.
    pub shared_memory_bytes: u32,
    /// Shared memory is given out in units of this many bytes.
    shared_memory_unit: u32,
    /// Shared memory that the system takes of each block.
    reserved_bytes: u32,
    /// Parts that each have an equal share of the registers.
    sub_partitions: u32,
}

const WARP_THREADS: u32 = 32;
const MAX_THREADS_PER_BLOCK: u32 = 1024;
const MAX_REGISTERS_PER_THREAD: u32 = 255;
/// Registers are given to a warp in units of this many, on every capability of the table.
const REGISTER_UNIT_PER_WARP: u32 = 256;

/// From the CUDA programming guide's table of technical specifications per compute capability.
/// 8.6, 8.9 and 12.0 stand in it the same way but were not checked against a trace.
#[rustfmt::skip]
const LIMITS: [Limits; 11] = [
    limits((6, 0), 2048, 64, 32,  65_536, 256, 0, 2),
    limits((6, 1), 2048, 64, 32,  98_304, 256, 0, 4),
    limits((7, 0), 2048, 64, 32,  98_304, 256, 0, 4),
    limits((7, 5), 1024, 32, 16,  65_536, 256, 0, 4),
    limits((8, 0), 2048, 64, 32, 167_936, 128, 1024, 4),
    limits((8, 6), 1536, 48, 16, 102_400, 128, 1024, 4),
    limits((8, 9), 1536, 48, 24, 102_400, 128, 1024, 4),
    limits((9, 0), 2048, 64, 32, 233_472, 128, 1024, 4),
    limits((10, 0), 2048, 64, 32, 233_472, 128, 1024, 4),
    limits((10, 3), 2048, 64, 32, 233_472, 128, 1024, 4),
    limits((12, 0), 1536, 48, 24, 102_400, 128, 1024, 4),
];

#[expect(clippy::too_many_arguments, reason = "one argument a column of the table above")]
const fn limits(
    capability: (u32, u32),
    threads: u32,
    warps: u32,
    blocks: u32,
    shared_memory_bytes: u32,
    shared_memory_unit: u32,
    reserved_bytes: u32,
    sub_partitions: u32,
) -> Limits {
    Limits {
        capability,
        threads,
        warps,
        blocks,
        registers: 65_536,
        shared_memory_bytes,
        shared_memory_unit,
        reserved_bytes,
        sub_partitions,
    }
}

/// The limits of a compute capability; `None` where it is not in the table.
pub fn limits_of(capability: (u32, u32)) -> Option<&'static Limits> {
    LIMITS.iter().find(|limits| limits.capability == capability)
}

impl Limits {
    /// How many blocks fit a multiprocessor: what is scarcest of warps, blocks, registers and shared
    /// memory decides. Nothing where not even one can be.
    fn blocks_that_fit(&self, threads: u32, registers: u32, shared_bytes: u32) -> Option<u32> {
        if threads == 0 || threads > MAX_THREADS_PER_BLOCK || registers > MAX_REGISTERS_PER_THREAD {
            return None;
        }
        let warps = threads.div_ceil(WARP_THREADS);
        let by_warps = self.warps / warps;
        let by_registers = match registers {
            0 => u32::MAX,
            registers => {
                let per_warp = (WARP_THREADS * registers).next_multiple_of(REGISTER_UNIT_PER_WARP);
                let warps_that_fit =
                    self.registers / self.sub_partitions / per_warp * self.sub_partitions;
                warps_that_fit / warps
            }
        };
        let by_shared_memory = match shared_bytes.checked_add(self.reserved_bytes)? {
            0 => u32::MAX,
            bytes => {
                self.shared_memory_bytes
                    / bytes.checked_next_multiple_of(self.shared_memory_unit)?
            }
        };
        let blocks = by_warps.min(by_registers).min(by_shared_memory).min(self.blocks);
        (blocks > 0).then_some(blocks)
    }
}

fn product(numbers: [u32; 3]) -> Option<u64> {
    numbers.into_iter().try_fold(1u64, |product, number| product.checked_mul(u64::from(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(capability: (u32, u32), launch: (u32, u32, u32, u32), expected: Option<(u32, f64)>) {
        let (grid, block, registers, shared) = launch;
        let launch = Launch {
            grid: Some([grid, 1, 1]),
            block: Some([block, 1, 1]),
            registers: Some(registers),
            shared_memory_bytes: Some(shared),
            reported_occupancy_percent: None,
        };
        let found = occupancy(&launch, capability, 100);
        assert_eq!(found.map(|o| (o.blocks_per_multiprocessor, o.achieved)), expected);
    }

    #[test]
    fn warps_registers_shared_memory_and_blocks_each_limit() {
        check((8, 0), (100_000, 1024, 32, 0), Some((2, 1.0)));
        check((8, 0), (100_000, 256, 255, 0), Some((1, 0.125)));
        check((7, 0), (100_000, 128, 16, 49_152), Some((2, 0.125)));
        check((9, 0), (100_000, 32, 16, 0), Some((32, 0.5)));
    }

    #[test]
    fn beyond_48_kib_of_shared_memory_it_is_not_zero() {
        check((9, 0), (100_000, 256, 64, 98_304), Some((2, 0.25)));
        check((9, 0), (100_000, 384, 168, 230_000), Some((1, 0.1875)));
    }

    #[test]
    fn a_small_grid_leaves_multiprocessors_empty() {
        check((8, 0), (50, 1024, 32, 0), Some((2, 0.25)));
    }

    #[test]
    fn what_cannot_be_is_unknown() {
        check((8, 0), (1, 0, 32, 0), None);
        check((8, 0), (0, 32, 32, 0), None);
        check((8, 0), (1, 2048, 32, 0), None);
        check((8, 0), (1, 32, 256, 0), None);
        check((8, 0), (1, 1024, 128, 0), None);
        check((8, 0), (1, 32, 32, u32::MAX), None);
        check((9, 4), (1, 32, 32, 0), None);
        assert_eq!(occupancy(&Launch::default(), (8, 0), 100), None);
        let block = Some([u32::MAX; 3]);
        assert_eq!(occupancy(&Launch { block, grid: block, ..Launch::default() }, (8, 0), 1), None);
    }
}
