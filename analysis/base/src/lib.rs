//! Numbers and text for every crate of `analysis`: units for display, text that is safe to print,
//! statistics, time intervals.
//!
//! It knows nothing about PyTorch, recordings or GPUs.

pub mod intervals;
pub mod printable;
pub mod statistics;
pub mod units;
