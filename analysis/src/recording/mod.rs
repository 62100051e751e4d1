//! What one run left behind: the profiler's trace, and beside it the manifest and the line log of
//! the agent. `docs/recording.md` describes the folder.

pub mod correlation;
pub mod line_log;
pub mod manifest;
mod strings;
pub mod trace;

pub use strings::{Interner, StringId, Strings};
