//! Metrics of traces and graphs: GPU activity, occupancy, iteration times, work of operators,
//! device utilization.

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
pub mod trace_steps;
pub mod utilization;
