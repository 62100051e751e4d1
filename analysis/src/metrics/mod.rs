//! Numbers that stand for themselves: what GPUs did, how full kernels kept them, how long iterations
//! took.

pub mod activity;
mod host_lines;
pub mod occupancy;
mod operator_time;
mod step_time;
pub mod summary;
