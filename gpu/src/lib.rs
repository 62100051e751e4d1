//! The devices of this machine, and the agent that runs inside the user's Python.
//!
//! This crate finds a Python ([`interpreter`]) or creates one with torch ([`environment`]), starts
//! the agent in it and runs the training loop there ([`agent`]). It also describes the machine
//! ([`devices`], [`ceilings`], [`limits`], [`doctor`]). It does *not* know LSP, editors, source
//! text, or what anything costs.
//!
//! Everything that waits is `async` on tokio and limited in time, memory and output.

pub mod agent;
pub mod ceilings;
pub mod devices;
pub mod doctor;
pub mod environment;
mod installer;
pub mod interpreter;
pub mod limits;
mod matmul;
mod process;
#[cfg(target_os = "linux")]
mod process_table;
