//! The recording of one run: the profiler's trace, and the manifest and line log of the agent.
//! `docs/recording.md` describes the folder.

pub mod chrome_trace;
mod chrome_trace_builder;
mod chrome_trace_events;
mod chrome_trace_header;
mod chrome_trace_inflate;
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
mod used_device;

use ridgeline_devices::device_spec::Ceilings;

pub use strings::{Interner, StringId, Strings};

/// The recording of one run. A trace that was recorded elsewhere is a recording with less
/// information.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What the agent recorded about the run; `None` for a trace recorded elsewhere.
    pub manifest: Option<manifest::Manifest>,
    /// The profiler's trace.
    pub trace: trace::Trace,
    /// The user's lines over time.
    pub lines: Option<line_log::LineLog>,
    /// Measured rates of the GPU that ran it, if the reader of the recording knows them.
    pub ceilings: Option<Ceilings>,
}
