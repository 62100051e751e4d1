//! Devices: the capabilities of GPUs in the table and of CPUs, from datasheets or measured, and the
//! occupancy of kernels.
//!
//! It does not know what ran on them.

pub mod cpu;
pub mod device_row;
pub mod device_spec;
pub mod device_table;
pub mod occupancy;
