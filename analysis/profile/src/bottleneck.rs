//! [`Bottleneck`]: what an iteration would save if one cause of its time cost nothing.
//! `diagnose::bottleneck` works it out on the iteration's graph.

use super::FileId;

/// Something that takes an iteration's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Kernels (on a CPU: operators) limited by arithmetic.
    Compute,
    /// Kernels and copies within a GPU (on a CPU: operators) limited by memory bandwidth.
    MemoryBandwidth,
    /// Kernels whose limit is unknown.
    Kernels,
    /// On a CPU: operators that reach neither peak compute nor bandwidth.
    Operators,
    /// PyTorch's dispatch of operators that launch kernels, the launch calls, and the delay before
    /// each kernel.
    Launches,
    /// The host waits for the GPU instead of running ahead of it.
    Synchronization,
    /// The loop's thread waits for the next batch.
    DataLoading,
    /// Copies between host and GPU, with the host's waits for uploads.
    HostCopies,
    /// Other GPUs; on a CPU, other ranks.
    Communication,
    /// Python, and everything else on the host: on a GPU, long operators that compute on the host, load
    /// kernels or search for algorithms, too.
    HostCode,
    /// All of the host together: launches, synchronization, data loading and host code. They hide
    /// behind one another, so that all of them can save much more than any one of them.
    Host,
}

impl Cause {
    /// The key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Cause::Compute => "compute",
            Cause::MemoryBandwidth => "memory_bandwidth",
            Cause::Kernels => "kernels",
            Cause::Operators => "operators",
            Cause::Launches => "launch_overhead",
            Cause::Synchronization => "synchronization",
            Cause::DataLoading => "data_loading",
            Cause::HostCopies => "host_copies",
            Cause::Communication => "communication",
            Cause::HostCode => "host_code",
            Cause::Host => "host",
        }
    }

    /// Whether it is a part of [`Cause::Host`].
    pub fn is_of_host(self) -> bool {
        matches!(
            self,
            Cause::Launches | Cause::Synchronization | Cause::DataLoading | Cause::HostCode
        )
    }
}

/// What an iteration would save at most if a cause cost nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Saving {
    /// What would cost nothing.
    pub cause: Cause,
    /// Of the iteration, 0 to 1.
    pub share: f64,
    /// Nanoseconds of the iteration.
    pub time_ns: f64,
    /// The lines that account for most of it, with nanoseconds; at most [`EVIDENCE`].
    pub lines: Vec<((FileId, u32), f64)>,
    /// The operators that account for most of it, likewise.
    pub operators: Vec<(String, f64)>,
}

/// How many lines and operators stand for a saving.
pub const EVIDENCE: usize = 3;

/// A cause that saves less is no bottleneck.
const LEAST_VERDICT: f64 = 0.05;

/// What an iteration would save if its causes cost nothing, one at a time. Savings overlap: they do
/// not add up to the iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bottleneck {
    /// Nanoseconds of the iteration.
    pub iteration_ns: f64,
    /// The share, 0 to 1, in which a GPU was busy; nothing on a CPU.
    pub gpu_busy: Option<f64>,
    /// The largest first, [`Cause::Host`] last.
    pub savings: Vec<Saving>,
    /// The replay differs from the recorded iteration by this share, too much to tell anything else.
    pub untrusted: Option<f64>,
}

/// What limits an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict<'a> {
    /// The cause whose removal saves most.
    Cause(&'a Saving),
    /// No cause by itself saves enough.
    NoneDominates,
    /// The replay does not reproduce the recorded iteration.
    Unknown,
}

impl Bottleneck {
    /// The cause whose removal saves most. The host as a whole counts only where no part of it saves
    /// half as much by itself.
    pub fn verdict(&self) -> Verdict<'_> {
        if self.untrusted.is_some() {
            return Verdict::Unknown;
        }
        let single = self.savings.iter().find(|saving| saving.cause != Cause::Host);
        let of_host = self.savings.iter().filter(|saving| saving.cause.is_of_host());
        let largest_of_host = of_host.map(|saving| saving.share).fold(0.0, f64::max);
        let host = self.saving(Cause::Host).filter(|host| largest_of_host < 0.5 * host.share);
        let shares = |saving: &&Saving| saving.share;
        let largest = single.into_iter().chain(host).max_by(|a, b| shares(a).total_cmp(&shares(b)));
        match largest.filter(|saving| saving.share >= LEAST_VERDICT) {
            Some(saving) => Verdict::Cause(saving),
            None => Verdict::NoneDominates,
        }
    }

    /// What one cause saves; nothing where it saves nothing.
    pub fn saving(&self, cause: Cause) -> Option<&Saving> {
        self.savings.iter().find(|saving| saving.cause == cause)
    }

    /// The share that one cause saves; 0 where it saves nothing.
    pub fn share(&self, cause: Cause) -> f64 {
        self.saving(cause).map_or(0.0, |saving| saving.share)
    }
}
