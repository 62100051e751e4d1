//! Classifies the blocks at the peak and attributes them to lines and modules.
//!
//! Memory allocated before the iteration has the kind that the agent recorded. Memory allocated in
//! the iteration is classified by the phase that allocated it and by its lifetime:
//!
//! - by the loader: the batch;
//! - by a forward operator: an activation if it was still alive when autograd ran its next node,
//!   else a temporary;
//! - by autograd: a gradient if it has the address of a parameter's `.grad` or was allocated by
//!   `AccumulateGrad`, and outlives the backward pass; an activation if the second forward pass of a
//!   checkpoint allocated it; else a temporary;
//! - by the optimizer: optimizer state if it outlives the step, else a temporary.

use std::collections::{HashMap, HashSet};

use super::contexts::{Context, ContextId, Contexts};
use super::join::Join;
use super::lines::{LineIndex, Lines};
use super::memory::{Block, Replay};
use super::modules::Modules;
use ridgeline_profile::{FileId, MemoryByAge, MemoryByKind, Phase, TensorMemory};
use ridgeline_recording::correlation::innermost_operators;
use ridgeline_recording::manifest::{BlockKind, Manifest};
use ridgeline_recording::trace::Trace;

/// The maximum number of tensors whose lifetimes are kept.
const MAX_TENSORS: usize = 300;

/// The kind of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Weights,
    Gradients,
    OptimizerState,
    Activations,
    Batch,
    Temporaries,
    Other,
}

impl Kind {
    fn of_baseline(kind: BlockKind) -> Kind {
        match kind {
            BlockKind::Weight | BlockKind::Buffer => Kind::Weights,
            BlockKind::Gradient => Kind::Gradients,
            BlockKind::OptimizerState => Kind::OptimizerState,
            BlockKind::Batch => Kind::Batch,
            BlockKind::Other => Kind::Other,
        }
    }

    /// Returns the name, as in [`MemoryByKind::named`].
    fn name(self) -> &'static str {
        let one_byte = self.bytes(1);
        let named = one_byte.named().into_iter().find(|(_, bytes)| *bytes > 0);
        named.map_or("other", |(name, _)| name)
    }

    fn bytes(self, bytes: u64) -> MemoryByKind {
        let mut memory = MemoryByKind::default();
        *match self {
            Kind::Weights => &mut memory.weights,
            Kind::Gradients => &mut memory.gradients,
            Kind::OptimizerState => &mut memory.optimizer_state,
            Kind::Activations => &mut memory.activations,
            Kind::Batch => &mut memory.batch,
            Kind::Temporaries => &mut memory.temporaries,
            Kind::Other => &mut memory.other,
        } = bytes;
        memory
    }
}

/// Totals of the memory at the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct AtPeak {
    pub by_kind: MemoryByKind,
    pub made: MemoryByAge,
    /// Bytes of activations with a line.
    activations_with_line: u64,
}

impl AtPeak {
    /// Returns the share, 0 to 1, of activations with a line; 1 if there are none.
    pub(crate) fn activations_with_line(&self) -> f64 {
        if self.by_kind.activations == 0 {
            1.0
        } else {
            self.activations_with_line as f64 / self.by_kind.activations as f64
        }
    }
}

/// Classifies blocks.
pub(super) struct Classifier<'a> {
    join: &'a Join<'a>,
    replay: &'a Replay,
    /// By event: the innermost operator.
    operators: Vec<Option<u32>>,
    contexts: Vec<Option<Context>>,
    /// Start times of autograd's nodes, sorted.
    node_starts: Vec<i64>,
    /// By address of a parameter's `.grad`: the module that owns the parameter.
    gradients: HashMap<u64, Option<u32>>,
    batch: HashSet<u64>,
}

impl<'a> Classifier<'a> {
    pub(crate) fn new(
        join: &'a Join<'a>,
        contexts: &mut Contexts<'_>,
        manifest: Option<&Manifest>,
        replay: &'a Replay,
    ) -> Classifier<'a> {
        let trace = join.trace;
        let operators = operators_of(trace, replay);
        let of_events = replay
            .events
            .iter()
            .zip(&operators)
            .map(|(event, operator)| {
                let id: ContextId =
                    contexts.of_moment(*operator, join.places.at(event.thread, event.time_ns));
                contexts.get(id)
            })
            .collect();
        let mut node_starts: Vec<i64> = join
            .nodes
            .nodes
            .iter()
            .filter_map(|node| Some(trace.operators.get(node.operator as usize)?.start_ns))
            .collect();
        node_starts.sort_unstable();
        let memory = manifest.and_then(|manifest| manifest.memory.as_ref());
        Classifier {
            join,
            replay,
            operators,
            contexts: of_events,
            node_starts,
            gradients: memory
                .map(|memory| memory.gradients.iter().map(|block| (block.ptr, block.module)))
                .into_iter()
                .flatten()
                .collect(),
            batch: memory
                .map(|memory| memory.batch.iter().map(|block| block.ptr))
                .into_iter()
                .flatten()
                .collect(),
        }
    }

    /// Adds every block that is alive at the peak to its line and its modules.
    pub(crate) fn add_to(&self, lines: &mut Lines, modules: &mut Modules) -> AtPeak {
        let log = self.join.places.log;
        let mut at_peak = AtPeak::default();
        at_peak.by_kind += Kind::Other.bytes(self.replay.unknown_bytes);
        at_peak.made.before = self.replay.unknown_bytes;
        for block in self.replay.alive.iter().filter_map(|&index| self.replay.blocks.get(index)) {
            let kind = self.kind(block);
            let memory = kind.bytes(block.bytes);
            at_peak.by_kind += memory;
            let born = self.context_of(block.allocated);
            let made_in = born.map(|context| context.phase);
            let mut made = MemoryByAge::default();
            *made.get_mut(made_in) = block.bytes;
            at_peak.made += made;
            let owner = block.module.or_else(|| self.owner_of_gradient(kind, block));
            let has_line = match owner {
                Some(module) => self.add_to_definition(module, memory, made, lines, modules),
                None => false,
            };
            let Some(context) = born else { continue };
            if has_line {
                continue;
            }
            if owner.is_none() {
                let around = context.markers();
                modules.each_around(&log.markers, around, |module| module.memory += memory);
                if let Some(module) = modules.innermost(&log.markers, around) {
                    module.self_memory += memory;
                }
            }
            let stacks = &log.stacks;
            if let Some(line) = lines.innermost(stacks, context.line) {
                if let Some(cost) = lines.cost_mut(line) {
                    cost.self_memory += memory;
                    cost.self_memory_made += made;
                }
                at_peak.activations_with_line += memory.activations;
            }
            lines.each_on(stacks, context.stacks(), usize::MAX, |_, cost| {
                cost.total_memory += memory;
            });
        }
        at_peak
    }

    /// Returns the largest tensors of the iteration, in the order of their allocation.
    pub(crate) fn tensors(&self, lines: &Lines, modules: &Modules) -> Vec<TensorMemory> {
        let start_ns = self.replay.start_ns;
        let since = |event| {
            let after_ns = self.time_of(event)?.saturating_sub(start_ns);
            Some(u64::try_from(after_ns).unwrap_or(0))
        };
        let mut largest: Vec<&Block> =
            self.replay.blocks.iter().filter(|block| block.bytes > 0).collect();
        largest.sort_by_key(|block| std::cmp::Reverse(block.bytes));
        largest.truncate(MAX_TENSORS);
        largest.sort_by_key(|block| block.allocated);
        let tensors = largest.into_iter().map(|block| {
            let kind = self.kind(block);
            TensorMemory {
                bytes: block.bytes,
                allocated_ns: since(block.allocated),
                freed_ns: since(block.freed),
                kind: kind.name(),
                line: self.line_of(block, kind, lines, modules),
            }
        });
        tensors.collect()
    }

    /// The line that created the module which owns a block, else the one that allocated it.
    fn line_of(
        &self,
        block: &Block,
        kind: Kind,
        lines: &Lines,
        modules: &Modules,
    ) -> Option<(FileId, u32)> {
        let owner = block.module.or_else(|| self.owner_of_gradient(kind, block));
        let definition = owner
            .and_then(|module| modules.costs.get(module as usize))
            .and_then(|module| module.definition.first().copied());
        definition.or_else(|| {
            let context = self.context_of(block.allocated)?;
            let line = lines.innermost(&self.join.places.log.stacks, context.line)?;
            let (file, line) = lines.location(line)?;
            Some((FileId(file), line))
        })
    }

    /// Adds memory that a module owns to the lines that created the module.
    fn add_to_definition(
        &self,
        module: u32,
        memory: MemoryByKind,
        made: MemoryByAge,
        lines: &mut Lines,
        modules: &mut Modules,
    ) -> bool {
        modules.each_holding(module, |cost| cost.memory += memory);
        if let Some(cost) = modules.costs.get_mut(module as usize) {
            cost.self_memory += memory;
        }
        let Some(definition) = modules.costs.get(module as usize).map(|cost| &cost.definition)
        else {
            return false;
        };
        let stack: Vec<LineIndex> =
            definition.iter().filter_map(|(file, line)| lines.at(file.0, *line, "")).collect();
        if let Some(cost) = stack.first().and_then(|&line| lines.cost_mut(line)) {
            cost.self_memory += memory;
            cost.self_memory_made += made;
        }
        let has_line = !stack.is_empty();
        lines.each_of(stack, |_, cost| cost.total_memory += memory);
        has_line
    }

    fn owner_of_gradient(&self, kind: Kind, block: &Block) -> Option<u32> {
        (kind == Kind::Gradients)
            .then(|| block.address.and_then(|address| self.gradients.get(&address).copied()))?
            .flatten()
    }

    /// Returns the kind of a block.
    pub(crate) fn kind(&self, block: &Block) -> Kind {
        if let Some(kind) = block.kind {
            return Kind::of_baseline(kind);
        }
        let Some(born) = self.context_of(block.allocated) else {
            return Kind::Other;
        };
        let freed_in = self.context_of(block.freed).map(|context| context.phase);
        let is_batch = block.address.is_some_and(|address| self.batch.contains(&address));
        match born.phase {
            Phase::Data => Kind::Batch,
            Phase::Other if is_batch => Kind::Batch,
            Phase::Forward | Phase::Other => self.kind_if_allocated_in_forward(block),
            Phase::Backward => self.kind_if_allocated_in_backward(block, freed_in),
            Phase::Optimizer if freed_in == Some(Phase::Optimizer) => Kind::Temporaries,
            Phase::Optimizer => Kind::OptimizerState,
        }
    }

    fn kind_if_allocated_in_forward(&self, block: &Block) -> Kind {
        let born = self.time_of(block.allocated).unwrap_or(i64::MIN);
        let died = self.time_of(block.freed).unwrap_or(i64::MAX);
        let next = self.node_starts.partition_point(|&start_ns| start_ns < born);
        match self.node_starts.get(next) {
            Some(&start_ns) if start_ns <= died => Kind::Activations,
            // No backward pass follows, so memory that outlives its operator is held by the forward
            // pass.
            None if !self.lived_within_one_operator(block) => Kind::Activations,
            _ => Kind::Temporaries,
        }
    }

    fn kind_if_allocated_in_backward(&self, block: &Block, freed_in: Option<Phase>) -> Kind {
        let operator = self.operator_of(block.allocated);
        let outlives = freed_in != Some(Phase::Backward);
        let for_grad = block.address.is_some_and(|address| self.gradients.contains_key(&address))
            || operator
                .and_then(|operator| self.join.nodes.of(operator))
                .is_some_and(|n| n.accumulates);
        if for_grad && outlives {
            Kind::Gradients
        } else if self.is_a_second_forward_pass(operator) {
            self.kind_if_allocated_in_forward(block)
        } else {
            Kind::Temporaries
        }
    }

    /// Whether the operator, or one around it within its node, created a node itself.
    fn is_a_second_forward_pass(&self, operator: Option<u32>) -> bool {
        let Some(operator) = operator else { return false };
        let node = self.join.nodes.of(operator).map(|node| node.operator);
        let outwards = |operator: &u32| self.join.parent_of(*operator);
        std::iter::successors(Some(operator), outwards)
            .take_while(|&operator| Some(operator) != node)
            .any(|operator| {
                self.join.nodes.made_a_node.get(operator as usize).copied().unwrap_or(false)
            })
    }

    fn lived_within_one_operator(&self, block: &Block) -> bool {
        let outermost = |event| {
            let outwards = |operator: &u32| self.join.parent_of(*operator);
            std::iter::successors(self.operator_of(event), outwards).last()
        };
        block.freed.is_some()
            && outermost(block.allocated)
                .is_some_and(|operator| Some(operator) == outermost(block.freed))
    }

    fn operator_of(&self, event: Option<usize>) -> Option<u32> {
        self.operators.get(event?).copied().flatten()
    }

    fn context_of(&self, event: Option<usize>) -> Option<Context> {
        self.contexts.get(event?).copied().flatten()
    }

    fn time_of(&self, event: Option<usize>) -> Option<i64> {
        Some(self.replay.events.get(event?)?.time_ns)
    }
}

/// Returns for each event the innermost operator that was running.
fn operators_of(trace: &Trace, replay: &Replay) -> Vec<Option<u32>> {
    let mut order: Vec<(ridgeline_recording::trace::ThreadId, i64, usize)> = replay
        .events
        .iter()
        .enumerate()
        .map(|(index, event)| (event.thread, event.time_ns, index))
        .collect();
    order.sort_unstable();
    let moments = order.iter().map(|&(thread, time_ns, _)| (thread, time_ns));
    let found = innermost_operators(&trace.operators, moments);
    let mut operators = vec![None; replay.events.len()];
    for ((_, _, index), operator) in order.into_iter().zip(found) {
        if let Some(entry) = operators.get_mut(index) {
            *entry = operator.map(|operator| operator as u32);
        }
    }
    operators
}
