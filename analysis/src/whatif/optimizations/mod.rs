//! The optimizations, each in a file that names the paper that it follows.

mod accumulate;
mod blueconnect;
mod data_parallel;
mod gradient_compression;
mod p3;
pub mod shared;
mod zero_grad;

use super::optimization::Optimization;

/// All of them, in the order in which they are combined: what changes operators before what removes
/// them, what joins them before what distributes them.
pub const ALL: &[&dyn Optimization] = &[
    &zero_grad::ZeroGradToNone,
    &data_parallel::DataParallel,
    &accumulate::Accumulate,
    &p3::P3,
    &gradient_compression::GradientCompression,
    &blueconnect::BlueConnect,
];
