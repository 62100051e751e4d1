//! From where a line is reached.

use super::{FileId, ModuleId};

/// The maximum number of callers and of instances stored per line, the most expensive ones.
pub const CALLERS_PER_LINE: usize = 16;

/// The time of a line when it is reached from one place, in nanoseconds per iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallerCost {
    /// The file of the line that called the function around the line.
    pub file: FileId,
    /// The number of that line in the text that ran.
    pub line: u32,
    /// Part of the line's `total_time`.
    pub time_ns: f64,
}

/// The time of a line in one module instance, in nanoseconds per iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceCost {
    /// An instance of the class around the line.
    pub module: ModuleId,
    /// Part of the line's `total_time`.
    pub time_ns: f64,
}
