//! The devices of this machine, and the agent that runs inside the user's Python.
//!
//! What this crate does *not* know: LSP, editors, source text, and what anything costs. It finds a
//! Python ([`interpreter`]), makes one where none has torch ([`environment`]), starts the agent in
//! it and runs the training loop there ([`agent`]), and says what the machine is ([`devices`],
//! [`ceilings`], [`limits`], [`doctor`]).
//!
//! Everything that waits is `async` on tokio and bounded in time, in memory and in output.

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
