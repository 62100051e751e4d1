//! `gradients-in-validation`: validation that builds autograd graphs without a backward pass
//! (PyTorch, "Performance Tuning Guide: Disable gradient calculation for validation or inference").

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::host_spans::HostSpans;
use crate::rule::Rule;
use crate::validation::{Validation, found_in_recording, found_in_text, has_gradients};
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::fixes::validation::forward_that_goes_back;
use ridgeline_optimize::rewrite::program::Program;

pub(super) struct GradientsInValidation;

impl Rule for GradientsInValidation {
    fn name(&self) -> &'static str {
        "gradients-in-validation"
    }

    fn title(&self) -> &'static str {
        "Gradients enabled during validation"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let cost = |host_spans: &HostSpans| {
            let held =
                host_spans.retained_at_peak_bytes(evidence).filter(|_| !host_spans.is_empty());
            held.filter(|bytes| *bytes > 0.0).map(Cost::bytes)
        };
        // The agent does not see how a model uses gradients internally.
        let needs_gradients = forward_that_goes_back(evidence.program).is_some();
        let wrong = |one: &Validation<'_>| one.observed.with_gradients && !needs_gradients;
        found_in_recording(evidence, wrong, cost, finding)
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        found_in_text(program, |one| has_gradients(program, one), finding)
    }

    fn measurement_decides(&self) -> bool {
        // The few measured iterations may not reach the validation.
        false
    }
}

fn finding(at: SourceLine, cost: Option<Cost>) -> Finding {
    Finding {
        rule: "gradients-in-validation",
        at,
        message: "Validation runs with gradients enabled".to_owned(),
        why: "Every layer saves its activations for a backward pass that never runs. \
            `torch.no_grad()` or `torch.inference_mode()` frees that memory and leaves room for a \
            larger batch."
            .to_owned(),
        cost,
        fix: Some(EditKind::NoGradInValidation),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, lines_in};
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_graph::memory::BlockKind;
    use ridgeline_profile::Phase;
    use ridgeline_recording::observed::Evaluation;

    const PROGRAM: &str = "\
import torch
model = torch.nn.Linear(2, 2)
def evaluate(model, loader):
    total = 0.0
    for x, y in loader:
        out = model(x)  # call
        total += criterion(out, y).item()  # after
    return total
for x, y in train_loader:
    criterion(model(x), y).backward()  # train
evaluate(model, val_loader)
";

    #[track_caller]
    fn check(text: &str, expected: &[u32]) {
        assert_eq!(lines_in(&GradientsInValidation, text), expected, "{text}");
    }

    #[test]
    fn validation_function_without_no_grad() {
        check(PROGRAM, &[6]);
    }

    #[test]
    fn every_way_to_disable_gradients_is_recognized() {
        let with = |old: &str, new: &str| check(&PROGRAM.replace(old, new), &[]);
        with("def evaluate", "@torch.no_grad()\ndef evaluate");
        with(
            "        out = model(x)",
            "        with torch.inference_mode():\n            out = model(x)",
        );
        with(
            "evaluate(model, val_loader)\n",
            "with torch.no_grad():\n    evaluate(model, val_loader)\n",
        );
        with("import torch\n", "import torch\ntorch.set_grad_enabled(False)\n");
        // A library calls it, possibly without gradients.
        with("\nevaluate(model, val_loader)\n", "\n");
        // It runs a backward pass, or is not named after validation.
        with("    return total", "    out.sum().backward()\n    return total");
        let run = PROGRAM.replace("evaluate", "run");
        check(&run.replace("val_loader", "loader"), &[]);
        // Two calls up.
        let above = PROGRAM.replace(
            "\nevaluate(model, val_loader)\n",
            "\n@torch.no_grad()\ndef finish():\n    evaluate(model, val_loader)\nfinish()\n",
        );
        check(&above, &[]);
    }

    #[test]
    fn function_that_receives_validation_data() {
        let run = PROGRAM.replace("evaluate", "run");
        check(&run, &[6]);
        check(&run.replace("(model, val_loader)", "(model, loader=dl[\"val\"])"), &[6]);
        // It is also called with other data.
        check(&format!("{run}run(model, train_loader)\n"), &[]);
        // `val_steps` is a number of steps, on any data.
        let steps = run.replace("x, y in loader", "step in range(loader)");
        check(&steps.replace("val_loader", "val_steps"), &[]);
        check(&format!("{run}run(model, val_loader).backward()\n"), &[]);
    }

    fn recorded(with_gradients: bool) -> Case {
        let mut case = Case::new(PROGRAM);
        let (call, after) = (case.line("call"), case.line("after"));
        case.host(TaskKind::HostOperator, 1e6, Phase::Forward, Some(case.line("train")));
        let mut layer = |line| case.host(TaskKind::HostOperator, 1e6, Phase::Forward, line);
        let layers = [layer(Some(call)), layer(None), layer(None), layer(None)];
        let last = layer(Some(after));
        // The outputs of three layers, the result, and what the last layer needs internally.
        for (layer, bytes) in layers.into_iter().zip([6e6, 6e6, 6e6, 1e6]) {
            case.block(bytes, BlockKind::Temporaries, Some(layer), Some(last));
        }
        case.block(2e6, BlockKind::Temporaries, Some(layers[3]), Some(layers[3]));
        let at = case.location("call");
        case.manifest.observed.evaluations =
            vec![Evaluation { at, calls: 2, with_gradients, ..Evaluation::default() }];
        case
    }

    #[test]
    fn cost_is_the_graph_memory_at_the_peak() {
        let found = recorded(true).finds(&GradientsInValidation, "call");
        // 21 MB with all of them, 12 MB with two at a time.
        assert_eq!(found.cost, Some(Cost::bytes(9e6)));
        assert_eq!(recorded(false).measured(&GradientsInValidation), []);
    }

    const SHARED: &str = "\
import torch
class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(2, 2)
    def step(self, batch):
        out = self.model(batch)  # call
        return criterion(out)  # loss
    def train(self):
        for batch in self.train_loader:
            loss = self.step(batch)  # train
            loss.backward()  # backward
            self.optimizer.step()
    def validate(self):
        total = 0.0
        for batch in self.val_loader:
            loss = self.step(batch)  # validate
            total += loss.item()  # after
        return total
Trainer().train()
Trainer().validate()
";

    /// A training step and a validation step. Each allocates tensors of these sizes in bytes, which
    /// live until its end.
    fn shared(trained: f64, validated: [f64; 3]) -> Case {
        let mut case = Case::new(SHARED);
        let mut task = |kind: TaskKind, mark: &str| {
            let at = case.line(mark);
            case.host(kind, 1e6, Phase::Forward, Some(at))
        };
        let _ = task(TaskKind::HostGap, "train");
        let call_task = task(TaskKind::HostOperator, "call");
        let _ = task(TaskKind::HostOperator, "loss");
        let backward_task = task(TaskKind::HostOperator, "backward");
        let _ = task(TaskKind::HostGap, "validate");
        let layers = [(); 3].map(|()| task(TaskKind::HostOperator, "call"));
        let _ = task(TaskKind::HostOperator, "loss");
        let after = task(TaskKind::HostOperator, "after");
        case.block(trained, BlockKind::Temporaries, Some(call_task), Some(backward_task));
        for (layer, bytes) in layers.into_iter().zip(validated) {
            case.block(bytes, BlockKind::Temporaries, Some(layer), Some(after));
        }
        let at = case.location("validate");
        case.manifest.observed.evaluations =
            vec![Evaluation { at, calls: 1, with_gradients: true, ..Evaluation::default() }; 2];
        case
    }

    #[test]
    fn shared_step_costs_only_its_validation_calls() {
        let found = shared(4e6, [6e6, 6e6, 2e6]).finds(&GradientsInValidation, "validate");
        // 14 MB with all of them, 12 MB with two at a time.
        assert_eq!(found.cost, Some(Cost::bytes(2e6)));
        // The peak is in training.
        let found = shared(40e6, [6e6, 6e6, 2e6]).finds(&GradientsInValidation, "validate");
        assert_eq!(found.cost, None);
    }

    #[test]
    fn shared_step_in_training_is_not_reported() {
        // Generated images that are passed to a discriminator.
        for mark in ["train", "call"] {
            let mut case = shared(4e6, [6e6; 3]);
            let at = case.location(mark);
            for one in &mut case.manifest.observed.evaluations {
                one.at = at;
            }
            assert_eq!(case.measured(&GradientsInValidation), [], "{mark}");
        }
        // The step runs a backward pass itself.
        let mut case = shared(4e6, [6e6; 3]);
        let back = SHARED.replace("return criterion(out)", "return back(out)")
            + "def back(out):\n    out.backward()\n";
        case.file("train.py", &back);
        assert_eq!(case.measured(&GradientsInValidation), []);
    }

    #[test]
    fn a_peak_elsewhere_has_no_cost() {
        let mut case = recorded(true);
        let at = case.line("train");
        let train = case.host(TaskKind::HostOperator, 1e6, Phase::Backward, Some(at));
        case.block(50e6, BlockKind::Activations, Some(train), Some(train));
        assert_eq!(case.finds(&GradientsInValidation, "call").cost, None);
    }

    #[test]
    fn calls_not_named_after_validation_are_skipped() {
        // The generated images in the step of a discriminator.
        let text = PROGRAM
            .replace("evaluate", "step")
            .replace("def step(model, loader)", "def step(m, l)");
        let mut case = recorded(true);
        case.file("train.py", &text);
        assert_eq!(case.measured(&GradientsInValidation), []);
    }

    #[test]
    fn loop_over_validation_data_without_no_grad() {
        let text = "\
import torch
model = torch.nn.Linear(2, 2)
for x, y in train_loader:
    criterion(model(x), y).backward()
for x, y in testloader:
    correct += (model(x).argmax(1) == y).sum().item()
";
        check(text, &[6]);
        let with = |old: &str, new: &str| check(&text.replace(old, new), &[]);
        with("testloader", "loader");
        with("(model(x).argmax(1) == y).sum().item()", "criterion(model(x), y).backward()");
        with("for x, y in testloader", "with evaluating(model):\n  for x, y in testloader");
        // The validation result is used for a backward pass.
        with(".sum().item()\n", ".sum()\ncorrect.backward()\n");
    }

    #[test]
    fn statements_in_evaluation_mode_without_no_grad() {
        let text = "\
import torch
model = torch.nn.Linear(2, 2)
for epoch in range(9):
    model.train()
    for x, y in loader:
        criterion(model(x), y).backward()
    model.eval()
    accuracy = (model(graph.x).argmax(1) == graph.y).float().mean()
    model.train()
    model(graph.x)
";
        check(text, &[8]);
        let with = |old: &str, new: &str| check(&text.replace(old, new), &[]);
        with("    model.eval()\n", "");
        with("    accuracy = (", "    with torch.no_grad():\n      accuracy = (");
        // Another model, as in the step of a discriminator.
        with("    model.eval()\n", "    teacher.eval()\n");
        // After the training, memory does not matter.
        with("    model.eval()\n    acc", "model.eval()\nacc");
        // It contributes to a loss.
        with(".float().mean()\n", ".float().mean()\n    accuracy.backward()\n");
        // In a function that trains.
        let step = "def train(x):\n  for epoch in range(9):\n    model.train()\n    loss = \
                    criterion(model(x))\n    loss.backward()\n    model.eval()\n    model(x)\ntrain(x)\n";
        check(&format!("import torch\nmodel = torch.nn.Linear(2, 2)\n{step}"), &[9]);
    }

    #[test]
    fn inputs_of_a_loss_are_not_validation() {
        // The loss itself, and the evaluation of actions by a policy.
        let text = "\
import torch
model = torch.nn.Linear(2, 2)
def evaluate(x, y):
    return criterion(model(x), y)
for x, y in train_loader:
    loss = evaluate(x, y)
    loss.backward()
";
        check(text, &[]);
        check(&text.replace("loss = evaluate(x, y)", "a, loss = evaluate(x, y)"), &[]);
        check(&text.replace("loss = evaluate(x, y)", "loss = model(x)\n    evaluate(x, y)"), &[4]);
    }

    #[test]
    fn models_that_compute_gradients_need_them_in_validation() {
        let class = "class Net(torch.nn.Module):\n    def forward(self, x):\n        \
                     return torch.autograd.grad(self.net(x), x)[0]\ndef evaluate";
        let text = PROGRAM.replace("def evaluate", class);
        check(&text, &[]);
        let mut case = recorded(true);
        case.file("train.py", &text);
        assert_eq!(case.measured(&GradientsInValidation), []);
    }
}
