//! Validation, for the rules about it: what a recording observed, and what the text shows.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::HashSet;

use tree_sitter::Node;

use super::evidence::Evidence;
use super::finding::{Cost, Finding, SourceLine};
use super::host_spans::HostSpans;
use super::source_queries::{
    callers, first_node, is_validation_name, is_without_gradients, iterates_over_validation,
    loops_around, may_be_called_without_gradients, nodes_of_line, place,
};
use ridgeline_optimize::rewrite::fixes::losses::Losses;
use ridgeline_optimize::rewrite::fixes::validation::{forward_that_goes_back, trains};
use ridgeline_optimize::rewrite::models::Models;
use ridgeline_optimize::rewrite::program::{Program, Scope};
use ridgeline_optimize::rewrite::syntax::{
    callee, calls_in, mentions, statement_of, written as source,
};
use ridgeline_profile::FileId;
use ridgeline_python::semantics::module::{Call, Module, last_name};
use ridgeline_recording::manifest::Location;
use ridgeline_recording::observed::Evaluation;

/// Model calls of a validation line, as observed in a recording.
pub(crate) struct Validation<'a> {
    pub observed: &'a Evaluation,
    /// The module's index in the program, and the line in the current text.
    pub module: usize,
    pub line: u32,
}

/// The observed model calls whose results no backward pass used, if the text shows that they are
/// validation.
fn observed_validations<'a>(evidence: &Evidence<'a>) -> Vec<Validation<'a>> {
    let observed = evidence.manifest().map(|manifest| manifest.observed.evaluations.as_slice());
    let found = observed.unwrap_or_default().iter().filter_map(|observed| {
        let (module, line) = evidence.current_line(FileId(observed.at.file), observed.at.line)?;
        let is_included = observed.calls > 0 && is_validation(evidence.program, module, line);
        is_included.then_some(Validation { observed, module, line })
    });
    found.take(16).collect()
}

/// Returns the finding for each validation in the recording that is `wrong`, with its cost.
pub(crate) fn found_in_recording(
    evidence: &Evidence<'_>,
    wrong: impl Fn(&Validation<'_>) -> bool,
    cost: impl Fn(&HostSpans) -> Option<Cost>,
    finding: fn(SourceLine, Option<Cost>) -> Finding,
) -> Vec<Finding> {
    let mut wrong: Vec<Validation<'_>> =
        observed_validations(evidence).into_iter().filter(wrong).collect();
    // A line may call several models.
    let mut reported = HashSet::new();
    wrong.retain(|one| reported.insert((one.observed.at.file, one.observed.at.line)));
    let found = wrong.iter().map(|one| {
        let at = evidence.place(FileId(one.observed.at.file), one.observed.at.line);
        finding(at, cost(&host_spans(evidence, one)))
    });
    found.collect()
}

/// Returns the finding for each validation in the source text that is `wrong`.
pub(crate) fn found_in_text(
    program: &Program<'_>,
    wrong: impl Fn(&SourceValidation<'_>) -> bool,
    finding: fn(SourceLine, Option<Cost>) -> Finding,
) -> Vec<Finding> {
    let found = source_validations(program).into_iter().filter(wrong);
    found.map(|one| finding(place(program, one.module, one.line), None)).collect()
}

/// The host spans in which the line calls the model, or a function that calls it.
fn host_spans(evidence: &Evidence<'_>, validation: &Validation<'_>) -> HostSpans {
    let Location { file, line } = validation.observed.at;
    let ran = (FileId(file), line);
    HostSpans::new(evidence, ran, (validation.module, validation.line), |line| line == ran)
}

/// Whether a line that calls a model, directly or through a function, is validation: by the name of
/// its function or of what a loop iterates over, or by an earlier `.eval()` of that model. In a
/// loop that runs a backward pass it is part of a training step, whatever the code outside of the
/// loop says: a teacher, a frozen network, a test run.
fn is_validation(program: &Program<'_>, module: usize, line: u32) -> bool {
    let text = program.module(module);
    let Some(node) = first_node(text, line) else { return false };
    let trains_in = |one: &Node<'_>| trains(program, module, *one);
    let function = text.function_at(node.start_byte()).and_then(|at| text.functions.lookup(at));
    let loops = loops_around(node);
    if function.is_some_and(|one| is_validation_name(&one.name)) && !loops.iter().any(trains_in) {
        return true;
    }
    loops.iter().any(|one| iterates_over_validation(program, module, *one) && !trains_in(one))
        || nodes_of_line(text, line).into_iter().any(|node| {
            let switch = Some(node).filter(|node| node.is(Kind::Call));
            let switch = switch.and_then(|call| eval_before(text, call));
            let is_outside =
                |one: &&Node<'_>| switch.is_some_and(|at| !one.byte_range().contains(&at));
            switch.is_some() && !loops.iter().filter(is_outside).any(trains_in)
        })
}

/// Where the function puts the called model into evaluation mode before this call, if that is the
/// last change of its mode.
fn eval_before(text: &Module, call: Node<'_>) -> Option<usize> {
    let model = callee(text, call);
    let function = text.function_at(call.start_byte());
    let before = text.calls.iter().filter(|one| {
        one.function == function
            && one.span.end <= call.start_byte()
            && matches!(one.name(), "eval" | "train")
            && one.callee.rsplit_once('.').is_some_and(|(object, _)| object == model)
    });
    let last = before.max_by_key(|one| one.span.start).filter(|one| one.name() == "eval");
    last.map(|one| one.span.start)
}

/// A model call in a function or a loop that is named after validation.
pub(crate) struct SourceValidation<'a> {
    pub module: usize,
    pub line: u32,
    pub scope: Scope,
    pub call: Node<'a>,
}

/// Validation in the source text: functions that call a model themselves, and outside of them loops
/// and statements after `.eval()`, each with its first such call. Only includes functions that the program calls, and nothing that
/// runs a backward pass or that a loss may come from.
fn source_validations<'a>(program: &Program<'a>) -> Vec<SourceValidation<'a>> {
    let models = Models::of(program);
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        let named = text.functions.iter().enumerate().filter(|(_, one)| {
            is_validation_name(&one.name)
                && !["backward", "grad", "enable_grad", "requires_grad_"]
                    .iter()
                    .any(|word| mentions(text.text(&one.span), word))
        });
        let bodies = named.filter_map(|(at, one)| Some((Some(at), text.node(&one.body)?)));
        let loops = text.loops.iter().filter_map(|one| Some((one.function, text.node(&one.span)?)));
        let loops = loops.filter(|(function, one)| {
            let function = function.and_then(|at| text.functions.lookup(at));
            !function.is_some_and(|function| is_validation_name(&function.name))
                && iterates_over_validation(program, module, *one)
                && !trains(program, module, *one)
        });
        let switched = switched_to_evaluation(program, module, &models);
        for (function, node) in bodies.chain(loops).chain(switched) {
            let scope = (module, function);
            let name = function.and_then(|at| text.functions.lookup(at)).map(|one| &one.name);
            let is_called = name.is_none_or(|name| !callers(program, name).is_empty());
            let mut calls = calls_in(node).into_iter();
            let call = calls.find(|call| models.is_one(&callee(text, *call)));
            let is_new =
                |call: &Node<'_>| !found.iter().any(|one: &SourceValidation<'_>| one.call == *call);
            let counts = is_called && program.is_reached(scope);
            if let Some(call) = call.filter(|call| counts && is_new(call)) {
                found.push(SourceValidation {
                    module,
                    line: text.line(call.start_byte()),
                    scope,
                    call,
                });
            }
        }
    }
    if !found.is_empty() {
        // Nothing is certain if the origin of a loss is unknown.
        let losses = Losses::of(program, &models).ok();
        found.retain(|one| {
            losses.as_ref().is_some_and(|losses| !feeds_a_loss(program, losses, one))
        });
    }
    found
}

/// Returns the statements between `model.eval()` and the next `model.train()` of a block that call
/// this model, each with its function. Only in code that trains it again and again: code that runs
/// once after the training has enough memory.
fn switched_to_evaluation<'a>(
    program: &Program<'a>,
    module: usize,
    models: &Models,
) -> Vec<(Option<usize>, Node<'a>)> {
    let text = program.module(module);
    let switch = |call: &Call, to: &str| {
        let (object, name) = call.callee.rsplit_once('.')?;
        (name == to).then(|| object.to_owned())
    };
    let trained: HashSet<String> =
        text.calls.iter().filter_map(|call| switch(call, "train")).collect();
    let mut found = Vec::new();
    for call in &text.calls {
        let Some(model) = switch(call, "eval").filter(|model| trained.contains(model)) else {
            continue;
        };
        let Some(node) = text.node(&call.span).filter(|_| models.is_one(&model)) else { continue };
        let is_call_of = |one: &Node<'_>, name: &str| {
            calls_in(*one).into_iter().any(|call| callee(text, call) == name)
        };
        let function = call.function.and_then(|at| text.functions.lookup(at));
        let body = function.and_then(|function| text.node(&function.body));
        let mut around = loops_around(node).into_iter().chain(body);
        let is_validation = function.is_some_and(|one| is_validation_name(&one.name));
        if is_validation || !around.any(|one| trains(program, module, one)) {
            continue;
        }
        let next = statement_of(node).and_then(|one| one.next_named_sibling());
        let statements = std::iter::successors(next, |one| one.next_named_sibling());
        let until = format!("{model}.train");
        let statements = statements.take_while(|one| !is_call_of(one, &until));
        let validations =
            statements.filter(|one| is_call_of(one, &model) && !trains(program, module, *one));
        found.extend(validations.map(|one| (call.function, one)));
    }
    found
}

/// Whether a loss may be computed from the result of a call.
fn feeds_a_loss<'a>(
    program: &Program<'a>,
    losses: &Losses<'a>,
    one: &SourceValidation<'a>,
) -> bool {
    let (module, function) = one.scope;
    let function = function.and_then(|at| program.module(module).functions.lookup(at));
    function.is_some_and(|function| losses.come_from(&function.name))
        || statement_of(one.call)
            .is_none_or(|statement| losses.are_made_of(program, one.scope, statement))
}

/// Whether nothing on the call path disables gradients.
pub(crate) fn has_gradients(program: &Program<'_>, written: &SourceValidation<'_>) -> bool {
    let switches = ["set_grad_enabled", "__enter__", "enter_context"];
    let is_switched = |text: &Module| switches.iter().any(|one| mentions(text.index.text(), one));
    !program.modules().iter().any(is_switched)
        && forward_that_goes_back(program).is_none()
        && !is_without_gradients(program, written.module, written.call)
        && !may_be_called_without_gradients(program, written.scope)
}

/// Whether the program never switches a model to evaluation mode and has layers for which that
/// matters.
pub(crate) fn stays_in_training_mode(program: &Program<'_>) -> bool {
    let calls = || {
        let modules = program.modules().iter().enumerate();
        modules.flat_map(|(at, text)| text.calls.iter().map(move |call| (at, text, call)))
    };
    let switches = |(_, text, call): (usize, &Module, &Call)| match call.name() {
        "eval" => true,
        "train" => may_switch(program, text, call),
        _ => false,
    };
    let matters = |(at, text, call): (usize, &Module, &Call)| {
        let name = last_name(&call.callee);
        name.starts_with("Dropout")
            || name.starts_with("BatchNorm")
            || (program.called(at, call).starts_with("torch.nn.functional.dropout")
                && mentions(text.text(&call.span), "training"))
    };
    calls().any(matters) && !calls().any(switches)
}

/// Whether a call of `train` may switch to evaluation mode: `model.train(False)`,
/// `model.train(training)`. Trainers also have a method of this name.
fn may_switch(program: &Program<'_>, text: &Module, call: &Call) -> bool {
    let Some((object, _)) = call.callee.rsplit_once('.') else { return false };
    let list = text.node(&call.span).and_then(|node| node.field(Field::Arguments));
    let Some(mode) = list.filter(|list| list.named_child_count() == 1) else { return false };
    let mode = source(text, mode);
    let is_own =
        |text: &Module| text.functions.iter().any(|one| one.name == "train" && one.class.is_some());
    let is_trainer = object.to_lowercase().ends_with("trainer")
        || (object == "self" && program.modules().iter().any(is_own));
    !mode.contains("True") && (!is_trainer || mode.contains("False"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::with_program;

    /// Whether the line marked `# here` is validation, in a loop that trains `model`.
    fn is_validation_at_mark(before: &str, within: &str, after: &str) -> bool {
        let text = format!(
            "import torch\nmodel, teacher = Net(), Net()\n{before}\nfor x, y in loader:\n{within}\n    \
             loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n{after}\n"
        );
        let marked = text.lines().position(|line| line.contains("# here")).expect("a mark");
        with_program(&text, |program| {
            is_validation(program, 0, u32::try_from(marked).unwrap_or(0) + 1)
        })
    }

    #[test]
    fn evaluation_mode_must_be_set_on_the_called_model() {
        let eval = "    model.eval()\n    y = model(x)  # here\n    model.train()";
        assert!(is_validation_at_mark("", eval, ""));
        assert!(is_validation_at_mark("", "", "model.eval()\nmodel(x)  # here"));
        assert!(!is_validation_at_mark("", "", "model.eval()\nmodel.train()\nmodel(x)  # here"));
        // Another model, as in the step of a discriminator.
        assert!(!is_validation_at_mark("teacher.eval()", "    fake = model(x)  # here", ""));
        assert!(!is_validation_at_mark("", "    teacher.eval()\n    fake = model(x)  # here", ""));
        // A teacher is put into evaluation mode once, and takes part in each step.
        assert!(!is_validation_at_mark("teacher.eval()", "    target = teacher(x)  # here", ""));
    }

    #[test]
    fn a_training_step_is_not_validation_by_name() {
        let over = |what: &str| {
            is_validation_at_mark("", "", &format!("for x in {what}:\n    model(x)  # here"))
        };
        for what in ["testloader", "test_loader", "loaders['val']", "range(len(val_set))"] {
            assert!(over(what), "{what}");
        }
        for what in ["loader", "range(eval_every)", "tqdm(range(args.test_steps))"] {
            assert!(!over(what), "{what}");
        }
        let adapts = "for x in test_loader:\n    model(x)  # here\n    f(x).backward()";
        assert!(!is_validation_at_mark("", "", adapts));
        let runs = "def test_run():\n    for x in loader:\n        model(x)  # here\n        f(x).backward()";
        assert!(!is_validation_at_mark("", "", runs));
        let checks = "def check_accuracy(model):\n    model(x)  # here";
        assert!(is_validation_at_mark("", "", checks));
    }
}
