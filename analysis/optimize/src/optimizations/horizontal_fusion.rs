//! Trains several copies of a model at once, for example to search for a learning rate: each
//! operator works on all copies (HFTA, Wang et al., MLSys 2021, section 3). Linear layers become
//! batched matrix multiplications, convolutions become grouped, and elementwise operators get more
//! elements. The host does the same work as for one copy.

use super::memory_facts::one_gpu;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::graph::{Graph, Task, TaskKind};
use ridgeline_graph::memory::{Block, BlockKind, Changes};
use ridgeline_graph::simulate;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{Arg, Operator, Tensor};
use ridgeline_profile::Phase;

/// The maximum number of copies. 2, 4, 8 and so on are tried.
const MAX_COPIES: u64 = 64;
/// The minimum throughput gain from doubling the number of copies.
const MIN_GAIN: f64 = 1.05;
/// Usable share of the device's memory. The rest is for the framework.
const USABLE: f64 = 0.95;
/// The minimum share of GPU time spent in operators with known shapes.
const MIN_KNOWN_SHARE: f64 = 0.8;

pub(super) struct HorizontalFusion;

impl Optimization for HorizontalFusion {
    fn name(&self) -> &'static str {
        "horizontal-fusion"
    }

    fn title(&self) -> &'static str {
        "Train several model copies at once (HFTA)"
    }

    fn source(&self) -> &'static str {
        "HFTA, Wang et al., MLSys 2021, section 3"
    }

    fn is_research(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        applies(graph, facts)?;
        let capacity = USABLE * capacity(facts);
        // The host works as for one copy.
        let once = simulate::once(graph, &[]).map_err(|error| error.to_string())?;
        let changes = Changes::new(graph, &once);
        let one = changes.peak(&graph.memory, |block| block.bytes);
        let host_ns = graph.time_of(|task| task.kind.is_host());
        let work = Work::new(graph);
        let mut best = (1, 1.0 / host_ns.max(work.time_ns(|_| 1.0)));
        let mut full = "the GPU has no spare capacity for another copy";
        let mut copies = 2;
        while copies <= MAX_COPIES {
            if changes.peak(&graph.memory, |block| fused_bytes(block, copies)) > capacity {
                full = "another copy does not fit in GPU memory";
                break;
            }
            let ratios = ratios(graph, facts, copies, Bound::Likely);
            let gpu_ns = work.time_ns(|operator| ratio(&ratios, operator, copies));
            let rate = copies as f64 / host_ns.max(gpu_ns);
            if rate < MIN_GAIN * best.1 {
                break;
            }
            best = (copies, rate);
            copies *= 2;
        }
        let (copies, _) = best;
        if copies == 1 {
            return Err(format!(
                "2 copies together are no faster than one after the other: {full}"
            ));
        }
        fuse(graph, facts, copies, bound);
        let each = changes.peak(&graph.memory, |block| block.bytes) / copies as f64;
        let notes = vec![
            format!("{copies} copies at once; {full}"),
            format!("{:.2} GB per copy, {:.2} GB for a single one", each / 1e9, one / 1e9),
            "all copies train on the same batches, as in a learning-rate sweep".to_owned(),
        ];
        Ok(Effect { notes, samples_factor: copies as f64, ..Effect::default() })
    }

    /// It trains more models, and none of them faster.
    fn can_combine(&self) -> bool {
        false
    }
}

fn applies(graph: &Graph, facts: &Facts<'_>) -> Result<(), String> {
    if !facts.is_gpu() {
        return Err("not applicable: CPU run, where one copy leaves no spare capacity".to_owned());
    }
    one_gpu(graph)?;
    let trains = |task: &Task| matches!(task.phase, Phase::Backward | Phase::Optimizer);
    if !graph.tasks.iter().any(trains) {
        return Err("not applicable: the iteration does not train".to_owned());
    }
    if !graph.memory.is_known {
        return Err("the recording has no memory data".to_owned());
    }
    let all_ns = graph.time_of(|task| task.kind == TaskKind::Kernel);
    let known_ns = graph.time_of(|task| {
        task.kind == TaskKind::Kernel
            && graph.operator_of(task).is_some_and(|operator| work(operator).is_some())
    });
    if known_ns < MIN_KNOWN_SHARE * all_ns || all_ns <= 0.0 {
        return Err("the recording has too few operator shapes".to_owned());
    }
    Ok(())
}

fn capacity(facts: &Facts<'_>) -> f64 {
    let recorded = facts.profile.memory.capacity_bytes.map(|bytes| bytes as f64);
    recorded.unwrap_or(facts.device.memory_bytes as f64)
}

/// GPU work of an iteration.
struct Work {
    /// By operator, in nanoseconds: the time that changes with the number of copies.
    operators: Vec<f64>,
    /// The same for kernels without a known operator.
    others_ns: f64,
    /// Host copies of batches, in nanoseconds. The batches are shared.
    shared_ns: f64,
}

impl Work {
    fn new(graph: &Graph) -> Work {
        let mut work =
            Work { operators: vec![0.0; graph.operators.len()], others_ns: 0.0, shared_ns: 0.0 };
        let gpu_tasks = graph.tasks.iter().filter(|task| !task.is_removed && !task.kind.is_host());
        for task in gpu_tasks {
            let operator = task.operator.and_then(|it| work.operators.get_mut(it as usize));
            let sum = match operator {
                _ if !is_fused(task) => &mut work.shared_ns,
                Some(sum) => sum,
                None => &mut work.others_ns,
            };
            *sum += task.duration_ns;
        }
        work
    }

    /// Returns the total time in nanoseconds if each operator's time changes by `ratio`.
    fn time_ns(&self, ratio: impl Fn(Option<u32>) -> f64) -> f64 {
        let operators = (0_u32..).zip(&self.operators);
        let known_ns: f64 = operators.map(|(it, time_ns)| time_ns * ratio(Some(it))).sum();
        known_ns + self.others_ns * ratio(None) + self.shared_ns
    }
}

fn is_fused(task: &Task) -> bool {
    matches!(task.kind, TaskKind::Kernel | TaskKind::DeviceCopy)
}

fn fused_bytes(block: &Block, copies: u64) -> f64 {
    let is_shared = matches!(block.kind, BlockKind::Batch | BlockKind::Other);
    if is_shared { block.bytes } else { block.bytes * copies as f64 }
}

/// Returns for each operator the factor on its time.
fn ratios(graph: &Graph, facts: &Facts<'_>, copies: u64, bound: Bound) -> Vec<f64> {
    let ratio = |operator: &Operator| match fused(operator, copies) {
        Some(fused) => bound.of(facts.modelled_ratio(operator, &fused)).min(copies as f64),
        None => copies as f64,
    };
    graph.operators.iter().map(ratio).collect()
}

fn ratio(ratios: &[f64], operator: Option<u32>, copies: u64) -> f64 {
    let known = operator.and_then(|operator| ratios.get(operator as usize)).copied();
    known.unwrap_or(copies as f64).max(1.0)
}

/// Changes every operator to work on all copies.
fn fuse(graph: &mut Graph, facts: &Facts<'_>, copies: u64, bound: Bound) {
    let ratios = ratios(graph, facts, copies, bound);
    for task in graph.tasks.iter_mut().filter(|task| !task.is_removed && is_fused(task)) {
        task.duration_ns *= ratio(&ratios, task.operator, copies);
    }
    graph.change_blocks(|block| block.bytes = fused_bytes(block, copies));
}

/// Returns the operator that works on all copies (HFTA, table 2).
fn fused(operator: &Operator, copies: u64) -> Option<Operator> {
    let name = operator.base_name()?;
    match work(operator)?.family {
        Family::Gemm => batched(name, operator, copies),
        Family::Convolution => grouped(operator, copies),
        Family::View => None,
        Family::Norm if name.contains("batch_norm") => Some(widened(operator, copies)),
        _ => Some(stacked(operator, copies)),
    }
}

/// Turns a matrix multiplication into a batched one.
fn batched(name: &str, operator: &Operator, copies: u64) -> Option<Operator> {
    let is_batch = |index: usize| operator.shape(index).is_some_and(|shape| shape.len() > 2);
    if matches!(name, "bmm" | "baddbmm") || (name == "matmul" && is_batch(0) && is_batch(1)) {
        return Some(stacked(operator, copies));
    }
    let with_copies = |shape: &[u64]| -> Vec<u64> {
        std::iter::once(copies).chain(shape.iter().copied()).collect()
    };
    let (left, right) = match name {
        "mm" | "matmul" | "_scaled_mm" => (operator.tensor(0)?, operator.tensor(1)?.shape.clone()),
        "addmm" | "_addmm_activation" => (operator.tensor(1)?, operator.tensor(2)?.shape.clone()),
        "linear" => {
            let weight = operator.shape(1)?;
            (operator.tensor(0)?, weight.iter().rev().copied().collect())
        }
        _ => return None,
    };
    let (inner, rows) = left.shape.split_last()?;
    let rows: u64 = rows.iter().product();
    let element = left.element?;
    let tensor = |shape: &[u64]| Tensor::new(element, &with_copies(shape));
    let columns = *right.last()?;
    Some(Operator::new(
        "aten::bmm",
        vec![Arg::Tensor(tensor(&[rows, *inner])), Arg::Tensor(tensor(&right))],
        vec![tensor(&[rows, columns])],
    ))
}

/// Turns a convolution into a grouped one with the channels of all copies.
fn grouped(operator: &Operator, copies: u64) -> Option<Operator> {
    let mut fused = operator.clone();
    let is_backward = operator.name.contains("backward");
    // Inputs of `convolution_backward`: gradient, input, weight. Otherwise: input, weight.
    let weight = if is_backward { 2 } else { 1 };
    for (index, arg) in fused.inputs.iter_mut().enumerate() {
        let Arg::Tensor(tensor) = arg else { continue };
        *tensor = times(tensor, usize::from(index != weight && tensor.shape.len() > 1), copies);
    }
    // Strides and paddings are lists, so the last number is the number of groups.
    let groups = fused.inputs.iter_mut().rev().find(|arg| matches!(arg, Arg::Number(_)))?;
    if let Arg::Number(groups) = groups {
        *groups *= copies as f64;
    }
    for (index, output) in fused.outputs.iter_mut().enumerate() {
        let is_weight = is_backward && index == 1;
        *output = times(output, usize::from(!is_weight && output.shape.len() > 1), copies);
    }
    Some(fused)
}

/// Concatenates the channels of all copies: dimension 1, or the only dimension of a vector.
fn widened(operator: &Operator, copies: u64) -> Operator {
    each_tensor(operator, |tensor| times(tensor, usize::from(tensor.shape.len() > 1), copies))
}

/// Stacks the copies along the first dimension.
fn stacked(operator: &Operator, copies: u64) -> Operator {
    each_tensor(operator, |tensor| times(tensor, 0, copies))
}

fn times(tensor: &Tensor, dimension: usize, copies: u64) -> Tensor {
    let mut tensor = tensor.clone();
    match tensor.shape.get_mut(dimension) {
        Some(size) => *size = size.saturating_mul(copies),
        None => tensor.shape.push(copies),
    }
    tensor.strides = None;
    tensor
}

fn each_tensor(operator: &Operator, change: impl Fn(&Tensor) -> Tensor) -> Operator {
    let mut changed = operator.clone();
    for arg in changed.inputs.iter_mut().chain(changed.named.iter_mut().map(|(_, arg)| arg)) {
        match arg {
            Arg::Tensor(tensor) => *tensor = change(tensor),
            Arg::List(list) => {
                for part in list {
                    if let Arg::Tensor(tensor) = part {
                        *tensor = change(tensor);
                    }
                }
            }
            _ => {}
        }
    }
    changed.outputs.iter_mut().for_each(|output| *output = change(output));
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Step, cpu, gpu, operator, predicted, refusal, step};

    #[track_caller]
    fn check(name: &str, inputs: &[&[u64]], output: &[u64], expected: (&str, &[&[u64]])) {
        let fused = fused(&operator(name, inputs, output), 4).expect("it can be fused");
        let shapes: Vec<&[u64]> =
            fused.input_tensors().map(|tensor| tensor.shape.as_slice()).collect();
        assert_eq!((fused.name.as_str(), shapes.as_slice()), expected);
    }

    #[test]
    fn fused_operators_work_on_all_copies() {
        let bmm: (&str, &[&[u64]]) = ("aten::bmm", &[&[4, 8, 16], &[4, 16, 32]]);
        check("aten::mm", &[&[8, 16], &[16, 32]], &[8, 32], bmm);
        check("aten::linear", &[&[2, 4, 16], &[32, 16]], &[2, 4, 32], bmm);
        check("aten::addmm", &[&[32], &[8, 16], &[16, 32]], &[8, 32], bmm);
        check("aten::relu", &[&[8, 16]], &[8, 16], ("aten::relu", &[&[32, 16]]));
        check(
            "aten::batch_norm",
            &[&[8, 16, 7, 7], &[16]],
            &[8, 16, 7, 7],
            ("aten::batch_norm", &[&[8, 64, 7, 7], &[64]]),
        );
    }

    #[test]
    fn fused_convolutions_are_grouped() {
        let mut conv = operator("aten::conv2d", &[&[8, 16, 7, 7], &[32, 16, 3, 3]], &[8, 32, 7, 7]);
        let list = || Arg::List(vec![Arg::Number(1.0), Arg::Number(1.0)]);
        conv.inputs.extend([Arg::None, list(), list(), list(), Arg::Number(1.0)]);
        let fused = fused(&conv, 4).unwrap();
        assert_eq!(fused.shape(0), Some(&[8, 64, 7, 7][..]));
        assert_eq!(fused.shape(1), Some(&[128, 16, 3, 3][..]));
        assert_eq!(fused.outputs[0].shape, [8, 128, 7, 7]);
        assert_eq!(fused.input(6), &Arg::Number(4.0));
        let flops = |operator: &Operator| work(operator).unwrap().flops;
        assert_eq!(flops(&fused), 4.0 * flops(&conv));
    }

    /// Creates a step whose layers are one matrix multiplication each.
    fn matmuls(size: u64) -> Step {
        let mut step = step(4, true);
        let linear = operator("aten::linear", &[&[size, size], &[size, size]], &[size, size]);
        step.recorded.graph.operators = vec![linear; 5];
        for task in step.recorded.graph.tasks.iter_mut() {
            task.operator.get_or_insert(0);
        }
        step
    }

    #[test]
    fn small_matrix_multiplications_leave_capacity_for_copies() {
        let prediction = predicted(&matmuls(64), &[&HorizontalFusion]).unwrap();
        assert!(prediction.samples_factor >= 8.0, "{}", prediction.samples_factor);
        assert!(prediction.speedup().value > 4.0, "{:?}", prediction.speedup());
        let each = prediction.peak_bytes.unwrap().value / prediction.samples_factor;
        assert!((each - prediction.before_peak_bytes.unwrap()).abs() < 1e-6);
    }

    #[test]
    fn models_that_fill_the_gpu_or_its_memory_are_rejected() {
        let full = refusal(&matmuls(16384), gpu(), &HorizontalFusion);
        assert!(full.starts_with("2 copies together are no faster"), "{full}");
        let mut large = matmuls(64);
        large.profile.memory.capacity_bytes = Some(500);
        let full = refusal(&large, gpu(), &HorizontalFusion);
        assert!(full.ends_with("another copy does not fit in GPU memory"), "{full}");
        assert!(refusal(&matmuls(64), &cpu(), &HorizontalFusion).contains("CPU run"));
        let mut inference = matmuls(64);
        for task in inference.recorded.graph.tasks.iter_mut() {
            task.phase = Phase::Forward;
        }
        let why = refusal(&inference, gpu(), &HorizontalFusion);
        assert_eq!(why, "not applicable: the iteration does not train");
        let no_shapes = refusal(&step(4, true), gpu(), &HorizontalFusion);
        assert_eq!(no_shapes, "the recording has too few operator shapes");
    }
}
