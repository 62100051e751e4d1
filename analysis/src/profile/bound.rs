//! [`Bound`]: what an iteration waits for, as shares of it that add up to 1. `diagnose::bound`
//! makes it of the iteration's graph.

use super::FileId;

/// What an iteration waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bottleneck {
    /// Kernels (on a CPU: operators) that arithmetic limits.
    Compute,
    /// Kernels and copies within a GPU (on a CPU: operators) that memory's bandwidth limits.
    MemoryBandwidth,
    /// On a CPU: operators of which neither is known.
    Operators,
    /// Starting kernels: PyTorch's operators on the host, the calls that launch, and the delay until a
    /// kernel begins.
    Launches,
    /// The host waiting for a GPU rather than running ahead of it.
    Synchronization,
    /// The next batch.
    DataLoading,
    /// Copies between host and GPU.
    HostCopies,
    /// Other GPUs; on a processor, other ranks.
    Communication,
    /// Python, and whatever else the host does between operators.
    HostCode,
    /// What the recording does not explain.
    Unknown,
}

impl Bottleneck {
    /// As JSON has it.
    pub fn key(self) -> &'static str {
        match self {
            Bottleneck::Compute => "compute",
            Bottleneck::MemoryBandwidth => "memory_bandwidth",
            Bottleneck::Operators => "operators",
            Bottleneck::Launches => "kernel_launches",
            Bottleneck::Synchronization => "synchronization",
            Bottleneck::DataLoading => "data_loading",
            Bottleneck::HostCopies => "host_copies",
            Bottleneck::Communication => "communication",
            Bottleneck::HostCode => "host_code",
            Bottleneck::Unknown => "unknown",
        }
    }
}

/// A part of the iteration, with what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// What is waited for.
    pub by: Bottleneck,
    /// Of the iteration, 0 to 1.
    pub share: f64,
    /// Nanoseconds of it.
    pub time_ns: f64,
    /// The lines that have most of it, with nanoseconds; at most [`EVIDENCE`].
    pub lines: Vec<((FileId, u32), f64)>,
    /// The operators that have most of it, likewise.
    pub operators: Vec<(String, f64)>,
}

/// How many lines and operators stand for a share.
pub const EVIDENCE: usize = 3;

/// What bounds an iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bound {
    /// Nanoseconds of the iteration.
    pub iteration_ns: f64,
    /// Whether a GPU ran it.
    pub on_gpu: bool,
    /// The largest first, but what is unknown last; they add up to 1.
    pub shares: Vec<Share>,
}

impl Bound {
    /// The largest share; nothing where more is unknown.
    pub fn verdict(&self) -> Option<&Share> {
        let largest = self.shares.first()?;
        let is_known =
            largest.by != Bottleneck::Unknown && self.share(Bottleneck::Unknown) < largest.share;
        is_known.then_some(largest)
    }

    /// One share; 0 where there is none.
    pub fn share(&self, by: Bottleneck) -> f64 {
        self.shares.iter().find(|share| share.by == by).map_or(0.0, |share| share.share)
    }
}
