//! Shared by several optimizations and by the questions of `ridgeline evaluate` that judge them:
//! which operators an optimization changes, and by what factor, fitted to measurements.

pub(super) mod autocast;
pub mod channels_last;
pub mod compiled;
pub(super) mod exchange;
pub mod factors;
pub mod fusion;
pub(super) mod insert;
pub mod layout;
pub(super) mod lines;
pub(super) mod lowering;
pub mod mixed_precision;
pub(super) mod once;
pub(crate) mod overhead;
pub mod parts;
pub mod retyped;
pub(super) mod streams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub(super) mod update;
