//! `in-place-candidates`: activation functions that keep both input and output, although the
//! previous layer does not need its output and the function could overwrite it (PyTorch,
//! `inplace=True`; Rota Bulò et al., "In-Place Activated BatchNorm", 2018).
//!
//! In PyTorch the derivatives of `leaky_relu`, `elu`, `celu` and `selu` use their input, but in
//! place their output, so the input is not saved. The derivative of `relu` always uses its output.
//! In place, `hardtanh` and `relu6` save a copy of their input, which gains nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tree_sitter::Node;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::line_sums::Line;
use crate::rule::Rule;
use crate::source_queries::lines_of;
use ridgeline_base::units;
use ridgeline_graph::graph::Graph;
use ridgeline_graph::memory::{Block, Changes, Memory};
use ridgeline_graph::simulate::Schedule;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::fixes::in_place::overwriting;
use ridgeline_optimize::rewrite::fixes::taken_apart::taken_apart;
use ridgeline_profile::{ModuleId, Phase, Profile};

/// The minimum share of peak memory. `MIN_BYTES` is the minimum in bytes.
const MIN_SHARE: f64 = 0.03;
const MIN_BYTES: f64 = 4e6;
/// A layer allocates its output shortly before the activation function runs: the blocks to look through.
const RECENT: usize = 64;
/// Layers whose gradients do not need their output.
const LAYERS: [&str; 13] = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Linear",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "LayerNorm",
    "InstanceNorm2d",
];
/// Activation functions that can overwrite their input.
const ACTIVATIONS: [&str; 5] = ["ReLU", "LeakyReLU", "ELU", "CELU", "SELU"];
/// Their operators, when not in place.
const OPERATORS: [&str; 5] = ["relu", "leaky_relu", "elu", "celu", "selu"];

pub(super) struct InPlaceCandidates;

impl Rule for InPlaceCandidates {
    fn name(&self) -> &'static str {
        "in-place-candidates"
    }

    fn title(&self) -> &'static str {
        "Activation functions that could run in place"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).unwrap_or_default()
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Vec<Finding>> {
    let recorded = &evidence.run.recorded;
    let (graph, schedule) = (&recorded.graph, &recorded.schedule);
    let pairs = pairs(evidence.profile());
    if !graph.memory.is_known || taken_apart(evidence.program).is_some() {
        return None;
    }
    let inputs = inputs_by_block(evidence, &pairs, &method_activations(evidence));
    let changes = Changes::new(graph, schedule);
    let alive = changes.alive_at_peak(&graph.memory);
    let mut changed = graph.memory.clone();
    let mut by_line: BTreeMap<Line, f64> = BTreeMap::new();
    for (block, line) in inputs {
        if !alive.get(block).copied().unwrap_or(false) {
            continue;
        }
        if let Some(block) = changed.blocks.get_mut(block) {
            *by_line.entry(line).or_default() += block.bytes;
            block.bytes = 0.0;
        }
    }
    let whole: f64 = by_line.values().sum();
    let peak = |memory: &Memory| changes.peak(memory, |block| block.bytes);
    let now = peak(&graph.memory);
    let saved = (now - peak(&changed)).max(0.0);
    let found = by_line.into_iter().filter_map(|((file, line), bytes)| {
        let bytes = saved * bytes / whole;
        (bytes >= MIN_BYTES && bytes >= MIN_SHARE * now).then(|| Finding {
            rule: "in-place-candidates",
            at: evidence.place(file, line),
            message: "This activation function could run in place".to_owned(),
            why: format!(
                "Nothing else uses the output of the previous layer. With `inplace=True` the \
                activation overwrites it, which lowers peak memory by {}.",
                units::bytes(bytes)
            ),
            cost: Some(Cost::bytes(bytes).predicted()),
            fix: Some(EditKind::InPlaceActivation),
            ..Finding::default()
        })
    });
    Some(found.collect())
}

/// The blocks that are inputs of calls that could run in place, with the line of the activation function.
fn inputs_by_block(
    evidence: &Evidence<'_>,
    pairs: &HashMap<u32, u32>,
    method_activations: &[MethodActivation],
) -> BTreeMap<usize, Line> {
    let recorded = &evidence.run.recorded;
    let (graph, schedule) = (&recorded.graph, &recorded.schedule);
    let modules = &evidence.profile().modules;
    let outputs = Outputs::new(graph, schedule);
    let mut inputs = BTreeMap::new();
    for (task, start_ns) in graph.tasks.iter().zip(&schedule.start_ns) {
        let Some(operator) = graph.operator_of(task) else { continue };
        let is_activation = task.phase == Phase::Forward
            && operator.base_name().is_some_and(|name| OPERATORS.contains(&name));
        let bytes = operator.tensor(0).and_then(|it| it.bytes());
        let Some(bytes) = bytes.filter(|_| is_activation) else { continue };
        let Some((number, block)) = outputs.newest(*start_ns, bytes) else { continue };
        let in_sequential = task.module.and_then(|it| Some((it, *pairs.get(&it)?)));
        let line = if let Some((activation, layer)) = in_sequential {
            let activation = modules.get(activation as usize);
            let definition = activation.and_then(|module| module.definition.first().copied());
            definition.filter(|_| block.module == Some(layer))
        } else {
            let maker = block.module.and_then(|it| modules.get(it as usize));
            let is_layer = maker.is_some_and(|it| LAYERS.contains(&it.type_name.as_str()));
            let lines = task.line.zip(block.line).filter(|_| is_layer && task.kind.is_host());
            lines.and_then(|(at, layer)| {
                let call = method_activations
                    .iter()
                    .find(|one| one.computed.contains(&at) && one.layers.contains(&layer));
                call.map(|call| call.at)
            })
        };
        if let Some(line) = line {
            inputs.insert(number, line);
        }
    }
    inputs
}

/// The blocks that the forward pass allocates, in order.
struct Outputs<'a> {
    graph: &'a Graph,
    schedule: &'a Schedule,
    /// When each block is allocated, and its index.
    by_time: Vec<(f64, usize)>,
}

impl<'a> Outputs<'a> {
    fn new(graph: &'a Graph, schedule: &'a Schedule) -> Outputs<'a> {
        let blocks = graph.memory.blocks.iter().enumerate();
        let mut by_time: Vec<(f64, u32, usize)> = blocks
            .filter_map(|(number, block)| {
                let moment = block.allocated?;
                let task = graph.tasks.get(moment.task.index())?;
                let start_ns = *schedule.start_ns.get(moment.task.index())?;
                (task.phase == Phase::Forward).then_some((start_ns, moment.event, number))
            })
            .collect();
        by_time.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let by_time = by_time.into_iter().map(|(start_ns, _, number)| (start_ns, number)).collect();
        Outputs { graph, schedule, by_time }
    }

    /// The newest block of this size that is alive when a task starts. A layer may have made others of
    /// the same size: on `relu(norm(conv(x)))` the convolution's output is older than the norm's.
    fn newest(&self, start_ns: f64, bytes: f64) -> Option<(usize, &'a Block)> {
        let end = self.by_time.partition_point(|(allocated_ns, _)| *allocated_ns < start_ns);
        let recent = self.by_time.get(end.saturating_sub(RECENT)..end)?;
        recent.iter().rev().find_map(|(_, number)| {
            let block = self.graph.memory.blocks.get(*number)?;
            let freed_ns =
                block.freed.and_then(|moment| self.schedule.start_ns.get(moment.task.index()));
            let is_alive = freed_ns.is_none_or(|freed_ns| *freed_ns >= start_ns);
            (is_alive && is_output(block, bytes)).then_some((*number, block))
        })
    }
}

/// Whether a block is a layer's output, up to the allocator's rounding, and not its statistics or
/// workspace.
fn is_output(block: &Block, bytes: f64) -> bool {
    block.bytes >= bytes && block.bytes < bytes + 4096.0
}

/// An activation function in a method, applied to the output of a layer that nothing else in the
/// method reads.
struct MethodActivation {
    /// Where it is created, or where the function is called.
    at: Line,
    /// The lines that compute it, and those that call the layer, as they ran.
    computed: BTreeSet<Line>,
    layers: BTreeSet<Line>,
}

fn method_activations(evidence: &Evidence<'_>) -> Vec<MethodActivation> {
    let found = overwriting(evidence.program).into_iter().filter_map(|one| {
        let text = evidence.program.module(one.module);
        let lines = |node: Node<'_>| {
            let (first, last) = lines_of(node);
            (first..=last).filter_map(|line| evidence.recorded_line(one.module, line))
        };
        Some(MethodActivation {
            at: evidence.recorded_line(one.module, text.line(one.creation.start_byte()))?,
            computed: one.calls.iter().flat_map(|(call, _)| lines(*call)).collect(),
            layers: one.calls.iter().flat_map(|(_, layer)| lines(*layer)).collect(),
        })
    });
    found.collect()
}

/// For each activation function in an `nn.Sequential`, the layer directly before it, if that layer
/// does not need its output. Nothing else in an `nn.Sequential` reads it.
fn pairs(profile: &Profile) -> HashMap<u32, u32> {
    let modules = || (0_u32..).zip(&profile.modules);
    let is_sequential = |parent: Option<ModuleId>| {
        let parent = parent.and_then(|parent| profile.modules.get(parent.0 as usize));
        parent.is_some_and(|parent| parent.type_name == "Sequential")
    };
    let mut places: HashMap<(u32, u32), u32> = HashMap::new();
    for (index, module) in modules().filter(|(_, module)| is_sequential(module.parent)) {
        let number = module.path.rsplit('.').next().and_then(|name| name.parse::<u32>().ok());
        if let (Some(number), Some(parent)) = (number, module.parent) {
            places.insert((parent.0, number), index);
        }
    }
    let found = places.iter().filter_map(|((parent, number), index)| {
        let before = *places.get(&(*parent, number.checked_sub(1)?))?;
        let of = |index: u32| Some(profile.modules.get(index as usize)?.type_name.as_str());
        let is_pair = ACTIVATIONS.contains(&of(*index)?) && LAYERS.contains(&of(before)?);
        is_pair.then_some((*index, before))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};

    const TEXT: &str =
        "import torch\n\nnet = Sequential(\n    Conv2d(),\n    LeakyReLU(),\n)\ny = net(x)\n";
    const SHAPE: &[u64] = &[16, 64, 128, 128];
    /// The size of a tensor of that shape.
    const BYTES: f64 = 67_108_864.0;

    /// A convolution and an activation function. The layer's output is freed in the backward pass
    /// if it is `is_retained`, otherwise immediately. The function's own output is alive until the end.
    fn example(outer: &str, layer: &str, function: &str, name: &str, is_retained: bool) -> Case {
        of_text(TEXT, outer, (layer, function, name), is_retained)
    }

    fn of_text(
        text: &str,
        outer: &str,
        (layer, function, name): (&str, &str, &str),
        is_retained: bool,
    ) -> Case {
        let step = operator(name, &[SHAPE, SHAPE]);
        let mut example = Case::new(text)
            .module("", outer, 3)
            .module("0", layer, 4)
            .call(7, Phase::Forward, &operator("conv2d", &[SHAPE, &[64, 64, 3, 3], SHAPE]), 900.0)
            .allocates(BYTES)
            .module("1", function, 5)
            .call(7, Phase::Forward, &step, 100.0)
            .allocates(BYTES);
        if !is_retained {
            example = example.frees(0);
        }
        let loss = operator("sum", &[SHAPE, &[]]);
        let back = operator("leaky_relu_backward", &[SHAPE, SHAPE, SHAPE]);
        example = example.call(7, Phase::Forward, &loss, 10.0).allocates(BYTES).call(
            7,
            Phase::Backward,
            &back,
            100.0,
        );
        if is_retained { example.frees(0) } else { example }
    }

    #[test]
    fn input_alive_until_the_backward_pass_is_the_cost() {
        let found = example("Sequential", "Conv2d", "LeakyReLU", "leaky_relu", true)
            .measured(&InPlaceCandidates);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 5);
        let cost = found[0].cost.expect("a cost");
        assert!(cost.is_predicted && (cost.bytes - BYTES).abs() < 1.0, "{cost:?}");
    }

    #[test]
    fn sequential_whose_layers_are_accessed_is_skipped() {
        let of = ("Conv2d", "LeakyReLU", "leaky_relu");
        let found = |rest: &str| {
            of_text(&format!("{TEXT}{rest}"), "Sequential", of, true)
                .measured(&InPlaceCandidates)
                .len()
        };
        let each = "for layer in net:\n    x = layer(x)\n    found.append(x)\n";
        assert_eq!((found("z = net(y)\n"), found(each)), (1, 0));
    }

    /// A model whose `forward` has these lines, with a convolution on line 9 and an activation
    /// function on line 10. The convolution's output is alive until the backward pass.
    fn in_a_method(forward: &str, name: &str) -> Vec<Finding> {
        let text = format!(
            "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\
             class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
             self.conv, self.act = nn.Conv2d(64, 64, 3), nn.LeakyReLU(0.2)\n    def forward(self, x):\n        \
             {}\nnet = Net()\ny = net(x)\n",
            forward.replace('\n', "\n        ")
        );
        let step = operator(name, &[SHAPE, SHAPE]);
        let mut case = Case::new(&text)
            .module("", "Net", 16)
            .module("conv", "Conv2d", 7)
            .call(9, Phase::Forward, &operator("conv2d", &[SHAPE, &[64, 64, 3, 3], SHAPE]), 900.0)
            .allocates(BYTES);
        case = case
            .module("act", "LeakyReLU", 7)
            .call(10, Phase::Forward, &step, 100.0)
            .allocates(BYTES)
            .call(11, Phase::Forward, &operator("sum", &[SHAPE, &[]]), 10.0)
            .allocates(BYTES)
            .call(11, Phase::Backward, &operator("leaky_relu_backward", &[SHAPE, SHAPE]), 100.0)
            .frees(0);
        case.measured(&InPlaceCandidates)
    }

    #[test]
    fn activation_in_a_method_after_a_layer() {
        let found =
            in_a_method("x = self.conv(x)\nx = F.leaky_relu(x, 0.2)\nreturn x.sum()", "leaky_relu");
        assert_eq!(found.iter().map(|one| one.at.line).collect::<Vec<_>>(), [10]);
        let cost = found[0].cost.expect("a cost");
        assert!(cost.is_predicted && (cost.bytes - BYTES).abs() < 1.0, "{cost:?}");
        // An activation module is reported where it is created.
        let found = in_a_method("x = self.conv(x)\nx = self.act(x)\nreturn x.sum()", "leaky_relu");
        assert_eq!(found.iter().map(|one| one.at.line).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn the_output_of_an_earlier_layer_on_the_same_line_is_not_its_input() {
        let text = "import torch\nfrom torch import nn\n\
             from torch.nn import functional as F\n\
             class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
             self.conv, self.norm = nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64)\n    \
             def forward(self, x):\n        return F.relu(self.norm(self.conv(x)))\n\
             net = Net()\ny = net(x)\n";
        // The norm keeps the convolution's output for its gradient, or its own output stays alive.
        let found = |keeps_output_of_norm: bool| {
            let convolution = operator("conv2d", &[SHAPE, &[64, 64, 3, 3], SHAPE]);
            let back = operator("threshold_backward", &[SHAPE, SHAPE]);
            let (early, late) = if keeps_output_of_norm { (0, 1) } else { (1, 0) };
            Case::new(text)
                .module("", "Net", 10)
                .module("conv", "Conv2d", 7)
                .call(9, Phase::Forward, &convolution, 900.0)
                .allocates(BYTES)
                .module("norm", "BatchNorm2d", 7)
                .call(9, Phase::Forward, &operator("batch_norm", &[SHAPE, SHAPE]), 300.0)
                .allocates(BYTES)
                .module("", "Net", 10)
                .call(9, Phase::Forward, &operator("relu", &[SHAPE, SHAPE]), 100.0)
                .allocates(BYTES)
                .frees(early)
                .call(11, Phase::Forward, &operator("sum", &[SHAPE, &[]]), 10.0)
                .allocates(BYTES)
                .call(11, Phase::Backward, &back, 100.0)
                .frees(late)
                .measured(&InPlaceCandidates)
                .len()
        };
        assert_eq!((found(true), found(false)), (1, 0));
    }

    #[test]
    fn unsafe_or_useless_activation_in_a_method_is_skipped() {
        let none =
            |forward: &str, name: &str| assert_eq!(in_a_method(forward, name), [], "{forward}");
        // Something else reads the layer's output.
        none("y = self.conv(x)\nx = F.leaky_relu(y, 0.2)\nreturn (x + y).sum()", "leaky_relu");
        none("x = self.conv(x)\nx = x + F.leaky_relu(x, 0.2)\nreturn x.sum()", "leaky_relu");
        // A negative slope has no gradient in place, and other functions save a copy of their
        // input.
        none("x = self.conv(x)\nx = F.leaky_relu(x, -0.2)\nreturn x.sum()", "leaky_relu");
        none("x = self.conv(x)\nx = F.silu(x)\nreturn x.sum()", "silu");
        none(
            "x = self.conv(x)\nx = F.leaky_relu(x, 0.2, inplace=True)\nreturn x.sum()",
            "leaky_relu_",
        );
        // The function's output is overwritten later, but its gradient would need it.
        none(
            "x = self.conv(x)\nx = F.leaky_relu(x, 0.2)\nx += x.mean()\nreturn x.sum()",
            "leaky_relu",
        );
    }

    #[test]
    fn freed_in_place_or_shared_inputs_are_skipped() {
        let none = |example: Case| assert!(example.measured(&InPlaceCandidates).is_empty());
        none(example("Sequential", "Conv2d", "LeakyReLU", "leaky_relu", false));
        none(example("Sequential", "Conv2d", "LeakyReLU", "leaky_relu_", true));
        none(example("Net", "Conv2d", "LeakyReLU", "leaky_relu", true));
        none(example("Sequential", "Softmax", "LeakyReLU", "leaky_relu", true));
        none(example("Sequential", "Conv2d", "GELU", "gelu", true));
        none(example("Sequential", "Conv2d", "ReLU6", "hardtanh", true));
    }
}
