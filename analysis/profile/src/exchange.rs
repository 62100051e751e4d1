//! [`Exchange`]: what a rank's iteration spends on talking with the other ranks.

use super::FileId;

/// Communication in one iteration: collective operations of NCCL and RCCL on a GPU, of gloo on the
/// host. Moments count once, however many operations are under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Nanoseconds in which an operation was under way.
    pub total_ns: f64,
    /// Nanoseconds of these in which the rank computed nothing: on a GPU no kernel ran beside it, on
    /// the host the loop's thread waited for its end. Waiting for a slower rank is part of it.
    pub exposed_ns: f64,
    /// Nanoseconds of the host in which `DistributedDataParallel` copies gradients to where they are
    /// exchanged, and back.
    pub copying_ns: f64,
    /// The exposed part by the line that waits, the most first. On a GPU it is the line that launched
    /// the operation.
    pub lines: Vec<ExposedLine>,
}

/// What one line waits for others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExposedLine {
    /// The file.
    pub file: FileId,
    /// Counted from 1, in the text that ran.
    pub line: u32,
    /// Nanoseconds of one iteration.
    pub exposed_ns: f64,
    /// Whether it is within the backward pass, where gradients could be exchanged beside it.
    pub in_backward: bool,
}

impl Exchange {
    /// The exposed nanoseconds of a line.
    pub fn exposed_of(&self, file: FileId, line: u32) -> f64 {
        let here = self.lines.iter().filter(|one| (one.file, one.line) == (file, line));
        here.map(|one| one.exposed_ns).sum()
    }
}
