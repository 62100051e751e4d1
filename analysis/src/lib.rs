//! What a recording of a training loop costs, by line of source: all crates of `analysis` under one
//! name, for whoever needs them whole.
//!
//! They are pure: bytes and text go in, values come out. They know no LSP, no file system, no clock, no
//! process and no device; `tests/purity.rs` holds that. Each depends only on crates above it in this
//! list; `tests/layers.rs` holds that.

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
