//! Devices: what a GPU of the table or a processor can do, by its datasheet or as measured, and how many
//! of a kernel's threads it holds at once.
//!
//! It does not know what ran on them.

pub mod device_row;
pub mod device_spec;
pub mod device_table;
pub mod occupancy;
pub mod processor;
