//! `train-mode-in-validation`: validation of a model in training mode: dropout is active, and batch
//! norm updates its statistics with data that it should not see (PyTorch, "nn.Module.eval").

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::host_spans::HostSpans;
use crate::rule::Rule;
use crate::source_queries::is_validation_name;
use crate::validation::{Validation, found_in_recording, found_in_text, stays_in_training_mode};
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::mentions;

pub(super) struct TrainModeInValidation;

impl Rule for TrainModeInValidation {
    fn name(&self) -> &'static str {
        "train-mode-in-validation"
    }

    fn title(&self) -> &'static str {
        "Model in training mode during validation"
    }

    fn affects_correctness(&self) -> bool {
        true
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let wrong = |one: &Validation<'_>| {
            one.observed.in_training_mode && !is_intentional(evidence.program, one.module, one.line)
        };
        let dropout = |name: &str| name.starts_with("Dropout") || name == "AlphaDropout";
        let cost = |host_spans: &HostSpans| {
            let time_ns = host_spans.time_of(evidence, dropout);
            (time_ns > 0.0).then(|| Cost::time(time_ns))
        };
        found_in_recording(evidence, wrong, cost, finding)
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        if !stays_in_training_mode(program) {
            return Vec::new();
        }
        found_in_text(program, |one| !is_intentional(program, one.module, one.line), finding)
    }

    fn measurement_decides(&self) -> bool {
        // The few measured iterations may not reach the validation.
        false
    }
}

/// Whether a function sets training mode itself, or uses dropout to sample on purpose.
fn is_intentional(program: &Program<'_>, module: usize, line: u32) -> bool {
    let text = program.module(module);
    let start = text.index.lines().start_of(line);
    let function = text.function_at(start).and_then(|at| text.functions.lookup(at));
    function.is_some_and(|one| {
        let whole = text.text(&one.span).to_lowercase();
        let names = one.name.to_lowercase();
        let asks = text.calls.iter().any(|call| {
            call.name() == "train"
                && call.callee.contains('.')
                && one.span.contains(&call.span.start)
        });
        let samples = ["dropout", "monte", "mc"].iter().any(|word| mentions(&whole, word))
            || ["dropout", "mc_", "uncertain"].iter().any(|part| names.contains(part));
        // A function with both training and validation sets both modes.
        (asks && is_validation_name(&one.name)) || samples
    })
}

fn finding(at: SourceLine, cost: Option<Cost>) -> Finding {
    Finding {
        rule: "train-mode-in-validation",
        at,
        message: "Validation runs with the model in training mode".to_owned(),
        why: "Dropout is active, and batch norm uses and updates its statistics with validation \
            batches, so the results are wrong. Call `model.eval()` before validation and \
            `model.train()` after it."
            .to_owned(),
        cost,
        fix: Some(EditKind::EvalModeInValidation),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, lines_in};
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_profile::{ModuleCost, Phase};
    use ridgeline_recording::observed::Evaluation;

    const PROGRAM: &str = "\
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
@torch.no_grad()
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

    #[test]
    fn validation_function_without_eval() {
        assert_eq!(lines_in(&TrainModeInValidation, PROGRAM), [7]);
    }

    #[test]
    fn mode_switch_or_model_without_affected_layers_is_not_reported() {
        let with = |old: &str, new: &str| {
            let text = PROGRAM.replace(old, new);
            assert_eq!(lines_in(&TrainModeInValidation, &text), [0; 0], "{text}");
        };
        with("    total = 0.0", "    model.eval()\n    total = 0.0");
        with("    total = 0.0", "    model.train(False)\n    total = 0.0");
        with("\nevaluate(model, val_loader)", "\nmodel.eval()\nevaluate(model, val_loader)");
        let helper = "def set_mode(m, training):\n    m.train(training)\n@torch.no_grad()";
        with("@torch.no_grad()", helper);
        with("torch.nn.Dropout()", "torch.nn.ReLU()");
        with("evaluate", "evaluate_uncertainty");
        with("evaluate", "mc_dropout_evaluate");
    }

    fn recorded(in_training_mode: bool) -> Case {
        let mut case = Case::new(PROGRAM);
        let (call, after) = (case.line("call"), case.line("after"));
        let linear = case.host(TaskKind::HostOperator, 4e6, Phase::Forward, Some(call));
        let dropout = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, Some(call));
        case.host(TaskKind::HostOperator, 1e6, Phase::Forward, Some(after));
        let train = case.line("train");
        let trained = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, Some(train));
        for (task, module) in [(linear, 1), (dropout, 2), (trained, 2)] {
            case.graph.task_mut(task).expect("a task").module = Some(module);
        }
        let types = ["Sequential", "Linear", "Dropout"];
        let modules =
            types.map(|name| ModuleCost { type_name: name.into(), ..ModuleCost::default() });
        case.profile.modules = modules.to_vec();
        let at = case.location("call");
        case.manifest.observed.evaluations =
            vec![Evaluation { at, calls: 2, in_training_mode, ..Evaluation::default() }];
        case
    }

    #[test]
    fn cost_is_the_dropout_in_validation() {
        let found = recorded(true).finds(&TrainModeInValidation, "call");
        assert_eq!(found.cost, Some(Cost::time(1e6)));
        assert_eq!(recorded(false).measured(&TrainModeInValidation), []);
    }

    #[test]
    fn shared_function_costs_only_its_validation_calls() {
        let text = "\
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
def step(x):  # def
    return model(x).mean()  # call
for x in train_loader:
    loss = step(x)  # train
    loss.backward()  # backward
for x in val_loader:
    loss = step(x)  # validate
    total += loss.item()  # after
";
        let mut case = Case::new(text);
        let dropout = ModuleCost { type_name: "Dropout".into(), ..ModuleCost::default() };
        case.profile.modules = vec![dropout];
        let trains = [("train", 1e3), ("def", 1e3), ("call", 7e6)];
        for (mark, ns) in trains.into_iter().chain([("validate", 1e3), ("def", 1e3), ("call", 2e6)])
        {
            let kind = if mark == "call" { TaskKind::HostOperator } else { TaskKind::HostGap };
            let at = case.line(mark);
            let task = case.host(kind, ns, Phase::Forward, Some(at));
            case.graph.task_mut(task).expect("a task").module = (mark == "call").then_some(0);
        }
        let at = case.location("validate");
        case.manifest.observed.evaluations =
            vec![Evaluation { at, calls: 1, in_training_mode: true, ..Evaluation::default() }];
        let found = case.finds(&TrainModeInValidation, "validate");
        assert_eq!(found.cost, Some(Cost::time(2e6)));
        let at = case.location("train");
        case.manifest.observed.evaluations[0].at = at;
        assert_eq!(case.measured(&TrainModeInValidation), []);
    }

    #[test]
    fn generated_images_are_not_validation() {
        let mut case = recorded(true);
        let text = PROGRAM.replace("evaluate", "discriminate").replace("val_loader", "loader");
        case.file("train.py", &text);
        assert_eq!(case.measured(&TrainModeInValidation), []);
    }

    #[test]
    fn train_calls_are_no_switch_to_evaluation_mode() {
        for call in ["model.train()", "model.train(True)", "trainer.train(train_loader)"] {
            let text = format!("{PROGRAM}{call}\n");
            assert_eq!(lines_in(&TrainModeInValidation, &text), [7], "{call}");
        }
    }

    #[test]
    fn functional_dropout_counts() {
        let dropout = "torch.nn.ReLU())\ndef drop(self, x):\n    \
                       return torch.nn.functional.dropout(x, 0.1, training=self.training)\n(";
        let text = PROGRAM.replace("torch.nn.Dropout()", dropout);
        let found = lines_in(&TrainModeInValidation, &text);
        assert_eq!(found, [10]);
        let always = text.replace("training=self.training", "True");
        assert_eq!(lines_in(&TrainModeInValidation, &always), [0; 0]);
    }
}
