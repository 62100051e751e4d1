//! `python-loop`: a `for` over time steps or samples that runs the same small operators again and
//! again, where one call could process all of them.

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::loop_cost::{LoopCost, Replacement, loop_cost};
use crate::loops::{self, loops};
use crate::per_sample_loops;
use crate::rule::Rule;

/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.03;
/// The minimum number of loop iterations; shorter loops are over heads or scales.
const MIN_TRIPS: f64 = 8.0;

pub(super) struct PythonLoop;

impl Rule for PythonLoop {
    fn name(&self) -> &'static str {
        "python-loop"
    }

    fn title(&self) -> &'static str {
        "Python loops over time steps or samples"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let is_included = |one: &loops::Loop<'_>| match one.kind {
            loops::LoopKind::Parameters => false,
            // On a GPU, `hidden-sync` reports `.item()`.
            loops::LoopKind::Elements => !evidence.on_gpu(),
            _ => true,
        };
        let loops = loops(evidence.program).into_iter();
        let found = loops.filter(is_included).filter_map(|one| {
            let own = loop_cost(evidence, &one, MIN_TRIPS, true, Replacement::OneCall)
                .map(|found| (found, advice(one.kind)));
            let (found, advice) = own.or_else(|| {
                let found = per_sample_loops::loop_cost(evidence, &one, MIN_TRIPS)?;
                Some((found, "The model can process all of them in one call, as a batch."))
            })?;
            let is_worth = evidence.share(found.saved_ns) >= MIN_SHARE;
            is_worth.then(|| finding(evidence, &found, advice))
        });
        found.collect()
    }
}

/// Explains how to replace the loop.
fn advice(kind: loops::LoopKind) -> &'static str {
    match kind {
        loops::LoopKind::Cell => {
            "All inputs are available before the loop: `nn.LSTM`, `nn.GRU` or `nn.RNN` processes \
            all time steps in one call, and `num_layers` stacks cells."
        }
        loops::LoopKind::Branching => {
            "The loop iterations are independent, so the same ops can process all of them at once \
            with an extra dimension. Replace `if` by a mask or `torch.where`."
        }
        loops::LoopKind::Elements => {
            "`.item()` reads one element. Compute all of them first and convert them once, as in \
            `logits.argmax(1).tolist()`, and loop over the list."
        }
        loops::LoopKind::Independent | loops::LoopKind::Parameters => {
            "The loop iterations are independent, so the same ops can process all of them at once \
            with an extra dimension."
        }
    }
}

fn finding(evidence: &Evidence<'_>, found: &LoopCost, advice: &str) -> Finding {
    Finding {
        rule: "python-loop",
        at: evidence.place(found.at.0, found.at.1),
        loop_lines: found.places(evidence),
        message: format!(
            "A Python loop runs the same ops {:.0} times; one batched call could replace it",
            found.trips
        ),
        why: format!(
            "Every iteration of the loop pays for Python and for launching its ops. \
            {advice}"
        ),
        cost: Some(Cost::time(found.saved_ns).predicted()),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_profile::Phase;

    const TEXT: &str = "import torch\nfrom torch import nn\n\n\
        def score(x, w):\n\
        \x20   total = 0\n\
        \x20   for t in range(x.shape[1]):\n\
        \x20       row = x[:, t]\n\
        \x20       total = total + (row * w).sum()\n\
        \x20   return total\n\n\
        score(1, 2)\n";

    /// A loop with this many iterations, with the same shapes in each if `same`, and other work.
    fn example(trips: u32, same: bool, other_us: f64) -> Case {
        let mut example = Case::new(TEXT)
            .line_calls(5, 1.0)
            .line_calls(6, f64::from(trips) + 1.0)
            .line_calls(7, f64::from(trips))
            .line_calls(8, f64::from(trips))
            .call(9, Phase::Forward, &operator("add", &[&[1], &[1], &[1]]), other_us);
        for trip in 0..trips {
            let rows = if same { 32 } else { u64::from(trip) + 2 };
            let shape: &[u64] = &[rows, 16];
            example = example
                .gap(8, Phase::Forward, 2.0)
                .call(8, Phase::Forward, &operator("mul", &[shape, shape, shape]), 5.0)
                .call(8, Phase::Forward, &operator("sum", &[shape, &[]]), 5.0);
        }
        example
    }

    #[test]
    fn loop_over_time_steps() {
        let found = example(64, true, 10.0).measured(&PythonLoop);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 6);
        let cost = found[0].cost.expect("a cost");
        // Of 64 iterations of 12 µs one remains, and 0.82 µs of memory traffic for each of the
        // others.
        assert!(cost.is_predicted && (cost.time_ns - 63.0 * 11.18e3).abs() < 1e3, "{cost:?}");
    }

    #[test]
    fn elements_that_are_read_one_by_one() {
        let text = "import torch\n\ndef count(x, table):\n    n = len(x)\n    \
            for i in range(n):\n        table[x[i].argmax().item()] += 1\n    return table\n\ncount(1, 2)\n";
        let case = |trips: u32| {
            let mut case = Case::new(text)
                .line_calls(4, 1.0)
                .line_calls(5, f64::from(trips) + 1.0)
                .line_calls(6, f64::from(trips))
                .call(9, Phase::Forward, &operator("mm", &[&[512, 512], &[512, 512]]), 200.0);
            for _ in 0..trips {
                case = case
                    .gap(6, Phase::Other, 2.0)
                    .call(6, Phase::Other, &operator("argmax", &[&[10], &[]]), 3.0)
                    .call(6, Phase::Other, &operator("item", &[&[], &[]]), 1.0);
            }
            case
        };
        let found = case(64).measured(&PythonLoop);
        assert_eq!((found.len(), found[0].at.line), (1, 5));
        assert!(found[0].why.contains(".tolist()"), "{}", found[0].why);
        assert_eq!(case(4).measured(&PythonLoop).len(), 0);
    }

    #[test]
    fn comprehension_on_one_line() {
        let text = "import torch\n\ndef f(x):\n    w = x.mean()\n    \
            y = torch.stack([(x[:, t] * w).relu() for t in range(64)])\n    return y\n\nf(1)\n";
        let found = |trips: u32| {
            let shape: &[u64] = &[32, 16];
            let mut case = Case::new(text).line_calls(4, 1.0).line_calls(5, 1.0);
            for _ in 0..trips {
                case = case
                    .gap(5, Phase::Forward, 2.0)
                    .call(5, Phase::Forward, &operator("mul", &[shape, shape, shape]), 5.0)
                    .call(5, Phase::Forward, &operator("relu", &[shape, shape]), 5.0);
            }
            case.call(5, Phase::Forward, &operator("stack", &[shape, shape]), 9.0)
                .measured(&PythonLoop)
        };
        let many = found(64);
        assert_eq!((many.len(), many[0].at.line), (1, 5));
        assert!(many[0].message.contains("64 times"), "{}", many[0].message);
        assert_eq!(found(4), []);
    }

    #[test]
    fn probed_layer_determines_the_saving_of_a_cell() {
        let text = "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    \
            def __init__(self):\n        self.cell = nn.GRUCell(16, 16)\n    \
            def forward(self, x, h):\n        y = x.mean()\n        \
            for t in range(64):\n            h = self.cell(x[:, t], h)\n        return h\n\nNet()(1, 2)\n";
        let shape: &[u64] = &[32, 16];
        let weights: &[u64] = &[48, 16];
        let cell = operator("gru_cell", &[shape, shape, weights, weights, shape]);
        let case = Case::new(text).line_calls(8, 1.0).line_calls(9, 65.0).line_calls(10, 64.0);
        let mut case = case.module("cell", "GRUCell", 6);
        for _ in 0..64 {
            case = case.gap(10, Phase::Forward, 10.0).call(10, Phase::Forward, &cell, 90.0);
        }
        let cost = |case: &Case| case.measured(&PythonLoop).first().and_then(|one| one.cost);
        case.probes.cells = [(0, 0.25)].into();
        let saved = cost(&case).expect("a cost").time_ns;
        assert!((saved - 0.75 * 64.0 * 100e3).abs() < 1e3, "{saved}");
        // The layer takes as long as the cell.
        case.probes.cells = [(0, 0.99)].into();
        assert_eq!(cost(&case), None);
    }

    #[test]
    fn few_iterations_varying_shapes_and_small_costs_are_not_reported() {
        assert!(example(4, true, 10.0).measured(&PythonLoop).is_empty());
        assert!(example(64, false, 10.0).measured(&PythonLoop).is_empty());
        assert!(example(64, true, 1e6).measured(&PythonLoop).is_empty());
    }

    #[test]
    fn branching_loop_must_run_the_same_ops_mostly() {
        let text = TEXT.replace("        row = x[:, t]\n", "        if w[t] > 0:\n");
        let text = text.replace("(row * w)", "    total = total + (x[:, t] * w)");
        let text = text.replace("        total = total +     total", "            total");
        let found = |taken: u32| {
            let mut case =
                Case::new(&text).line_calls(5, 1.0).line_calls(6, 65.0).line_calls(7, 64.0);
            let shape: &[u64] = &[32, 16];
            for trip in 0..64 {
                case = case.gap(7, Phase::Forward, 2.0);
                if trip < taken {
                    case = case
                        .call(8, Phase::Forward, &operator("mul", &[shape, shape, shape]), 5.0)
                        .call(8, Phase::Forward, &operator("sum", &[shape, &[]]), 5.0);
                }
            }
            case.measured(&PythonLoop)
        };
        let all = found(64);
        assert_eq!((all.len(), all[0].at.line), (1, 6));
        assert!(all[0].why.contains("torch.where"), "{}", all[0].why);
        // Half of the samples need no work, but a mask would compute them anyway.
        assert_eq!(found(32), []);
    }

    const SAMPLES: &str = "\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        self.lin = nn.Linear(16, 16)
    def forward(self, x):  # def
        return self.lin(x).relu()  # forward
net = Net()
for batch, target in loader:
    outs = []  # before
    for x in batch:  # loop
        outs.append(net(x.unsqueeze(0)))  # call
    loss = torch.cat(outs).sum()  # loss
    loss.backward()
    optimizer.step()
";

    /// 16 loop iterations, the first `alike` of which run the model on the same shapes.
    fn samples(text: &str, alike: u32) -> Case {
        let mut case = Case::new(text).module("", "Net", 8).module("lin", "Linear", 5);
        let [def, forward, before, at, call, loss] =
            ["def", "forward", "before", "loop", "call", "loss"].map(|mark| case.line(mark).1);
        case.ran("forward", 16.0).self_time.forward = 1e6;
        for (mark, calls) in [("before", 1.0), ("loop", 17.0), ("call", 16.0)] {
            case.ran(mark, calls);
        }
        let time = case.profile.lines[0].iter_mut().find(|one| one.line == call);
        time.expect("the call").total_time.forward = 1e6;
        case = case.gap(before, Phase::Forward, 1.0);
        for trip in 0..16 {
            let rows = if trip < alike { 1 } else { u64::from(trip) };
            let shape: &[u64] = &[rows, 16];
            case = case
                .gap(at, Phase::Forward, 1.0)
                .gap(call, Phase::Forward, 2.0)
                .gap(def, Phase::Forward, 0.1)
                .call(forward, Phase::Forward, &operator("linear", &[shape, shape]), 5.0)
                .call(forward, Phase::Forward, &operator("relu", &[shape, shape]), 5.0);
        }
        case = case.gap(loss, Phase::Forward, 1.0);
        let shape: &[u64] = &[1, 16];
        let back = operator("mul", &[shape, shape, shape]);
        let case = case.calls(16, call, Phase::Backward, &back, 0.1);
        case.calls(16, forward, Phase::Backward, &back, 5.0).gap(loss, Phase::Other, 1.0)
    }

    #[test]
    fn model_called_for_each_sample() {
        let found = samples(SAMPLES, 16).finds(&PythonLoop, "loop");
        assert!(found.why.contains("as a batch"), "{}", found.why);
        let cost = found.cost.expect("a cost");
        // Of 16 iterations of 13 µs, and 5 µs in the backward pass, one remains.
        assert!((200e3..=16.0 * 18e3).contains(&cost.time_ns), "{cost:?}");
        for (from, to) in [
            ("net(x.unsqueeze(0))", "net(x[None])"),
            ("net(x.unsqueeze(0))", "net(x.to(device).unsqueeze(0).float())"),
            ("outs.append(net(x.unsqueeze(0)))", "outs.append(criterion(net(x[None]), target))"),
            ("for x in batch", "for i, x in enumerate(batch)"),
        ] {
            samples(&SAMPLES.replace(from, to), 16).finds(&PythonLoop, "loop");
        }
        let by_place = SAMPLES.replace("for x in batch", "for i in range(len(batch))");
        samples(&by_place.replace("x.unsqueeze(0)", "batch[i:i + 1]"), 16)
            .finds(&PythonLoop, "loop");
        samples(&by_place.replace("x.unsqueeze(0)", "batch[:, i]"), 16).finds(&PythonLoop, "loop");
    }

    #[test]
    fn model_calls_without_batch_samples_are_skipped() {
        for (from, to) in [
            // The next token, a state, a gradient.
            ("outs.append(net(x.unsqueeze(0)))", "h = net(torch.cat([h, x[None]]))"),
            ("outs.append(net(x.unsqueeze(0)))", "outs.append(net(x[None], h)); h = outs"),
            ("outs.append(net(x.unsqueeze(0)))", "net(x[None]).sum().backward()"),
            (
                "outs.append(net(x.unsqueeze(0)))",
                "outs.append(torch.autograd.grad(net(x[None]), w))",
            ),
            // Views, crops, or tasks that consist of several samples.
            ("x.unsqueeze(0)", "x"),
            // Another object acts on the output.
            ("outs.append(net(x.unsqueeze(0)))", "outs.append(env.step(net(x[None])))"),
            ("outs.append(net(x.unsqueeze(0)))", "outs.append(score(net(x[None])))"),
            // Data that arrives one by one.
            ("for x in batch", "for x in valid_set"),
            ("for x in batch", "for x in read(batch)"),
            // The model keeps state.
            ("return self.lin(x)", "self.h = self.lin(x); return self.h"),
            ("return self.lin(x)", "self.seen.append(x); return self.lin(x)"),
            ("class Net(nn.Module)", "class Net(spiking.Neuron)"),
            // The result depends on the index or on values of the sample.
            (
                "x in batch:  # loop\n        outs.append(net(x.unsqueeze(0)))",
                "i, x in enumerate(batch):  # loop\n        outs.append(net(x[None], i))",
            ),
            ("return self.lin(x)", "x = x if x.sum() > 0 else -x; return self.lin(x)"),
            // It combines samples.
            ("return self.lin(x)", "return self.lin(x - x.mean(0))"),
            // One token after the other.
            ("    for x in batch", "    while not done(outs):\n     for x in batch"),
        ] {
            let text = SAMPLES.replace(from, to) + "def score(x):\n    return x\n";
            assert_eq!(samples(&text, 16).measured(&PythonLoop), [], "{to}");
        }
    }

    #[test]
    fn differing_or_dependent_samples_are_skipped() {
        // Images of different sizes.
        assert_eq!(samples(SAMPLES, 4).measured(&PythonLoop), []);
        // Batch statistics, and a neuron of a library that keeps its potential.
        for kind in ["BatchNorm1d", "Leaky"] {
            let mut case = samples(SAMPLES, 16);
            case.profile.modules[1].type_name = kind.into();
            assert_eq!(case.measured(&PythonLoop), [], "{kind}");
        }
        // The model is also called elsewhere, so the part of the loop cannot be separated.
        let case = samples(SAMPLES, 16);
        let forward = case.line("forward").1;
        let shape: &[u64] = &[16, 16];
        let both = case.call(forward, Phase::Forward, &operator("relu", &[shape, shape]), 5.0);
        assert_eq!(both.measured(&PythonLoop), []);
    }

    #[test]
    fn loops_that_call_program_functions_are_skipped() {
        let mut calls_others = example(64, true, 10.0);
        for cost in &mut calls_others.profile.lines[0] {
            cost.self_time.forward = 1e5;
            cost.total_time.forward = 1e6;
        }
        assert!(calls_others.measured(&PythonLoop).is_empty());
    }
}
