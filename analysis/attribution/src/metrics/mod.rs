//! Numbers that stand for themselves: what GPUs did, how full kernels kept them, how long iterations
//! took, how much work operators were, what a part of an iteration gets out of its device.

pub mod activity;
pub mod communication;
pub mod host_lines;
pub mod launch_overhead;
pub mod op_flops;
pub mod operator_time;
pub mod roofline;
pub mod step_time;
pub mod tensor_cores;
pub mod throughput;
pub mod utilization;
