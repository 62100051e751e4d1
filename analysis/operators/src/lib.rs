//! PyTorch operators with shapes and types, and their cost on a device.
//!
//! [`operator`] is one operator, from a recording ([`recorded_step`]) or from the operator list
//! that an estimate writes ([`op_list`]). [`op_cost`] gives its FLOPs, its bytes and its time on a
//! [`DeviceSpec`](ridgeline_devices::device_spec::DeviceSpec).
//!
//! It does not know the order of the operators or the lines that called them.

pub mod machine_costs;
pub mod matmul_kernel;
pub mod op_cost;
pub mod op_list;
pub mod operator;
pub mod range;
pub mod recorded_step;
pub mod retyped;
pub mod step_cost;
mod trace_operator;
