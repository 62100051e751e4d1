//! Drives the built server from outside, as editors do: sessions that end in every way, clients that
//! do everything they should not, and runs of real programs where a Python with torch is known.

mod ending;
mod hostile;
#[allow(dead_code, reason = "the sessions in `session` use the rest")]
pub(crate) mod http;
mod panel;
mod process;
mod real;
mod simulated_gpu;
#[allow(dead_code, reason = "the sessions in `session` use the rest")]
mod strict_client;
