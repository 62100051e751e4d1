//! Occupancy of NVIDIA GPUs: the share of a multiprocessor's resident threads that a kernel launch
//! uses.
//!
//! Uses the rules of NVIDIA's occupancy calculator (`cuda_occupancy.h`). The profiler applies them
//! with the default limit of 48 KiB of shared memory and reports 0% above it: for 15% of an H100's
//! and 55% of a B200's kernel time in the sample traces. Computed here from the launch, the value
//! equals the profiler's for all of 83,319 kernels of real traces below that limit (compute
//! capability 7.0, 7.5, 8.0, 9.0, 10.0, 10.3), and is also correct above it.

/// The launch parameters of a kernel that the trace contains (ROCm traces contain only grid and
/// block).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y and z.
    pub block: Option<[u32; 3]>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Bytes of shared memory per block, static and dynamic.
    pub shared_memory_bytes: Option<u32>,
    /// `est. achieved occupancy %` from the profiler, which is incorrectly 0 above 48 KiB of shared
    /// memory: show [`occupancy`] instead.
    pub reported_occupancy_percent: Option<f32>,
}

/// The occupancy of a kernel launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Occupancy {
    /// Maximum number of concurrent blocks per multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// Resident threads as a share (0 to 1) of the maximum, if the grid filled every
    /// multiprocessor.
    pub theoretical: f64,
    /// The same for the launched grid: a grid of few blocks leaves multiprocessors empty.
    pub achieved: f64,
}

/// Computes the occupancy of a launch. Returns `None` if the trace has incomplete launch parameters
/// (ROCm), the device is not in the table, or the launch is impossible (no threads, too many
/// registers).
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

/// The limits of a multiprocessor, by compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    capability: (u32, u32),
    /// Maximum number of resident threads.
    pub threads: u32,
    warps: u32,
    /// Maximum number of resident blocks.
    pub blocks: u32,
    /// Number of 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory. One block can use nearly all of it.
    pub shared_memory_bytes: u32,
    /// Allocation granularity of shared memory, in bytes.
    shared_memory_unit: u32,
    /// Shared memory reserved by the system per block, in bytes.
    reserved_bytes: u32,
    /// Number of partitions, each with an equal share of the registers.
    sub_partitions: u32,
}

const WARP_THREADS: u32 = 32;
const MAX_THREADS_PER_BLOCK: u32 = 1024;
const MAX_REGISTERS_PER_THREAD: u32 = 255;
/// Allocation granularity of registers per warp, the same for every capability of the table.
const REGISTER_GRANULARITY_PER_WARP: u32 = 256;

/// From the table of technical specifications per compute capability in the CUDA programming guide.
/// The values of 8.6, 8.9 and 12.0 were not checked against a trace.
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

/// Returns the limits of a compute capability, or `None` if it is not in the table.
pub fn limits_of(capability: (u32, u32)) -> Option<&'static Limits> {
    LIMITS.iter().find(|limits| limits.capability == capability)
}

impl Limits {
    /// Returns the number of blocks that fit on a multiprocessor, limited by warps, blocks,
    /// registers or shared memory. Returns `None` if no block fits.
    fn blocks_that_fit(&self, threads: u32, registers: u32, shared_bytes: u32) -> Option<u32> {
        if threads == 0 || threads > MAX_THREADS_PER_BLOCK || registers > MAX_REGISTERS_PER_THREAD {
            return None;
        }
        let warps = threads.div_ceil(WARP_THREADS);
        let by_warps = self.warps / warps;
        let by_registers = match registers {
            0 => u32::MAX,
            registers => {
                let per_warp =
                    (WARP_THREADS * registers).next_multiple_of(REGISTER_GRANULARITY_PER_WARP);
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
    fn warps_registers_shared_memory_and_blocks_limit_occupancy() {
        check((8, 0), (100_000, 1024, 32, 0), Some((2, 1.0)));
        check((8, 0), (100_000, 256, 255, 0), Some((1, 0.125)));
        check((7, 0), (100_000, 128, 16, 49_152), Some((2, 0.125)));
        check((9, 0), (100_000, 32, 16, 0), Some((32, 0.5)));
    }

    #[test]
    fn occupancy_above_48_kib_of_shared_memory_is_not_zero() {
        check((9, 0), (100_000, 256, 64, 98_304), Some((2, 0.25)));
        check((9, 0), (100_000, 384, 168, 230_000), Some((1, 0.1875)));
    }

    #[test]
    fn a_small_grid_leaves_multiprocessors_empty() {
        check((8, 0), (50, 1024, 32, 0), Some((2, 0.25)));
    }

    #[test]
    fn impossible_launches_have_no_occupancy() {
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
