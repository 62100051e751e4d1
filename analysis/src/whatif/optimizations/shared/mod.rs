//! What several optimizations need, and the questions of `ridgeline evaluate` that judge them: which
//! operators change under an optimization, and by what factor, as it was fitted on measurements.

pub mod channels_last;
pub mod compiled;
pub mod factors;
pub mod fusion;
pub mod layout;
pub mod parts;
