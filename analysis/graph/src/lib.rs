//! One iteration as a graph of tasks that wait for one another (Daydream, Zhu et al., USENIX ATC 2020).
//!
//! A [`graph`] holds what the host and the GPU's streams did; [`simulate`] runs it, [`critical_path`]
//! says what decided how long it took, [`memory`] says how high its memory gets.
//!
//! It does not know where a graph comes from (`attribution` makes it of a recording) nor what may be
//! changed about it (`optimize`).

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
