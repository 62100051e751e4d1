//! What if: what an optimization would bring, said before it is written (Daydream, Zhu et al., USENIX
//! ATC 2020).
//!
//! A recorded iteration is a [`graph`] of tasks that wait for one another
//! (`attribution::step_graph` makes it), [`simulate`] runs it, [`memory`] says how high it gets. An
//! [`optimization`] changes the graph by a few [`primitives`]; running it again says what it brings.

pub mod accuracy;
pub mod attention;
pub mod calls;
mod cells;
pub mod critical_path;
pub mod distributed;
pub mod facts;
#[cfg(test)]
pub mod fixture;
pub mod graph;
pub mod host_order;
mod links;
pub mod loading;
pub mod memory;
pub mod network;
pub mod optimization;
pub mod optimizations;
pub mod primitives;
pub mod probe_list;
pub mod ranking;
pub mod recomputation;
pub mod recompute_curve;
pub mod recorded;
pub mod segments;
pub mod simulate;
pub mod stand_ins;
pub mod stashes;
pub mod study;
pub mod task_list;
