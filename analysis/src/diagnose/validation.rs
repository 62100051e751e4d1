//! Validation, as the rules about it look at it: what a recording saw, and what the text shows.

use tree_sitter::Node;

use super::evaluation::Stretches;
use super::evidence::Evidence;
use super::finding::{Cost, Finding, Place};
use super::reading::{
    callers, is_in_validation, is_validation_name, is_without_gradients,
    may_be_called_without_gradients, place,
};
use crate::profile::FileId;
use crate::recording::manifest::Location;
use crate::recording::observed::Evaluation;
use crate::source::batch_site::module::{Module, last_name};
use crate::source::rewrite::models::Models;
use crate::source::rewrite::program::{Program, Scope};
use crate::source::rewrite::syntax::{callee, calls_in, mentions};

/// A call of a model that a recording saw, on a line of validation.
pub(crate) struct Validation<'a> {
    pub seen: &'a Evaluation,
    /// The text and the line today.
    pub module: usize,
    pub line: u32,
}

/// The calls of models whose results no backward pass used, where the text says that they are of
/// validation: by the name of the function or the loop, or by `.eval()` before.
fn seen<'a>(evidence: &Evidence<'a>) -> Vec<Validation<'a>> {
    let observed = evidence.manifest().map(|manifest| manifest.observed.evaluations.as_slice());
    let found = observed.unwrap_or_default().iter().filter_map(|seen| {
        let (module, line) = evidence.today(FileId(seen.at.file), seen.at.line)?;
        let text = evidence.program.module(module);
        let node = first_node(text, line)?;
        let is_one = is_in_validation(text, node) || follows_eval(text, node);
        (is_one && seen.calls > 0).then_some(Validation { seen, module, line })
    });
    found.take(16).collect()
}

/// What a rule finds in a recording: its finding for each validation that is `wrong`, with what that
/// costs.
pub(crate) fn found_in_recording(
    evidence: &Evidence<'_>,
    wrong: impl Fn(&Validation<'_>) -> bool,
    cost: impl Fn(&Stretches) -> Option<Cost>,
    finding: fn(Place, Option<Cost>) -> Finding,
) -> Vec<Finding> {
    let found = seen(evidence).into_iter().filter(wrong).map(|one| {
        let at = evidence.place(FileId(one.seen.at.file), one.seen.at.line);
        finding(at, cost(&stretches(evidence, &one)))
    });
    found.collect()
}

/// What a rule finds in the text alone: its finding for each validation that is `wrong`.
pub(crate) fn found_in_text(
    program: &Program<'_>,
    wrong: impl Fn(&Written<'_>) -> bool,
    finding: fn(Place, Option<Cost>) -> Finding,
) -> Vec<Finding> {
    let found = written(program).into_iter().filter(wrong);
    found.map(|one| finding(place(program, one.module, one.line), None)).collect()
}

/// The stretches of the measured iteration in which the line calls the model.
fn stretches(evidence: &Evidence<'_>, validation: &Validation<'_>) -> Stretches {
    let Location { file, line } = validation.seen.at;
    let text = evidence.program.module(validation.module);
    let whole = (1, text.index.lines().count());
    let function = first_node(text, validation.line)
        .and_then(|node| text.functions.get(text.function_at(node.start_byte())?))
        .map_or(whole, |one| (text.line(one.span.start), text.line(one.span.end)));
    // From today's lines back to those that ran: the text of the function is the same.
    let shift = i64::from(line) - i64::from(validation.line);
    let ran = |today: u32| u32::try_from(i64::from(today) + shift).unwrap_or(0);
    let function = (ran(function.0), ran(function.1));
    Stretches::new(evidence.graph(), (FileId(file), line), function)
}

/// The first node that begins on a line.
fn first_node(text: &Module, line: u32) -> Option<Node<'_>> {
    let trimmed = text.index.lines().trimmed(text.index.text(), line);
    let root = text.index.tree()?.root_node();
    let first = trimmed.start..trimmed.start.saturating_add(1);
    root.descendant_for_byte_range(first.start, first.end).filter(|_| !trimmed.is_empty())
}

/// Whether the last `.eval()` or `.train()` before a node in its function is an `.eval()`.
fn follows_eval(text: &Module, node: Node<'_>) -> bool {
    let function = text.function_at(node.start_byte());
    let before = text.calls.iter().filter(|call| {
        call.function == function
            && call.span.end <= node.start_byte()
            && call.callee.contains('.')
            && matches!(call.name(), "eval" | "train")
    });
    before.max_by_key(|call| call.span.start).is_some_and(|call| call.name() == "eval")
}

/// A call of a model in a function that a person named after validation.
pub(crate) struct Written<'a> {
    pub module: usize,
    pub line: u32,
    pub scope: Scope,
    pub call: Node<'a>,
}

/// The functions of validation in the text that call a model themselves and go backward nowhere; each
/// with its first such call. Only those that the program itself calls.
fn written<'a>(program: &Program<'a>) -> Vec<Written<'a>> {
    let models = Models::of(program);
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        for (at, function) in text.functions.iter().enumerate() {
            let scope = (module, Some(at));
            if !is_validation_name(&function.name)
                || !program.is_reached(scope)
                || callers(program, &function.name).is_empty()
            {
                continue;
            }
            let whole = text.text(&function.span);
            let goes_back = ["backward", "grad", "enable_grad", "requires_grad_"];
            if goes_back.iter().any(|word| mentions(whole, word)) {
                continue;
            }
            let body = text.node(&function.body);
            let call = body.and_then(|body| {
                let mut calls = calls_in(body).into_iter();
                calls.find(|call| models.is_one(&callee(text, *call)))
            });
            if let Some(call) = call {
                found.push(Written { module, line: text.line(call.start_byte()), scope, call });
            }
        }
    }
    found
}

/// Whether nothing on the way to a call turns the recording of graphs off.
pub(crate) fn has_gradients(program: &Program<'_>, written: &Written<'_>) -> bool {
    let text = program.module(written.module);
    let switches =
        program.modules().iter().any(|text| mentions(text.index.text(), "set_grad_enabled"));
    !switches
        && !is_without_gradients(text, written.call)
        && !may_be_called_without_gradients(program, written.scope)
}

/// Whether the program switches no model to evaluation anywhere, and has layers for which that matters.
pub(crate) fn stays_in_training_mode(program: &Program<'_>) -> bool {
    let switches = program.modules().iter().any(|text| {
        text.calls.iter().any(|call| {
            call.name() == "eval"
                || (call.name() == "train" && text.text(&call.span).contains("False"))
        })
    });
    let matters = program.modules().iter().any(|text| {
        text.calls.iter().any(|call| {
            let name = last_name(&call.callee);
            name.starts_with("Dropout") || name.starts_with("BatchNorm")
        })
    });
    matters && !switches
}
