//! [`Exchange`]: the communication of a rank with the other ranks in one iteration.

use super::FileId;

/// Communication in one iteration: NCCL and RCCL collectives on a GPU, gloo collectives on the
/// host. Overlapping collectives are counted once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Nanoseconds in which at least one collective was running.
    pub total_ns: f64,
    /// The part of `total_ns` in which the rank computed nothing: on a GPU no kernel ran
    /// concurrently, on the host the loop's thread waited for the collective to end. Includes
    /// waiting for a slower rank.
    pub exposed_ns: f64,
    /// Host nanoseconds in which `DistributedDataParallel` copies gradients to its communication
    /// buckets and back.
    pub copying_ns: f64,
    /// The exposed time by the line that waits, largest first. On a GPU this is the line that
    /// launched the collective.
    pub lines: Vec<ExposedLine>,
}

/// The exposed communication of one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExposedLine {
    pub file: FileId,
    /// Line number, counted from 1, in the text that ran.
    pub line: u32,
    /// Exposed nanoseconds per iteration.
    pub exposed_ns: f64,
    /// Whether the line is in the backward pass, where the exchange of gradients could overlap with
    /// it.
    pub in_backward: bool,
}

impl Exchange {
    /// Returns the exposed nanoseconds of a line.
    pub fn exposed_of(&self, file: FileId, line: u32) -> f64 {
        let here = self.lines.iter().filter(|one| (one.file, one.line) == (file, line));
        here.map(|one| one.exposed_ns).sum()
    }
}
