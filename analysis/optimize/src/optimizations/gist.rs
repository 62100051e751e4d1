//! Activation compression between the two passes (Gist, Jain et al., ISCA 2018): one bit per output
//! of a ReLU that is read by pooling (section 4.1), other ReLU outputs without their zeros (4.2),
//! and the rest in 16 bits (4.3).
//!
//! The share of zeros is measured; without it, that form is not used. Encoding and decoding take
//! the time to move their bytes.

use std::collections::HashMap;

use super::memory_facts::{self, MEMORY_NAMES};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::stashes::{Kernels, Stash, launch_ns, stashes};
use ridgeline_graph::graph::{Graph, Task, TaskId, TaskKind};
use ridgeline_graph::host_order::HostOrder;
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_profile::Phase;

/// Elements per row of the sparse form. With 256, a byte is enough for the column (section 4.2,
/// "narrow value optimization"). Each row stores the position of its first value in 4 bytes.
const ROW_ELEMENTS: f64 = 256.0;
/// Uncertainty factor of the time of encoding and decoding.
const TIME_FACTOR: f64 = 2.0;

pub(super) struct Gist;

impl Optimization for Gist {
    fn name(&self) -> &'static str {
        "gist"
    }

    fn title(&self) -> &'static str {
        "Activation compression (Gist)"
    }

    fn source(&self) -> &'static str {
        "Gist, Jain et al., ISCA 2018"
    }

    fn is_research(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        memory_facts::needed(graph, facts)?;
        let order = HostOrder::new(graph);
        let zeros = zeros_by_module(facts);
        let stashed = stashes(graph, &order);
        let mut lines = Vec::new();
        let mut counts: HashMap<Form, usize> = HashMap::new();
        let encoder = Encoder {
            launch_ns: launch_ns(graph),
            ns_of_byte: bound.within_factor(1e9 / facts.device.attainable_bandwidth(), TIME_FACTOR),
            kernels: Kernels::new(graph),
            on_gpu: graph.tasks.iter().any(|task| task.kind == TaskKind::Kernel),
            name: graph.name("encoding and decoding"),
        };
        let mut unmeasured = 0_usize;
        for stash in &stashed {
            let share = stash.module.and_then(|module| zeros.get(&module)).copied();
            let Some((form, bytes)) = smallest(graph, stash, share) else { continue };
            if form == Form::Half && is_relu(graph, stash) && share.is_none() {
                unmeasured += 1;
            }
            *counts.entry(form).or_default() += 1;
            lines.extend(graph.memory.blocks.get(stash.block).and_then(|block| block.line));
            encoder.store(graph, &order, stash, form, bytes);
        }
        if counts.is_empty() {
            return Err("no float32 activation is saved for the backward pass".to_owned());
        }
        lines.sort_unstable();
        lines.dedup();
        Ok(Effect { lines, notes: notes(&counts, unmeasured), ..Effect::default() })
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !MEMORY_NAMES.contains(&other.name())
    }
}

/// The storage form of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// The sign of each element, which is all that the gradient of ReLU needs.
    Bits,
    /// The position in its window of each pooling result, in 4 bits.
    Places,
    /// The nonzero elements in 16 bits, with their columns.
    Sparse,
    /// All elements in 16 bits.
    Half,
}

/// Returns the smallest form of an activation with its size in bytes. `zeros` is the measured share
/// of zeros.
fn smallest(graph: &Graph, stash: &Stash, zeros: Option<f64>) -> Option<(Form, f64)> {
    let by = |operator: Option<u32>| graph.operators.get(operator? as usize);
    let is_pool = |operator: Option<&Operator>| {
        operator.and_then(Operator::base_name).is_some_and(|name| name.starts_with("max_pool"))
    };
    if is_pool(by(stash.made_by)) && is_places(graph, stash) {
        return Some((Form::Places, stash.bytes / 16.0));
    }
    if stash.element != Some(ElementType::Float32) {
        return None;
    }
    let elements = stash.bytes / 4.0;
    if is_relu(graph, stash) && is_pool(by(stash.used_by)) {
        return Some((Form::Bits, elements / 8.0));
    }
    let half = (Form::Half, 2.0 * elements);
    let feeds_product = by(stash.used_by)
        .and_then(work)
        .is_some_and(|work| matches!(work.family, Family::Convolution | Family::Gemm));
    let sparse = zeros.filter(|_| is_relu(graph, stash) && feeds_product).map(|zeros| {
        let values = elements * (1.0 - zeros.clamp(0.0, 1.0));
        (Form::Sparse, 3.0 * values + 4.0 * elements / ROW_ELEMENTS)
    });
    Some(sparse.filter(|(_, bytes)| *bytes < half.1).unwrap_or(half))
}

/// Whether an activation has the positions of a pooling: 64-bit integers, twice as large as its
/// results.
fn is_places(graph: &Graph, stash: &Stash) -> bool {
    let blocks = &graph.memory.blocks;
    let call = blocks.get(stash.block).and_then(|block| block.call);
    blocks
        .iter()
        .any(|block| call.is_some() && block.call == call && 2.0 * block.bytes == stash.bytes)
}

fn is_relu(graph: &Graph, stash: &Stash) -> bool {
    let operator = stash.made_by.and_then(|operator| graph.operators.get(operator as usize));
    operator.and_then(Operator::base_name).is_some_and(|name| matches!(name, "relu" | "relu_"))
}

fn zeros_by_module(facts: &Facts<'_>) -> HashMap<u32, f64> {
    let measured = facts.manifest.map(|manifest| manifest.sparsity.as_slice()).unwrap_or_default();
    measured.iter().map(|one| (one.module, one.zeros)).collect()
}

fn notes(counts: &HashMap<Form, usize>, unmeasured: usize) -> Vec<String> {
    let count = |form: Form| counts.get(&form).copied().unwrap_or(0);
    let mut notes = Vec::new();
    let lossless = count(Form::Bits) + count(Form::Places);
    if lossless > 0 {
        notes.push(format!("{lossless} before ReLU or pooling are stored as bits, losslessly"));
    }
    if count(Form::Sparse) > 0 {
        notes.push(format!(
            "{} are stored without zeros, using measured sparsity",
            count(Form::Sparse)
        ));
    }
    if unmeasured > 0 {
        notes.push(format!(
            "sparsity was not measured: {unmeasured} ReLU outputs are stored \
                uncompressed"
        ));
    }
    if count(Form::Half) + count(Form::Sparse) > 0 {
        notes.push(
            "stored activations are rounded to 16 bits, which changes gradients slightly; the \
            paper reports no loss of accuracy"
                .to_owned(),
        );
    }
    notes.push("requires custom kernels: PyTorch has no compressed activation storage".to_owned());
    notes
}

struct Encoder {
    launch_ns: f64,
    ns_of_byte: f64,
    kernels: Kernels,
    on_gpu: bool,
    name: u32,
}

impl Encoder {
    /// Stores an activation in a form of `bytes` bytes until the backward pass needs it.
    fn store(&self, graph: &mut Graph, order: &HostOrder, stash: &Stash, form: Form, bytes: f64) {
        let passes = if form == Form::Sparse { 2.0 } else { 1.0 };
        let encode_ns = (passes * stash.bytes + bytes) * self.ns_of_byte;
        let Some(encoded_by) = self.add(graph, order, stash.used, false, encode_ns) else { return };
        let Some(block) = graph.memory.blocks.get(stash.block).copied() else { return };
        let event = order.event_at(stash.used + 1).saturating_sub(1);
        let stored_at = Some(Moment { task: encoded_by, event });
        let mut compressed = Block { bytes, allocated: stored_at, ..block };
        // The backward kernels of ReLU and pooling read the bits directly. Others need the decoded
        // tensor.
        if !matches!(form, Form::Bits | Form::Places) {
            let decode_ns = (stash.bytes + bytes) * self.ns_of_byte;
            let Some(decoded_by) = self.add(graph, order, stash.needed, true, decode_ns) else {
                return;
            };
            let event = order.event_at(stash.needed).saturating_sub(1);
            let allocated = Some(Moment { task: decoded_by, event });
            let kind = BlockKind::Temporaries;
            graph.memory.add(Block { allocated, kind, ..block });
            compressed.freed = order.beginning(stash.needed);
        }
        graph.memory.add(compressed);
        if let Some(block) = graph.memory.blocks.get_mut(stash.block) {
            block.freed = stored_at;
            block.kind = BlockKind::Temporaries;
        }
    }

    /// Adds a kernel after or before the host task at a position, or a host task on a CPU. Returns
    /// the host task.
    fn add(
        &self,
        graph: &mut Graph,
        order: &HostOrder,
        place: usize,
        is_before: bool,
        duration_ns: f64,
    ) -> Option<TaskId> {
        let at = *order.tasks.get(place)?;
        let like = *graph.task(at)?;
        let phase = if is_before { Phase::Backward } else { Phase::Forward };
        let new = |kind: TaskKind, duration_ns: f64| {
            let task = Task::new(kind, duration_ns, phase);
            Task { line: like.line, module: like.module, name: Some(self.name), ..task }
        };
        let insert = |graph: &mut Graph, at: TaskId, task: Task| {
            if is_before { graph.insert_before(at, task) } else { graph.insert_after(at, task) }
        };
        if !self.on_gpu {
            return Some(insert(graph, at, new(TaskKind::HostOperator, duration_ns)));
        }
        let kernel = if is_before {
            self.kernels.from(order, place)
        } else {
            self.kernels.until(order, place)
        }?;
        let launch = insert(graph, at, new(TaskKind::Launch, self.launch_ns));
        let task = Task { launched_by: Some(launch), ..new(TaskKind::Kernel, duration_ns) };
        let added = insert(graph, kernel, task);
        graph.wait(launch, added, 0.0);
        Some(launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{WEIGHTS, cpu, operator, predicted, refusal, step};
    use crate::optimizations::recompute::Recompute;

    const IMAGE: &[u64] = &[1, 10, 10, 10];

    /// Checks the form of an activation of 1,000 elements that one operator produces and another
    /// one uses.
    #[track_caller]
    fn check(made_by: &str, used_by: &str, zeros: Option<f64>, expected: Option<(Form, f64)>) {
        let mut graph = Graph::default();
        let weight: &[u64] = &[10, 10, 1, 1];
        graph.operators =
            vec![operator(made_by, &[IMAGE], IMAGE), operator(used_by, &[IMAGE, weight], IMAGE)];
        let stash = Stash {
            block: 0,
            bytes: 4000.0,
            element: Some(ElementType::Float32),
            used: 1,
            needed: 2,
            made_by: Some(0),
            used_by: Some(1),
            module: Some(0),
        };
        assert_eq!(smallest(&graph, &stash, zeros), expected);
    }

    #[test]
    fn relu_outputs_read_by_pooling_take_one_bit() {
        check("aten::relu", "aten::max_pool2d", None, Some((Form::Bits, 125.0)));
        check("aten::relu_", "aten::max_pool2d", Some(0.9), Some((Form::Bits, 125.0)));
        check("aten::gelu", "aten::max_pool2d", None, Some((Form::Half, 2000.0)));
    }

    #[test]
    fn zeros_are_omitted_if_they_were_measured() {
        let conv = "aten::conv2d";
        // An eighth of the values, 3 bytes each, and 4 bytes for each row of 256.
        check("aten::relu", conv, Some(0.875), Some((Form::Sparse, 375.0 + 15.625)));
        // Too few zeros, no measurement, or no ReLU.
        check("aten::relu", conv, Some(0.2), Some((Form::Half, 2000.0)));
        check("aten::relu", conv, None, Some((Form::Half, 2000.0)));
        check("aten::gelu", conv, Some(0.9), Some((Form::Half, 2000.0)));
    }

    #[test]
    fn activations_are_stored_in_half_the_bytes() {
        let mut step = step(4, true);
        step.recorded.graph.operators = vec![operator("aten::add", &[IMAGE], IMAGE); 5];
        let prediction = predicted(&step, &[&Gist]).unwrap();
        // While the last layer's activation is encoded: three layers at half, the last one in both
        // forms.
        let stored = 3.0 * (50.0 + 5.0) + (100.0 + 50.0) + 10.0;
        assert_eq!(prediction.peak_bytes.unwrap().value, WEIGHTS + stored);
        assert!(prediction.time_ns.value > prediction.before_ns);
        assert!(prediction.notes.iter().any(|note| note.contains("rounded to 16 bits")));
    }

    #[test]
    fn gist_is_not_combined_with_recomputation() {
        assert!(!Gist.is_compatible_with(&Recompute) && !Recompute.is_compatible_with(&Gist));
    }

    #[test]
    fn activations_without_a_type_are_not_compressed() {
        let refused = refusal(&step(4, false), &cpu(), &Gist);
        assert_eq!(refused, "no float32 activation is saved for the backward pass");
    }
}
