//! Operators: what PyTorch was asked for, with shapes and types, and what that costs on a device.
//!
//! [`operator`] is one operator, from a recording ([`recorded_step`]) or from the list that an estimate
//! leaves behind ([`op_list`]). [`op_cost`] gives its operations, its bytes and its time on a
//! [`DeviceSpec`](ridgeline_devices::device_spec::DeviceSpec).
//!
//! It does not know in which order operators ran, nor which line called them.

pub mod op_cost;
pub mod op_list;
pub mod operator;
pub mod product_kernel;
pub mod range;
pub mod recorded_step;
pub mod step_cost;
mod trace_operator;
