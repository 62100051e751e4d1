//! `recompute-candidates`: activations that fill the GPU's memory and are cheap to recompute in the
//! backward pass (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; Echo, Zheng
//! et al., ISCA 2020).

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use ridgeline_base::units;
use ridgeline_optimize::rewrite::EditKind;

/// The minimum share of the device's memory in use: from here on, the rest may not suffice for the
/// next change.
const MIN_MEMORY_USE: f64 = 0.8;
/// The minimum share of peak memory saved.
const MIN_SAVED: f64 = 0.15;
/// The maximum share that it may add to the iteration time.
const MAX_ADDED: f64 = 0.35;

pub(super) struct RecomputeCandidates;

impl Rule for RecomputeCandidates {
    fn name(&self) -> &'static str {
        "recompute-candidates"
    }

    fn title(&self) -> &'static str {
        "Candidates for activation recomputation"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).into_iter().collect()
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Finding> {
    let memory = &evidence.profile().memory;
    let peak = memory.peak_bytes as f64;
    let capacity = memory.capacity_bytes? as f64;
    // A CPU's memory is shared with everything else on the machine, so being near its limit means
    // nothing.
    let is_short = evidence.on_gpu() && capacity > 0.0 && peak >= MIN_MEMORY_USE * capacity;
    let activations = memory.at_peak.activations as f64;
    if !is_short || activations < MIN_SAVED * peak {
        return None;
    }
    let found = evidence.what_if("recompute")?;
    let bytes = found.bytes.filter(|bytes| *bytes >= MIN_SAVED * peak)?;
    let added = evidence.share(-found.time_ns).max(0.0);
    let (file, line) = *found.lines.first()?;
    let others = found.lines.iter().skip(1).take(8);
    (added <= MAX_ADDED).then(|| Finding {
        rule: "recompute-candidates",
        at: evidence.place(file, line),
        related: others
            .map(|(file, line)| (evidence.place(*file, *line), "also applies here".to_owned()))
            .collect(),
        message: "Activation recomputation (checkpointing) could save memory here".to_owned(),
        why: format!(
            "Peak memory is {:.0}% of the GPU's memory. With `torch.utils.checkpoint` around these \
            calls it would be about {} lower, and iterations about {:.0}% slower.",
            100.0 * peak / capacity,
            units::bytes(bytes),
            100.0 * added
        ),
        cost: Some(Cost::bytes(bytes).predicted()),
        fix: Some(EditKind::Checkpoint),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_optimize::fixture::{self, LINE};

    const TEXT: &str = "import torch\n\n\n\n\n\n\n\n\n\n\n\n";

    /// The training step of the what-if tests, on a device with this share of its memory free.
    fn example(on_gpu: bool, free: f64) -> Case {
        let step = fixture::step(4, on_gpu);
        let now = ridgeline_graph::memory::peak(&step.recorded.graph, &step.recorded.schedule);
        let peak = now.expect("a peak");
        let mut example = if on_gpu { Case::new(TEXT).on_gpu() } else { Case::new(TEXT) };
        example.graph = step.recorded.graph;
        let (device, files) = (example.profile.device, example.profile.files);
        example.profile = ridgeline_profile::Profile { device, files, ..step.profile };
        example.profile.memory.at_peak.activations = (peak - fixture::WEIGHTS) as u64;
        example.profile.memory.capacity_bytes = Some((peak / (1.0 - free)) as u64);
        if on_gpu {
            example.device = Ok(fixture::gpu().clone());
        }
        example
    }

    #[test]
    fn lines_are_reported_if_memory_is_short() {
        let found = example(true, 0.1).measured(&RecomputeCandidates);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, LINE.1);
        let cost = found[0].cost.expect("a cost");
        assert!(cost.is_predicted && cost.bytes > 0.0 && cost.time_ns == 0.0, "{cost:?}");
        assert_eq!(found[0].fix, Some(EditKind::Checkpoint));
    }

    #[test]
    fn nothing_is_reported_if_memory_is_free() {
        assert!(example(true, 0.5).measured(&RecomputeCandidates).is_empty());
        assert!(example(false, 0.1).measured(&RecomputeCandidates).is_empty());
        let mut unknown = example(true, 0.1);
        unknown.profile.memory.capacity_bytes = None;
        assert!(unknown.measured(&RecomputeCandidates).is_empty());
    }
}
