//! Selective recomputation: activations are dropped in the forward pass and recomputed in the
//! backward pass (Echo, Zheng et al., ISCA 2020; `torch.utils.checkpoint`).
//!
//! The activations are selected by the lines that call modules. Of the sets from fastest to least
//! memory, the one is chosen whose share of memory saved exceeds its share of time added by the
//! most.

use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::recomputation::recompute_segments;
use crate::recompute_curve::{Set, Timeline, greedy};
use crate::rewrite::EditKind;
use crate::segments::{Group, groups};
use ridgeline_graph::graph::{Graph, Resource};
use ridgeline_profile::FileId;

use super::memory_facts::{self, MEMORY_NAMES};

/// The minimum share of the peak that a set has to save.
const MIN_SAVED: f64 = 0.02;
/// Uncertainty factor of the host time of checkpoints.
const OVERHEAD_FACTOR: f64 = 2.0;

pub(super) struct Recompute;

impl Optimization for Recompute {
    fn name(&self) -> &'static str {
        "recompute"
    }

    fn title(&self) -> &'static str {
        "Activation recomputation (checkpointing)"
    }

    fn source(&self) -> &'static str {
        "Echo, Zheng et al., ISCA 2020; torch.utils.checkpoint"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        memory_facts::needed(graph, facts)?;
        let groups = groups(graph, facts.profile);
        let offered: Vec<&Group> = groups.iter().filter(|group| group.is_direct).collect();
        if offered.is_empty() {
            return Err("no line calls a module whose activations could be recomputed".to_owned());
        }
        let sets = greedy(graph, facts.profile, &offered);
        let chosen = best(graph, &sets).ok_or(
            "recomputing the activations of any line's modules would not lower peak memory",
        )?;
        recompute_segments(graph, &chosen.segments, bound.within_factor(1.0, OVERHEAD_FACTOR));
        let mut notes = vec![format!(
            "recomputed in the backward pass: {}",
            counted(chosen.segments.len(), "call of a module", "calls of modules")
        )];
        if has_batch_norm(graph, &chosen) {
            notes.push(
                "batch norm layers inside update their running statistics twice per iteration"
                    .to_owned(),
            );
        }
        Ok(Effect { lines: lines(&chosen), notes, ..Effect::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::Checkpoint)
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !MEMORY_NAMES.contains(&other.name())
    }
}

/// Returns the set whose share of the peak saved exceeds its share of time added by the most.
fn best<'a>(graph: &Graph, sets: &[Set<'a>]) -> Option<Set<'a>> {
    let timeline = Timeline::new(graph);
    let peak = timeline.peak(&[]);
    let has_gpu = graph.resources().iter().any(|one| matches!(one, Resource::Stream(..)));
    let time_ns = graph.time_of(|task| task.kind.is_host() != has_gpu);
    let gain = |set: &Set<'_>| {
        let saved = 1.0 - timeline.peak(&set.segments) / peak;
        (saved, saved - set.added_ns() / time_ns.max(1.0))
    };
    let candidates = sets.iter().filter(|set| gain(set).0 >= MIN_SAVED);
    candidates.max_by(|a, b| gain(a).1.total_cmp(&gain(b).1)).cloned()
}

fn lines(set: &Set<'_>) -> Vec<(FileId, u32)> {
    let mut lines = set.lines.clone();
    lines.sort_unstable();
    lines.dedup();
    lines
}

fn has_batch_norm(graph: &Graph, set: &Set<'_>) -> bool {
    let recomputed = set.segments.iter().flat_map(|segment| &segment.recomputed);
    let mut operators =
        recomputed.filter_map(|id| graph.task(*id).and_then(|task| graph.operator_of(task)));
    operators.any(|operator| operator.name.contains("batch_norm"))
}

fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Probes;
    use crate::fixture::{INNER, LINE, OUTPUT, Step, WEIGHTS, gpu, predicted, refusal, step};

    #[test]
    fn the_line_that_calls_the_layers_is_reported() {
        let prediction = predicted(&step(4, true), &[&Recompute]).unwrap();
        assert_eq!(prediction.peak_bytes.unwrap().value, WEIGHTS + INNER + 4.0 * OUTPUT);
        assert_eq!(prediction.lines, [LINE]);
    }

    #[track_caller]
    fn refuses(change: impl FnOnce(&mut Step), expected: &str) {
        let mut step = step(4, true);
        change(&mut step);
        assert_eq!(refusal(&step, gpu(), &Recompute), expected);
    }

    #[test]
    fn recordings_without_the_required_data_are_rejected() {
        refuses(
            |step| step.recorded.graph.memory.is_known = false,
            "the recording has no memory data",
        );
        refuses(|step| step.profile.modules.clear(), "the recording has no module data");
        let second = Resource::Stream(1, 7);
        refuses(
            |step| {
                step.recorded.graph.resource(&second);
            },
            "the recording covers several GPUs",
        );
    }

    #[test]
    fn existing_recomputation_and_single_layers_are_rejected() {
        let mut done = step(4, true);
        let probes = Probes::default();
        let mut graph = done.recorded.graph.clone();
        Recompute.apply(&mut graph, &done.facts(gpu(), &probes), Bound::Likely).unwrap();
        done.recorded.graph = graph;
        assert_eq!(
            refusal(&done, gpu(), &Recompute),
            "the backward pass already saves activations: it recomputes them, or computes second \
             derivatives"
        );
        assert_eq!(
            refusal(&step(1, true), gpu(), &Recompute),
            "recomputing the activations of any line's modules would not lower peak memory"
        );
    }
}
