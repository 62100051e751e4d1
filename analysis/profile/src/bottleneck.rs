//! [`Bottleneck`]: the time an iteration would save if one cause of its time were free.
//! `attribution::bottleneck` computes it from the iteration's graph.

use super::FileId;

/// Something that takes an iteration's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Kernels (on a CPU: operators) limited by arithmetic.
    Compute,
    /// Kernels and copies within a GPU (on a CPU: operators) limited by memory bandwidth.
    MemoryBandwidth,
    /// Kernels (on a CPU: operators) whose limit is unknown.
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
    /// Python and all other host code. On a GPU this includes long operators that compute on the
    /// host, load kernels or search for algorithms.
    HostCode,
    /// All host causes together: launches, synchronization, data loading and host code. They
    /// overlap, so removing all of them can save much more than removing any one of them.
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

    /// Whether this cause is part of [`Cause::Host`].
    pub fn is_of_host(self) -> bool {
        matches!(
            self,
            Cause::Launches | Cause::Synchronization | Cause::DataLoading | Cause::HostCode
        )
    }
}

/// The most an iteration could save if one cause were free.
#[derive(Clone, Debug, PartialEq)]
pub struct Saving {
    /// The cause that is assumed to be free.
    pub cause: Cause,
    /// The saved share of the iteration, 0 to 1.
    pub share: f64,
    /// The saved time, in nanoseconds per iteration.
    pub time_ns: f64,
    /// The lines that account for most of the saving, with nanoseconds; at most [`MAX_EVIDENCE`].
    pub lines: Vec<((FileId, u32), f64)>,
    /// The operators that account for most of the saving, with nanoseconds; at most
    /// [`MAX_EVIDENCE`].
    pub operators: Vec<(String, f64)>,
}

/// The maximum number of lines and of operators listed for a saving.
pub const MAX_EVIDENCE: usize = 3;

/// The smallest saved share that counts as a bottleneck.
const MIN_VERDICT_SHARE: f64 = 0.05;

/// The time an iteration would save if each of its causes were free, one at a time. Savings
/// overlap: they do not add up to the iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bottleneck {
    /// Iteration time in nanoseconds.
    pub iteration_ns: f64,
    /// The share of the iteration, 0 to 1, in which a GPU was busy; `None` on a CPU.
    pub gpu_busy: Option<f64>,
    /// The part of that time, in nanoseconds, in which the GPU ran work that was launched before the
    /// iteration.
    pub earlier_ns: f64,
    /// The largest first, [`Cause::Host`] last.
    pub savings: Vec<Saving>,
    /// The relative error of the replay, if it is too large to report savings.
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
    /// Returns the cause whose removal saves most. [`Cause::Host`] counts only if no single host
    /// cause saves at least half as much.
    pub fn verdict(&self) -> Verdict<'_> {
        if self.untrusted.is_some() {
            return Verdict::Unknown;
        }
        let single = self.savings.iter().find(|saving| saving.cause != Cause::Host);
        let host_causes = self.savings.iter().filter(|saving| saving.cause.is_of_host());
        let largest_host_share = host_causes.map(|saving| saving.share).fold(0.0, f64::max);
        let host = self.saving(Cause::Host).filter(|host| largest_host_share < 0.5 * host.share);
        let shares = |saving: &&Saving| saving.share;
        let largest = single.into_iter().chain(host).max_by(|a, b| shares(a).total_cmp(&shares(b)));
        match largest.filter(|saving| saving.share >= MIN_VERDICT_SHARE) {
            Some(saving) => Verdict::Cause(saving),
            None => Verdict::NoneDominates,
        }
    }

    /// Returns the saving of one cause, or `None` if it saves nothing.
    pub fn saving(&self, cause: Cause) -> Option<&Saving> {
        self.savings.iter().find(|saving| saving.cause == cause)
    }

    /// Returns the share that one cause saves, or 0 if it saves nothing.
    pub fn share(&self, cause: Cause) -> f64 {
        self.saving(cause).map_or(0.0, |saving| saving.share)
    }
}
