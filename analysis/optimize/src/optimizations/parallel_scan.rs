//! The backward pass of a recurrent chain as a parallel scan (BPPSA, Wang et al., MLSys 2020,
//! section 3). The gradient at each step is that of the next step times a Jacobian, and products of
//! Jacobians are associative. So 2 log n levels of matrix multiplications replace n sequential
//! steps, and each level can fill the GPU (Blelloch, 1990).
//!
//! It is more work: a scan multiplies matrices where a chain multiplies a matrix and a vector.

use std::collections::BTreeMap;

use super::memory_facts::one_gpu;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::graph::{Graph, Task, TaskKind};
use ridgeline_operators::op_cost;
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_operators::range::Range;
use ridgeline_profile::Phase;

/// The minimum number of steps of a chain to gain anything.
const MIN_STEPS: f64 = 8.0;
/// The maximum share of GPU memory for Jacobians.
const USABLE_MEMORY: f64 = 0.5;

pub(super) struct ParallelScan;

impl Optimization for ParallelScan {
    fn name(&self) -> &'static str {
        "parallel-scan"
    }

    fn title(&self) -> &'static str {
        "Parallel scan for recurrent backward passes (BPPSA)"
    }

    fn source(&self) -> &'static str {
        "BPPSA, Wang et al., MLSys 2020, section 3"
    }

    fn is_research(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        applies(graph, facts)?;
        let chains = chains(graph, facts);
        if chains.is_empty() {
            return Err("no recurrent layer was recorded".to_owned());
        }
        let mut effect = Effect::default();
        let mut longest: f64 = 0.0;
        for chain in &chains {
            let bytes = chain.jacobian_bytes();
            if bytes > USABLE_MEMORY * facts.device.memory_bytes as f64 {
                return Err(format!(
                    "the Jacobians of {} steps need {:.0} GB, more than half of the GPU's memory",
                    chain.steps,
                    bytes / 1e9
                ));
            }
            let scan_ns = bound.of(chain.scan_ns(facts));
            let now_ns = graph.time_of(|task| chain.contains(task));
            if scan_ns >= now_ns {
                return Err(format!(
                    "a scan over {} steps needs {:.1} ms of matrix multiplications; the sequential \
                    steps take {:.1} ms",
                    chain.steps,
                    scan_ns / 1e6,
                    now_ns / 1e6
                ));
            }
            let tasks = graph.select(|task| chain.contains(task));
            effect.lines.extend(tasks.iter().filter_map(|id| graph.task(*id)?.line));
            graph.scale(&tasks, scan_ns / now_ns);
            longest = longest.max(chain.steps);
        }
        effect.lines.sort_unstable();
        effect.lines.dedup();
        effect.notes = vec![
            format!(
                "{:.0} levels of matrix multiplications instead of {longest:.0} sequential steps",
                2.0 * longest.log2().ceil()
            ),
            "requires custom code: PyTorch has no such backward pass".to_owned(),
            "peak memory is unknown".to_owned(),
        ];
        effect.memory_is_unknown = true;
        Ok(effect)
    }
}

fn applies(graph: &Graph, facts: &Facts<'_>) -> Result<(), String> {
    if !facts.is_gpu() {
        return Err("not applicable: CPU run, a scan needs many multiprocessors".to_owned());
    }
    one_gpu(graph)
}

/// A chain of dependent steps in the backward pass.
#[derive(Clone, Debug, PartialEq)]
struct Chain {
    /// The tasks of the chain.
    tasks: Tasks,
    steps: f64,
    /// Number of sequences in the batch. Each has its own Jacobians.
    sequences: f64,
    /// Size of the state: twice the hidden size for an LSTM, whose cell is passed on too.
    state: f64,
    /// Number of rows of the gates' weights.
    gates: f64,
    /// Number of columns of the input weights.
    width: f64,
    /// Number of layers and directions, which run one after another.
    layers: f64,
    element: ElementType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tasks {
    /// The tasks of one call of an operator: index into [`Graph::operators`], and the call.
    Operator(u32, Option<u32>),
    /// The tasks of a module's backward pass.
    Module(u32),
}

fn chains(graph: &Graph, facts: &Facts<'_>) -> Vec<Chain> {
    let mut chains: BTreeMap<Tasks, Chain> = BTreeMap::new();
    for task in graph.tasks.iter().filter(|task| !task.is_removed) {
        let Some((number, operator)) = task.operator.zip(graph.operator_of(task)) else { continue };
        let tasks = match operator.base_name() {
            Some("_cudnn_rnn_backward" | "miopen_rnn_backward") => {
                Tasks::Operator(number, task.call)
            }
            Some("lstm_cell" | "gru_cell" | "rnn_tanh_cell" | "rnn_relu_cell")
                if task.phase == Phase::Forward =>
            {
                let Some(module) = task.module else { continue };
                Tasks::Module(module)
            }
            _ => continue,
        };
        if chains.contains_key(&tasks) {
            continue;
        }
        let chain = match tasks {
            Tasks::Operator(..) => layer(operator, tasks),
            Tasks::Module(module) => {
                let calls = facts.profile.modules.get(module as usize).map(|module| module.calls);
                cell(operator, tasks, calls.unwrap_or(0.0))
            }
        };
        if let Some(chain) = chain.filter(|chain| chain.steps >= MIN_STEPS) {
            chains.insert(tasks, chain);
        }
    }
    chains.into_values().collect()
}

/// Reads a layer that one operator computes: `_cudnn_rnn_backward(input, weight, weight_stride0,
/// weight_buf, hx, cx, output, grad_output, grad_hy, grad_cy, mode, hidden_size, proj_size,
/// num_layers, batch_first, …)` in `native_functions.yaml`. Mode 2 is LSTM, 3 is GRU.
fn layer(operator: &Operator, tasks: Tasks) -> Option<Chain> {
    let [first, second, width] = operator.shape(0)? else { return None };
    let batch_first = operator.input(14).flag() == Some(true);
    let (steps, sequences) = if batch_first { (second, first) } else { (first, second) };
    let [layers, _, hidden] = operator.shape(4)? else { return None };
    let hidden = *hidden as f64;
    let mode = operator.input(10).number()?;
    let (gates, states) = match mode as u32 {
        2 => (4.0, 2.0),
        3 => (3.0, 1.0),
        _ => (1.0, 1.0),
    };
    Some(Chain {
        tasks,
        steps: *steps as f64,
        sequences: *sequences as f64,
        state: states * hidden,
        gates: gates * hidden,
        width: *width as f64,
        layers: *layers as f64,
        element: operator.element().unwrap_or(ElementType::Float32),
    })
}

/// Reads a cell that a Python loop calls: `lstm_cell(input, hx, w_ih, w_hh, …)`.
fn cell(operator: &Operator, tasks: Tasks, steps: f64) -> Option<Chain> {
    let [sequences, width] = operator.shape(0)? else { return None };
    let [gates, hidden] = operator.shape(3)? else { return None };
    let is_lstm = operator.base_name() == Some("lstm_cell");
    Some(Chain {
        tasks,
        steps,
        sequences: *sequences as f64,
        state: *hidden as f64 * if is_lstm { 2.0 } else { 1.0 },
        gates: *gates as f64,
        width: *width as f64,
        layers: 1.0,
        element: operator.element().unwrap_or(ElementType::Float32),
    })
}

impl Chain {
    /// Whether a task belongs to the chain's backward pass.
    fn contains(&self, task: &Task) -> bool {
        let belongs_to_chain = match self.tasks {
            Tasks::Operator(operator, call) => task.operator == Some(operator) && task.call == call,
            Tasks::Module(module) => task.module == Some(module) && task.phase == Phase::Backward,
        };
        // The launches of a loop's kernels are replaced with them.
        let is_loop = matches!(self.tasks, Tasks::Module(_));
        belongs_to_chain && (task.kind == TaskKind::Kernel || (is_loop && task.kind.is_host()))
    }

    /// Returns the size of the Jacobians of one layer in bytes: one per step and sequence.
    fn jacobian_bytes(&self) -> f64 {
        self.steps * self.sequences * self.state * self.state * self.element.bytes()
    }

    /// Returns the time of the scan in nanoseconds: computing the Jacobians, the levels of the scan
    /// up and down, and the gradients of weights and input, which are two large independent matrix
    /// multiplications.
    fn scan_ns(&self, facts: &Facts<'_>) -> Range {
        let cost =
            |operator: &Operator| op_cost::cost(operator, facts.device, &facts.options).time_ns;
        let mut sum = cost(&self.compute_jacobians());
        let mut pairs = self.steps / 2.0;
        while pairs >= 0.5 {
            // Up: products of adjacent pairs. Down: the same number again (section 3.2, algorithm
            // 1).
            sum = sum.plus(cost(&self.jacobian_products(pairs.ceil())).times(2.0));
            pairs /= 2.0;
        }
        let positions = (self.steps * self.sequences) as u64;
        let (gates, width) = (self.gates as u64, (self.width + self.gates) as u64);
        sum = sum.plus(cost(&self.matmul(None, gates, positions, width)));
        sum = sum.plus(cost(&self.matmul(None, positions, gates, width)));
        sum.times(self.layers)
    }

    fn compute_jacobians(&self) -> Operator {
        let matrices = [(self.steps * self.sequences) as u64, self.state as u64, self.state as u64];
        let tensor = Tensor::new(self.element, &matrices);
        Operator::new("aten::mul", vec![Arg::Tensor(tensor.clone())], vec![tensor])
    }

    /// Returns the products of Jacobians, one per adjacent pair and sequence.
    fn jacobian_products(&self, pairs: f64) -> Operator {
        let state = self.state as u64;
        self.matmul(Some((pairs * self.sequences) as u64), state, state, state)
    }

    fn matmul(&self, batch: Option<u64>, rows: u64, inner: u64, columns: u64) -> Operator {
        let tensor = |a: u64, b: u64| {
            let shape: Vec<u64> = batch.into_iter().chain([a, b]).collect();
            Tensor::new(self.element, &shape)
        };
        let inputs = vec![Arg::Tensor(tensor(rows, inner)), Arg::Tensor(tensor(inner, columns))];
        let name = if batch.is_some() { "aten::bmm" } else { "aten::mm" };
        Operator::new(name, inputs, vec![tensor(rows, columns)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Step, cpu, gpu, operator, predicted, refusal, step};

    /// Creates a backward pass of one recurrent layer with a number of steps, sequences and hidden
    /// units.
    fn recurrent(steps: u64, sequences: u64, hidden: u64) -> Step {
        let mut step = step(1, true);
        let input: &[u64] = &[steps, sequences, hidden];
        let mut backward =
            operator("aten::_cudnn_rnn_backward", &[input, &[hidden, hidden]], input);
        backward.inputs.extend([Arg::Number(2.0), Arg::None]);
        let state = Tensor::new(ElementType::Float32, &[1, sequences, hidden]);
        backward.inputs.push(Arg::Tensor(state));
        backward.inputs.extend(vec![Arg::None; 5]);
        // Mode tanh, the hidden size, no projection, one layer, sequence first.
        backward.inputs.extend([1.0, hidden as f64, 0.0, 1.0].map(Arg::Number));
        backward.inputs.push(Arg::Bool(false));
        let graph = &mut step.recorded.graph;
        graph.operators = vec![backward];
        let on_gpu = |task: &Task| task.kind == TaskKind::Kernel && task.phase == Phase::Backward;
        let kernel = graph.select(on_gpu)[0];
        for task in graph.tasks.iter_mut() {
            task.operator = None;
        }
        graph.task_mut(kernel).unwrap().operator = Some(0);
        step
    }

    #[test]
    fn a_long_chain_becomes_a_few_levels() {
        // The recorded second is 250 µs per step.
        let prediction = predicted(&recurrent(4000, 1, 20), &[&ParallelScan]).unwrap();
        assert!(prediction.speedup().value > 1.1, "{:?}", prediction.speedup());
        assert_eq!(prediction.peak_bytes, None);
        assert!(
            prediction.notes[0].starts_with("24 levels of matrix multiplications instead of 4000")
        );
    }

    #[test]
    fn scans_that_take_longer_are_rejected() {
        let wide = refusal(&recurrent(100, 64, 4096), gpu(), &ParallelScan);
        assert!(wide.contains("more than half of the GPU's memory"), "{wide}");
        let mut quick = recurrent(100, 64, 512);
        for task in quick.recorded.graph.tasks.iter_mut() {
            task.duration_ns *= 1e-4;
        }
        let quick = refusal(&quick, gpu(), &ParallelScan);
        assert!(quick.starts_with("a scan over 100 steps needs"), "{quick}");
    }

    #[test]
    fn a_scan_requires_a_chain_and_a_gpu() {
        assert!(refusal(&step(2, true), gpu(), &ParallelScan).starts_with("no recurrent layer"));
        assert!(refusal(&recurrent(4, 1, 20), gpu(), &ParallelScan).starts_with("no recurrent"));
        assert!(refusal(&recurrent(100, 1, 20), &cpu(), &ParallelScan).contains("CPU run"));
    }
}
