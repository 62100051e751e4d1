//! Tests of the agent, interpreters and drivers as real processes.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail by a panic in a function that it calls"
)]

#[cfg(target_os = "linux")]
mod agent;
#[cfg(unix)]
mod environment;
#[cfg(unix)]
mod interpreter;
#[cfg(target_os = "linux")]
mod real_agent;
#[cfg(target_os = "linux")]
mod stub_driver;
