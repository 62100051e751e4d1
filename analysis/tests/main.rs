//! Integration tests of the `analysis` crates on recordings, traces and source files, and checks of
//! the dependencies between the crates.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests read their fixtures and panic on failure"
)]

mod chrome_trace;
mod exchange;
mod finding_pages;
mod findings;
mod gpu_findings;
mod layers;
mod memory_what_ifs;
mod other_devices;
mod panel;
mod purity;
mod recorded;
mod recordings;
mod sample_traces;
mod several_gpus;
mod simulated_device;
mod step_graphs;
mod trace_summary;
mod training_scripts;
mod wave_scaling;
