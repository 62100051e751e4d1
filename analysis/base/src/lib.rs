//! Numbers and text that every crate of `analysis` needs: units as people read them, text that is safe
//! to print, medians, stretches of time.
//!
//! It knows nothing of PyTorch, of recordings or of GPUs.

pub mod intervals;
pub mod printable;
pub mod statistics;
pub mod units;
