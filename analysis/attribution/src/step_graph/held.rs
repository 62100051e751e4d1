//! Memory blocks of the iteration, and the gradients that autograd accumulates.

use super::Builder;
use crate::contexts::Contexts;
use crate::gradients;
use crate::memory;
use crate::memory_kinds::{Classifier, Kind};
use ridgeline_graph::graph::{Gradient, TaskId};
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_profile::Profile;
use ridgeline_recording::Recording;
use ridgeline_recording::trace::MemoryEvent;

impl Builder<'_> {
    /// Returns the host task that ran at a time, or the last one before it.
    fn host_task_at(&self, time_ns: i64) -> Option<TaskId> {
        let next = self.host_starts.partition_point(|(start_ns, _)| *start_ns <= time_ns);
        self.host_starts.get(next.saturating_sub(1)).map(|(_, task)| *task)
    }

    /// Adds the parameter gradients, ordered by time.
    pub(super) fn gradients(&mut self) {
        let mut found = Vec::new();
        for gradient in gradients::accumulated(self.join.trace, self.window) {
            if let Some(ready) = self.host_task_at(gradient.end_ns) {
                let module = self.graph.task(ready).and_then(|task| task.module);
                found.push((gradient.end_ns, Gradient { bytes: gradient.bytes, ready, module }));
            }
        }
        found.sort_by_key(|(end_ns, _)| *end_ns);
        self.graph.gradients = found.into_iter().map(|(_, gradient)| gradient).collect();
    }

    pub(super) fn memory(
        &mut self,
        contexts: &mut Contexts<'_>,
        recording: &Recording,
        profile: &Profile,
    ) {
        let replay = memory::replay(&recording.trace, self.manifest, Some(self.window));
        let has_addresses = replay.events.iter().all(|event| event.address.get().is_some());
        // A GPU trace may contain only the host's memory.
        let of_device = |event: &MemoryEvent| event.device_type.is_some_and(|kind| kind != 0);
        let tells = self.join.trace.activities.is_empty() || replay.events.iter().any(of_device);
        self.graph.memory.is_known =
            profile.memory.peak_bytes > 0 && !replay.events.is_empty() && has_addresses && tells;
        if !self.graph.memory.is_known {
            return;
        }
        let classifier = Classifier::new(self.join, contexts, self.manifest, &replay);
        let moment = |event: Option<usize>| {
            let index = event?;
            let time_ns = replay.events.get(index)?.time_ns;
            let task = self.host_task_at(time_ns)?;
            Some(Moment { task, event: u32::try_from(index).ok()? })
        };
        let mut blocks = Vec::with_capacity(replay.blocks.len());
        for block in &replay.blocks {
            let allocated = moment(block.allocated);
            let made_by = allocated.and_then(|moment| self.graph.task(moment.task));
            blocks.push(Block {
                bytes: block.bytes as f64,
                kind: block_kind(classifier.kind(block)),
                allocated,
                freed: moment(block.freed),
                line: made_by.and_then(|task| task.line),
                module: block.module.or_else(|| made_by.and_then(|task| task.module)),
                call: made_by.and_then(|task| task.call),
            });
        }
        self.graph.memory.blocks = blocks;
    }
}

fn block_kind(kind: Kind) -> BlockKind {
    match kind {
        Kind::Weights => BlockKind::Weights,
        Kind::Gradients => BlockKind::Gradients,
        Kind::OptimizerState => BlockKind::OptimizerState,
        Kind::Activations => BlockKind::Activations,
        Kind::Batch => BlockKind::Batch,
        Kind::Temporaries => BlockKind::Temporaries,
        Kind::Other => BlockKind::Other,
    }
}
