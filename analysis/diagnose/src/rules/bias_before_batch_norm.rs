//! `bias-before-batch-norm`: a bias that batch norm removes again, because it subtracts the mean of
//! each channel (Ioffe and Szegedy, 2015, section 3.2; PyTorch, "Performance Tuning Guide").

use std::collections::HashSet;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::line_sums::Line;
use crate::rule::Rule;
use crate::source_queries::place;
use ridgeline_graph::graph::Task;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::fixes::redundant_bias::redundant_biases;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_profile::Phase;

/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.005;

pub(super) struct BiasBeforeBatchNorm;

impl Rule for BiasBeforeBatchNorm {
    fn name(&self) -> &'static str {
        "bias-before-batch-norm"
    }

    fn title(&self) -> &'static str {
        "Redundant bias before batch norm"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let sites = sites(evidence.program);
        let found = sites.into_iter().filter_map(|(module, line)| {
            let line = evidence.recorded_line(module, line)?;
            let cost = cost(evidence, line)?;
            let place = evidence.place(line.0, line.1);
            (evidence.share(cost.time_ns) >= MIN_SHARE)
                .then(|| Finding { cost: Some(cost), ..finding(place) })
        });
        found.collect()
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        let sites = sites(program).into_iter();
        sites.map(|(module, line)| finding(place(program, module, line))).collect()
    }
}

fn finding(at: SourceLine) -> Finding {
    Finding {
        rule: "bias-before-batch-norm",
        at,
        message: "The bias of this layer is redundant before batch norm".to_owned(),
        why: "Batch norm subtracts the mean of each channel, which removes any bias. With \
            `bias=False` the model computes the same result without the bias and its gradient. \
            Existing checkpoints still contain the biases: load them with `strict=False`, and \
            subtract each bias from the running mean of its batch norm."
            .to_owned(),
        fix: Some(EditKind::WithoutBias),
        ..Finding::default()
    }
}

/// Where layers with such a bias are created, as module index and line.
fn sites(program: &Program<'_>) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    for (module, made) in redundant_biases(program) {
        let site = (module, program.module(module).line(made.start_byte()));
        if !found.contains(&site) {
            found.push(site);
        }
    }
    found.sort_unstable();
    found
}

/// The time to add the bias and to compute its gradient: on a GPU, of their kernels. On a CPU the
/// addition is part of the matrix multiplication and takes no measurable time. The gradient is an
/// operator of its own after a linear layer. After a convolution it is part of the backward
/// operator, which reads the output gradient once more for it.
fn cost(evidence: &Evidence<'_>, line: Line) -> Option<Cost> {
    let profile = evidence.profile();
    let modules: HashSet<u32> = (0_u32..)
        .zip(&profile.modules)
        .filter(|(_, module)| module.definition.contains(&line))
        .filter(|(_, module)| module.type_name.contains("Conv") || module.type_name == "Linear")
        .map(|(index, _)| index)
        .collect();
    if is_in_evaluation(evidence, &modules) {
        return None;
    }
    let graph = evidence.graph();
    let mut cost = Cost::default();
    let mut call = None;
    for task in graph.tasks.iter().filter(|task| !task.is_removed) {
        if !task.module.is_some_and(|module| modules.contains(&module)) {
            continue;
        }
        let Some(name) = graph.operator_of(task).and_then(|operator| operator.base_name()) else {
            continue;
        };
        let backward = task.phase == Phase::Backward;
        if evidence.on_gpu() {
            if is_bias_kernel(graph.name_of(task), backward) && !task.kind.is_host() {
                cost.time_ns += task.duration_ns;
            }
        } else if backward && name == "sum" {
            cost.time_ns += task.duration_ns;
        } else if backward && name == "convolution_backward" && task.call != call {
            call = task.call;
            cost.time_ns += gradient_read_ns(evidence, task);
            cost.is_predicted = true;
        }
    }
    (cost.time_ns > 0.0).then_some(cost)
}

/// Whether the batch norms next to these layers all ran with their running statistics, which do not
/// remove a bias (`torch.nn.BatchNorm2d`, evaluation mode).
fn is_in_evaluation(evidence: &Evidence<'_>, layers: &HashSet<u32>) -> bool {
    let modules = &evidence.profile().modules;
    let parent = |at: u32| modules.get(at as usize).and_then(|module| module.parent);
    let parents: HashSet<_> = layers.iter().map(|layer| parent(*layer)).collect();
    let graph = evidence.graph();
    let neighbors = graph.tasks.iter().filter(|task| {
        let module = task.module.and_then(|at| Some((at, modules.get(at as usize)?)));
        module
            .is_some_and(|(at, it)| it.type_name.contains("Norm") && parents.contains(&parent(at)))
    });
    // `batch_norm(input, weight, bias, running_mean, running_var, training, …)`
    let mut training = neighbors.filter_map(|task| {
        let operator = graph.operator_of(task)?;
        (operator.base_name() == Some("batch_norm")).then(|| operator.input(5).flag()).flatten()
    });
    training.next().is_some_and(|first| !first && training.all(|one| !one))
}

/// Whether a kernel adds a bias or sums up its gradient.
fn is_bias_kernel(kernel: &str, backward: bool) -> bool {
    match backward {
        true => kernel.contains("reduce_kernel"),
        false => kernel.contains("elementwise"),
    }
}

/// The time to read the output gradient of a convolution, in nanoseconds.
fn gradient_read_ns(evidence: &Evidence<'_>, task: &Task) -> f64 {
    let operator = evidence.graph().operator_of(task);
    let bytes = operator.and_then(|operator| operator.tensor(0)?.bytes()).unwrap_or(0.0);
    let bandwidth = evidence.device().map_or(0.0, |device| device.bandwidth);
    if bandwidth > 0.0 { 1e9 * bytes / bandwidth } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, lines_in, operator};
    use ridgeline_operators::operator::Arg;

    const SEQUENTIAL: &str = "from torch import nn\n\n\
        net = nn.Sequential(\n\
        \x20   nn.Conv2d(3, 8, 3),\n\
        \x20   nn.BatchNorm2d(8),\n\
        \x20   nn.ReLU(),\n\
        \x20   nn.Conv2d(8, 8, 3, bias=False),\n\
        \x20   nn.BatchNorm2d(8),\n\
        \x20   nn.Conv2d(8, 8, 3, bias=True),\n\
        \x20   nn.BatchNorm2d(8),\n\
        \x20   nn.Conv2d(8, 8, 3),\n\
        \x20   nn.GroupNorm(4, 8),\n\
        \x20   nn.Conv2d(8, 8, 3, bias=use_bias),\n\
        \x20   nn.BatchNorm2d(8),\n\
        \x20   nn.Conv2d(*sizes),\n\
        \x20   nn.BatchNorm2d(8),\n\
        )\n";

    #[test]
    fn adjacent_layers_in_a_sequential() {
        assert_eq!(lines_in(&BiasBeforeBatchNorm, SEQUENTIAL), [4, 9]);
    }

    #[test]
    fn layer_lists_count_only_as_sequential() {
        let text = "import torch.nn as nn\n\
            def block(a, b):\n\
            \x20   layers = [nn.Linear(a, b), nn.BatchNorm1d(b)]\n\
            \x20   layers += [nn.Linear(b, b), nn.BatchNorm1d(length)]\n\
            \x20   other = [nn.Linear(a, b), nn.BatchNorm1d(b)]\n\
            \x20   return nn.Sequential(*layers), nn.ModuleList(other)\n\
            block(1, 2)\n";
        assert_eq!(lines_in(&BiasBeforeBatchNorm, text), [3]);
    }

    const FORWARD: &str = "import torch\nfrom torch import nn\n\n\
        class Net(nn.Module):\n\
        \x20   def __init__(self, norm):\n\
        \x20       super().__init__()\n\
        \x20       self.conv1 = nn.Conv2d(3, 8, 3)\n\
        \x20       self.bn1 = nn.BatchNorm2d(8)\n\
        \x20       self.conv2 = nn.Conv2d(8, 8, 3)\n\
        \x20       self.bn2 = nn.BatchNorm2d(8)\n\
        \x20       self.conv3 = nn.Conv2d(8, 8, 3)\n\
        \x20       self.bn3 = nn.BatchNorm2d(8)\n\
        \x20       self.conv4 = nn.Conv2d(8, 8, 3)\n\
        \x20       self.bn4 = nn.BatchNorm2d(8)\n\
        \x20   def forward(self, x):\n\
        \x20       x = torch.relu(self.bn1(self.conv1(x)))\n\
        \x20       x = self.conv2(x)\n\
        \x20       x = self.bn2(x)\n\
        \x20       y = self.conv3(x)\n\
        \x20       x = self.bn3(y)\n\
        \x20       y = self.conv4(x)\n\
        \x20       return self.bn4(x) + y\n\n\
        Net(None)(1)\n";

    #[test]
    fn layers_chained_in_forward() {
        // Skipped are an output with another use (`y`), and one that is not passed to the norm.
        assert_eq!(lines_in(&BiasBeforeBatchNorm, FORWARD), [7, 9]);
    }

    #[test]
    fn layer_used_twice_is_skipped() {
        let text = "from torch import nn\n\n\
            class Net(nn.Module):\n\
            \x20   def __init__(self):\n\
            \x20       self.conv = nn.Conv2d(3, 3, 3)\n\
            \x20       self.bn = nn.BatchNorm2d(3)\n\
            \x20   def forward(self, x):\n\
            \x20       return self.bn(self.conv(x)) + self.conv(x)\n\n\
            Net()(1)\n";
        assert!(lines_in(&BiasBeforeBatchNorm, text).is_empty());
    }

    const SHAPE: &[u64] = &[16, 8, 64, 64];

    #[test]
    fn cost_on_a_gpu_is_the_bias_kernels() {
        let conv = operator("conv2d", &[SHAPE, &[8, 8, 3, 3], SHAPE]);
        let back = operator("convolution_backward", &[SHAPE, SHAPE, &[8, 8, 3, 3], SHAPE]);
        let example = Case::new(SEQUENTIAL)
            .on_gpu()
            .module("0", "Conv2d", 4)
            .call(3, Phase::Forward, &conv, 500.0)
            .kernel("void at::native::elementwise_kernel<…>", 30.0)
            .call(3, Phase::Backward, &back, 900.0)
            .kernel("void at::native::reduce_kernel<…>", 40.0)
            .module("8", "Conv2d", 17)
            .call(3, Phase::Forward, &conv, 500.0)
            .kernel("void at::native::elementwise_kernel<…>", 30.0);
        let found = example.measured(&BiasBeforeBatchNorm);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at.line, found[0].cost), (4, Some(Cost::time(70e3))));
    }

    #[test]
    fn norm_in_evaluation_mode_does_not_remove_the_bias() {
        let conv = operator("conv2d", &[SHAPE, &[8, 8, 3, 3], SHAPE]);
        let example = |training: bool| {
            let mut norm = operator("batch_norm", &[SHAPE, &[8], &[8], &[8], &[8], SHAPE]);
            norm.inputs.push(Arg::Bool(training));
            let case = Case::new(SEQUENTIAL).on_gpu().module("0", "Conv2d", 4);
            let case =
                case.call(3, Phase::Forward, &conv, 500.0).kernel("elementwise_kernel", 90.0);
            let case = case.module("1", "BatchNorm2d", 5).call(3, Phase::Forward, &norm, 100.0);
            case.measured(&BiasBeforeBatchNorm)
        };
        assert_eq!(example(true).len(), 1);
        assert!(example(false).is_empty());
    }

    #[test]
    fn cost_on_a_cpu_is_the_gradient_sum_of_a_linear_layer() {
        let text =
            "from torch import nn\n\nnet = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\n";
        let example = |sum_us: f64| {
            Case::new(text)
                .module("0", "Linear", 3)
                .call(3, Phase::Forward, &operator("linear", &[&[64, 8], &[4, 8], &[64, 4]]), 500.0)
                .call(3, Phase::Backward, &operator("sum", &[&[64, 4], &[4]]), sum_us)
        };
        let found = example(50.0).measured(&BiasBeforeBatchNorm);
        assert_eq!(found[0].cost, Some(Cost::time(50e3)));
        assert!(example(1.0).measured(&BiasBeforeBatchNorm).is_empty());
    }
}
