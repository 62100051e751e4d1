//! Estimates the savings of optimizations before anyone writes them (Daydream, Zhu et al., USENIX
//! ATC 2020), and writes the edits that apply them.
//!
//! An [`optimization`] changes the [graph](ridgeline_graph) of a recorded iteration with a few
//! primitives. Simulating the changed graph gives the speedup and the peak memory. [`study`] does
//! that for all optimizations, [`rewrite`] edits the program's text.

pub mod accuracy;
pub mod attention;
mod cells;
pub mod distributed;
pub mod facts;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
pub mod loading;
pub mod network;
pub mod numerics;
pub mod optimization;
pub mod optimizations;
pub mod probe_list;
pub mod ranking;
pub mod recomputation;
pub mod recompute_curve;
pub mod rewrite;
pub mod segments;
pub mod stand_ins;
pub mod stashes;
pub mod study;
pub mod tuning;
