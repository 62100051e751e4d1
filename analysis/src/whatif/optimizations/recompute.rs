//! Selective recomputation: activations are dropped in the forward pass and made again in the backward
//! pass (Echo, Zheng et al., ISCA 2020; `torch.utils.checkpoint`).
//!
//! Which ones is chosen among the lines that call modules: of the sets from fastest to smallest the one
//! where the share of memory that is saved is furthest above the share of time that is added.

use crate::profile::FileId;
use crate::source::rewrite::EditKind;
use crate::whatif::facts::Facts;
use crate::whatif::graph::{Graph, Resource};
use crate::whatif::optimization::{Bound, Optimization, Touched};
use crate::whatif::recomputation::run_again;
use crate::whatif::recompute_curve::{Set, Timeline, greedy};
use crate::whatif::segments::{Group, groups};

use super::memory_facts::{self, MEMORY_NAMES};

/// A set that saves a smaller share of the peak is not worth its time.
const LEAST_SAVED: f64 = 0.02;
/// What the host takes for checkpoints may be off by this factor.
const OVERHEAD_FACTOR: f64 = 2.0;

pub(super) struct Recompute;

impl Optimization for Recompute {
    fn name(&self) -> &'static str {
        "recompute"
    }

    fn title(&self) -> &'static str {
        "Activations made again (checkpoint)"
    }

    fn source(&self) -> &'static str {
        "Echo, Zheng et al., ISCA 2020; torch.utils.checkpoint"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Touched, String> {
        memory_facts::needed(graph, facts)?;
        let groups = groups(graph, facts.profile);
        let offered: Vec<&Group> = groups.iter().filter(|group| group.is_direct).collect();
        if offered.is_empty() {
            return Err("no line calls a module whose activations could be dropped".to_owned());
        }
        let sets = greedy(graph, facts.profile, &offered);
        let chosen = best(graph, &sets).ok_or(
            "dropping the activations of any line's modules would not lower the peak of memory",
        )?;
        run_again(graph, &chosen.segments, bound.within_factor(1.0, OVERHEAD_FACTOR));
        let mut notes = vec![format!(
            "run a second time in the backward pass: {}",
            counted(chosen.segments.len(), "call of a module", "calls of modules")
        )];
        if has_batch_norm(graph, &chosen) {
            notes.push(
                "batch norm within them updates its running mean twice in an iteration".to_owned(),
            );
        }
        Ok(Touched { lines: lines(&chosen), notes, ..Touched::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::Checkpoint)
    }

    fn goes_with(&self, other: &dyn Optimization) -> bool {
        !MEMORY_NAMES.contains(&other.name())
    }
}

/// The set whose saved share of the peak is furthest above its added share of the time.
fn best<'a>(graph: &Graph, sets: &[Set<'a>]) -> Option<Set<'a>> {
    let timeline = Timeline::new(graph);
    let peak = timeline.peak(&[]);
    let has_gpu = graph.resources().iter().any(|one| matches!(one, Resource::Stream(..)));
    let time_ns = graph.time_of(|task| task.kind.is_host() != has_gpu);
    let gain = |set: &Set<'_>| {
        let saved = 1.0 - timeline.peak(&set.segments) / peak;
        (saved, saved - set.added_ns() / time_ns.max(1.0))
    };
    let worth = sets.iter().filter(|set| gain(set).0 >= LEAST_SAVED);
    worth.max_by(|a, b| gain(a).1.total_cmp(&gain(b).1)).cloned()
}

fn lines(set: &Set<'_>) -> Vec<(FileId, u32)> {
    let mut lines = set.lines.clone();
    lines.sort_unstable();
    lines.dedup();
    lines
}

fn has_batch_norm(graph: &Graph, set: &Set<'_>) -> bool {
    let again = set.segments.iter().flat_map(|segment| &segment.again);
    let mut operators =
        again.filter_map(|id| graph.task(*id).and_then(|task| graph.operator_of(task)));
    operators.any(|operator| operator.name.contains("batch_norm"))
}

fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::facts::Probes;
    use crate::whatif::fixture::{INNER, LINE, OUTPUT, Step, WEIGHTS, gpu, step};
    use crate::whatif::optimization::predict;

    fn predicted(step: &Step, times: usize) -> Result<(f64, Vec<(FileId, u32)>), String> {
        let probes = Probes::default();
        let chosen: Vec<&dyn Optimization> = vec![&Recompute; times];
        let recorded = &step.recorded;
        predict(&recorded.graph, &recorded.schedule, &step.facts(gpu(), &probes), &chosen)
            .map(|prediction| (prediction.peak_bytes.unwrap().value, prediction.lines))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_line_that_calls_the_layers_is_told() {
        let smallest = WEIGHTS + INNER + 4.0 * OUTPUT;
        assert_eq!(predicted(&step(4, true), 1), Ok((smallest, vec![LINE])));
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        let refused = |step: &Step, times| predicted(step, times).unwrap_err();
        let fine = step(4, true);
        assert_eq!(refused(&fine, 2), "activations are made again in the backward pass already");
        let mut no_memory = step(4, true);
        no_memory.recorded.graph.memory.is_known = false;
        assert_eq!(refused(&no_memory, 1), "the recording does not tell of memory");
        let mut no_modules = step(4, true);
        no_modules.profile.modules.clear();
        assert_eq!(refused(&no_modules, 1), "the recording does not tell of modules");
        let mut two_gpus = step(4, true);
        two_gpus.recorded.graph.resource(&Resource::Stream(1, 7));
        assert_eq!(refused(&two_gpus, 1), "the recording is of several GPUs");
        let one_layer = step(1, true);
        assert_eq!(
            refused(&one_layer, 1),
            "dropping the activations of any line's modules would not lower the peak of memory"
        );
    }
}
