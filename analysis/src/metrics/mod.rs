//! Numbers that stand for themselves: what GPUs did, how full kernels kept them, how long iterations
//! took, how much work operators were.

pub mod activity;
mod host_lines;
pub mod occupancy;
pub mod op_flops;
mod operator_time;
pub mod roofline;
mod step_time;
pub mod summary;
pub mod throughput;
