//! What one run left behind: the profiler's trace, and beside it the manifest and the line log of
//! the agent. `docs/recording.md` describes the folder.

pub mod chrome_trace;
mod chrome_trace_events;
mod chrome_trace_header;
mod chrome_trace_json;
pub mod copies;
pub mod correlation;
pub mod line_log;
pub mod manifest;
pub mod observed;
pub mod occupancy;
pub mod optional;
mod strings;
pub mod trace;

use ridgeline_devices::device_spec::Ceilings;

pub use strings::{Interner, StringId, Strings};

/// One run, or a trace that was recorded elsewhere: a recording with less in it.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What the agent knew about the run; nothing for a trace recorded elsewhere.
    pub manifest: Option<manifest::Manifest>,
    /// What the profiler saw.
    pub trace: trace::Trace,
    /// Which user lines ran when.
    pub lines: Option<line_log::LineLog>,
    /// What the GPU that ran it was measured to reach, where whoever read the recording knows.
    pub ceilings: Option<Ceilings>,
}
