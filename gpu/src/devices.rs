//! The GPUs of this machine, asked through the CUDA driver and NVML. Both are loaded at run time, and
//! either may be missing, broken or of another version without harm.

/// What is known of the GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Devices {
    /// The CUDA driver's state.
    pub driver: Driver,
    /// The kernel driver's version by NVML (`580.65.06`), or why it is unknown.
    pub nvml: Result<String, String>,
    /// The devices that the CUDA driver shows, in its order.
    pub gpus: Vec<Gpu>,
}

/// The CUDA driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// No `libcuda` on this machine.
    Absent,
    /// It works.
    Ready {
        /// The newest CUDA version that it supports: `(13, 0)`.
        cuda: (u32, u32),
    },
    /// It works, and sees no device (error 100).
    NoDevice,
    /// The library and the kernel module are of different versions (error 803): a reboot is due.
    Mismatch,
    /// It lacks a function that is needed, so it is too old or not the real one.
    Incomplete {
        /// Of the function.
        symbol: String,
    },
    /// Any other error.
    Failed {
        /// `CUresult`.
        code: u32,
    },
    /// It did not answer in time, or the query panicked.
    Unresponsive {
        /// What happened.
        reason: String,
    },
}

/// A GPU's facts, of its architecture rather than of the moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// The driver's number for it.
    pub index: u32,
    /// `NVIDIA H200`.
    pub name: String,
    /// Compute capability: `(9, 0)`.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Bytes per second of memory: clock times bus width, twice for the double data rate.
    pub bandwidth: Option<f64>,
    /// L2 cache in bytes.
    pub l2_bytes: Option<u64>,
    /// The highest clock of the multiprocessors, in Hz.
    pub clock_hz: Option<u64>,
    /// Memory in use by anyone now, in bytes (NVML).
    pub used_bytes: Option<u64>,
}

/// Asks the driver and NVML; waits at most ten seconds.
pub async fn query() -> Devices {
    todo!()
}
