//! One iteration as a graph of tasks with dependencies (Daydream, Zhu et al., USENIX ATC 2020).
//!
//! A [`graph`] has the work of the host and of the GPU's streams. [`simulate`] schedules it,
//! [`critical_path`] finds the tasks that determine its duration, and [`memory`] computes its peak
//! memory.
//!
//! It does not know where a graph comes from (`attribution` builds it from a recording) or why it
//! is changed (`optimize`).

pub mod calls;
pub mod critical_path;
pub mod graph;
pub mod host_order;
mod links;
pub mod memory;
pub mod primitives;
pub mod recorded;
pub mod simulate;
pub mod task_list;
pub mod uploads;
