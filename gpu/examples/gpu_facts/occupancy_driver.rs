//! Queries the driver's occupancy calculator about known kernels, so `tests/gpu` can compare it
//! with the occupancy that `analysis` computes.

use std::fmt::Write;

use cudarc::driver::sys::CUfunction_attribute_enum;
use cudarc::driver::{CudaContext, CudaFunction, DriverError};
use cudarc::nvrtc::Ptx;
use serde::Serialize;

/// One result of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OccupancyCase {
    /// Compute capability.
    pub capability: (i32, i32),
    /// Registers per thread, as the driver compiled the kernel.
    pub registers: i32,
    /// Static shared memory per block, in bytes.
    pub static_shared_bytes: i32,
    /// Dynamic shared memory per block, requested by the launch, in bytes.
    pub dynamic_shared_bytes: i32,
    /// Threads per block.
    pub threads: u32,
    /// Concurrent blocks per multiprocessor, according to the driver.
    pub blocks_per_multiprocessor: u32,
}

const LIVE_VALUES: [u32; 8] = [4, 16, 28, 40, 60, 90, 120, 200];
const STATIC_SHARED_BYTES: [u32; 3] = [0, 5000, 40_000];
/// Above 48 KiB a kernel needs an opt-in, and the profiler reports 0%.
const DYNAMIC_SHARED_BYTES: [i32; 7] = [0, 1024, 20_000, 49_152, 66_000, 100_000, 200_000];
const THREADS: [u32; 10] = [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024];

/// Queries kernels with few and many registers, with and without shared memory, in small and large
/// blocks. Takes about a second.
///
/// # Errors
/// If the driver returns an error.
pub(crate) fn cases(index: usize) -> Result<Vec<OccupancyCase>, DriverError> {
    let context = CudaContext::new(index)?;
    let capability = context.compute_capability()?;
    let mut cases = Vec::new();
    for values in LIVE_VALUES {
        for shared in STATIC_SHARED_BYTES {
            let source = kernel(values, shared, capability);
            let module = context.load_module(Ptx::from_src(source))?;
            query_cases(&module.load_function("holder")?, capability, &mut cases)?;
        }
    }
    Ok(cases)
}

fn query_cases(
    kernel: &CudaFunction,
    capability: (i32, i32),
    cases: &mut Vec<OccupancyCase>,
) -> Result<(), DriverError> {
    let registers = kernel.num_regs()?;
    let static_shared_bytes = kernel.shared_size_bytes()?;
    let max_threads = u32::try_from(kernel.max_threads_per_block()?).unwrap_or(0);
    for dynamic_shared_bytes in DYNAMIC_SHARED_BYTES {
        let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // The driver rejects more than the device has. Skip those.
        if kernel.set_attribute(attribute, dynamic_shared_bytes).is_err() {
            continue;
        }
        for threads in THREADS.into_iter().filter(|threads| *threads <= max_threads) {
            let bytes = usize::try_from(dynamic_shared_bytes).unwrap_or(0);
            let blocks_per_multiprocessor =
                kernel.occupancy_max_active_blocks_per_multiprocessor(threads, bytes, None)?;
            cases.push(OccupancyCase {
                capability,
                registers,
                static_shared_bytes,
                dynamic_shared_bytes,
                threads,
                blocks_per_multiprocessor,
            });
        }
    }
    Ok(())
}

/// Returns the PTX of a kernel that keeps `values` numbers live at once: it loads all of them,
/// waits, and stores them in reverse order, so the compiler cannot release any. The driver reports
/// how many registers that takes.
fn kernel(values: u32, shared_bytes: u32, capability: (i32, i32)) -> String {
    let (version, target) = if capability >= (7, 5) { ("6.3", "sm_75") } else { ("5.0", "sm_60") };
    let mut text = format!(
        ".version {version}\n.target {target}\n.address_size 64\n.visible .entry holder(.param .u64 memory) {{\n\
         .reg .u64 %address;\n.reg .u32 %value<{values}>;\n"
    );
    if shared_bytes > 0 {
        text += &format!(".shared .align 4 .b8 block[{shared_bytes}];\n");
    }
    text += "ld.param.u64 %address, [memory];\n";
    for value in 0..values {
        let _ = writeln!(text, "ld.volatile.global.u32 %value{value}, [%address+{}];", 4 * value);
    }
    if shared_bytes > 0 {
        text += "st.volatile.shared.u32 [block], %value0;\n";
    }
    text += "bar.sync 0;\n";
    for value in 0..values {
        let place = 4 * (values - 1 - value);
        let _ = writeln!(text, "st.volatile.global.u32 [%address+{place}], %value{value};");
    }
    text + "ret;\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_loads_and_stores_each_value_once() {
        let text = kernel(40, 5000, (9, 0));
        assert_eq!(text.matches("ld.volatile.global").count(), 40);
        assert_eq!(text.matches("st.volatile.global").count(), 40);
        assert!(text.contains("block[5000]"));
        assert!(!kernel(4, 0, (9, 0)).contains(".shared"));
    }
}
