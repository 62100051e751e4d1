//! Drives the built server from outside, as editors do: sessions that end in every way, clients that
//! do everything they should not, and runs of real programs where a Python with torch is known.

mod ending;
mod hostile;
mod panel;
mod process;
mod real;
mod simulated_gpu;
