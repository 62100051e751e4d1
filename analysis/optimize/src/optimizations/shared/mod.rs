//! What several optimizations need, and the questions of `ridgeline evaluate` that judge them: which
//! operators change under an optimization, and by what factor, as it was fitted on measurements.

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
pub(super) mod overhead;
pub mod parts;
pub mod retyped;
pub(super) mod streams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub(super) mod update;
