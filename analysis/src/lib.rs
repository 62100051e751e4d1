//! Attributes the cost of a recorded training loop to source lines. Re-exports all crates of
//! `analysis`.
//!
//! The crates are pure: bytes and text in, values out. They have no access to LSP, the file system,
//! the clock, processes or devices; `tests/purity.rs` checks this. Each crate depends only on
//! crates above it in this list; `tests/layers.rs` checks this.

pub use ridgeline_base as base;

pub use ridgeline_commands as commands;

pub use ridgeline_python as python;

pub use ridgeline_profile as profile;

pub use ridgeline_devices as devices;

pub use ridgeline_recording as recording;

pub use ridgeline_operators as operators;

pub use ridgeline_graph as graph;

pub use ridgeline_attribution as attribution;

pub use ridgeline_predict as predict;

pub use ridgeline_optimize as optimize;

pub use ridgeline_diagnose as diagnose;

pub use ridgeline_compare as compare;

pub use ridgeline_present as present;
