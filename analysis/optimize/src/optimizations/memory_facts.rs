//! The requirements of memory optimizations.

use std::collections::HashSet;

use crate::facts::Facts;
use ridgeline_graph::graph::{Graph, Resource};
use ridgeline_graph::memory::BlockKind;
use ridgeline_profile::Phase;

/// The optimizations that change how activations are stored. Only one can be applied.
pub(super) const MEMORY_NAMES: [&str; 3] = ["recompute", "gist", "offload"];

/// Rejects a graph whose activations are unknown, or also saved in the backward pass.
pub(super) fn needed(graph: &Graph, facts: &Facts<'_>) -> Result<(), String> {
    if !graph.memory.is_known {
        return Err("the recording has no memory data".to_owned());
    }
    if facts.profile.modules.is_empty() {
        return Err("the recording has no module data".to_owned());
    }
    one_gpu(graph)?;
    let activations =
        || graph.memory.blocks.iter().filter(|block| block.kind == BlockKind::Activations);
    let backward_saves = activations().any(|block| {
        let allocated_by = block.allocated.and_then(|moment| graph.task(moment.task));
        allocated_by.is_some_and(|task| task.phase == Phase::Backward)
    });
    if backward_saves {
        let why = "the backward pass already saves activations: it recomputes them, or computes \
            second derivatives";
        return Err(why.to_owned());
    }
    if activations().next().is_none() {
        return Err("no activation is saved for the backward pass".to_owned());
    }
    Ok(())
}

/// Rejects a graph with several GPUs.
pub(super) fn one_gpu(graph: &Graph) -> Result<(), String> {
    let gpus: HashSet<i64> = graph
        .resources()
        .iter()
        .filter_map(|resource| match resource {
            Resource::Stream(device, _) => Some(*device),
            _ => None,
        })
        .collect();
    if gpus.len() > 1 {
        return Err("the recording covers several GPUs".to_owned());
    }
    Ok(())
}
