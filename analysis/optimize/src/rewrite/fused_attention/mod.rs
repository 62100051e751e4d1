//! Attention that is written out, as one call of `scaled_dot_product_attention` (Dao et al.,
//! "FlashAttention", NeurIPS 2022; PyTorch, `torch.nn.functional.scaled_dot_product_attention`).

mod attention;
pub mod einsum;
mod mask;
mod place;
mod product;
mod scale;
pub mod softmax;
mod statements;

use std::collections::BTreeSet;

use ridgeline_python::semantics::module::Call;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::fixes::TargetLines;
use super::imports;
use super::program::Program;
use super::syntax::{everything, reads, statement_of, within, writes, written};
use attention::{Attention, Obstacle, Reader};
use softmax::Softmax;
use statements::mentions_any;

/// The maximum number of statements between the softmax and the product of weights and values.
const MAX_STATEMENTS: usize = 20;

/// Functions that compute attention in one kernel.
const FUSED: [&str; 3] = ["scaled_dot_product_attention", "flash_attn", "xformers"];

/// Replaces attention that is written out.
pub(super) fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let (mut fallback, mut refused) = (None, None);
    for (module, call) in program.calls() {
        let Some(found) = find(program, module, call) else { continue };
        let softmax = call.span.start;
        let is_wanted = program.node(module, call).and_then(statement_of);
        if !is_wanted.is_some_and(|statement| at.includes(program, module, statement)) {
            continue;
        }
        if has_fused_call(program, module, softmax) {
            fallback.get_or_insert(program.at(module, softmax));
            continue;
        }
        match found {
            Ok(attention) => replace(program, edits, module, &attention)?,
            Err((offset, what)) => {
                refused.get_or_insert_with(|| program.refuse(module, offset, what));
            }
        }
    }
    let fused = || {
        let mut calls = program.calls();
        calls.find(|(_, call)| FUSED.contains(&call.name())).map(|(module, call)| {
            let at = program.at(module, call.span.start);
            Refusal::done(format!("{at} already calls {}", call.name()))
        })
    };
    match fallback {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => {
            let what = "is for inputs that the fused operator next to it does not support";
            Err(Refusal::done(format!("{at} {what}")))
        }
        None => Err(refused.or_else(fused).unwrap_or_else(|| {
            Refusal::not_understood("no attention written out as matmul, softmax and matmul")
        })),
    }
}

/// Whether the attention around a softmax can be replaced.
pub fn is_replaceable(program: &Program<'_>, module: usize, call: &Call) -> bool {
    let is_read = matches!(find(program, module, call), Some(Ok(_)));
    is_read && !has_fused_call(program, module, call.span.start)
}

/// Whether the function of an offset, or its class, calls a fused operator: then attention that is
/// written out is the fallback for inputs that this does not support.
pub fn has_fused_call(program: &Program<'_>, module: usize, offset: usize) -> bool {
    let text = program.module(module);
    let function = text.function_at(offset);
    let class = program.class_of((module, function)).and_then(|at| text.classes.lookup(at));
    let function = function.and_then(|at| text.functions.lookup(at));
    let spans = class.map(|one| &one.span).into_iter().chain(function.map(|one| &one.span));
    spans.into_iter().any(|span| FUSED.iter().any(|name| text.text(span).contains(name)))
}

/// Reads the attention around a softmax. Returns `None` if the call is none, or if no product with
/// its weights was found.
fn find<'a>(
    program: &Program<'a>,
    module: usize,
    call: &'a Call,
) -> Option<Result<Attention<'a>, Obstacle>> {
    Softmax::of(program, module, call)?;
    let mut next = program.node(module, call).and_then(statement_of);
    for _ in 0..MAX_STATEMENTS {
        let statement = next?;
        next = statement.next_named_sibling();
        for node in within(statement) {
            let mut is_one = matches!(Kind::of(&node), Kind::BinaryOperator | Kind::Call);
            is_one &= statement_of(node) == Some(statement);
            if !is_one {
                continue;
            }
            match Reader::read(program, (module, call), (node, statement)) {
                Ok(None) => {}
                Ok(Some(attention)) => {
                    return Some(match misuse(program, module, &attention, statement) {
                        Some(obstacle) => Err(obstacle),
                        None => Ok(attention),
                    });
                }
                Err(obstacle) => return Some(Err(obstacle)),
            }
        }
    }
    None
}

/// Returns why the statements cannot be removed, or the parts not be moved to the output.
fn misuse(
    program: &Program<'_>,
    module: usize,
    attention: &Attention<'_>,
    statement: Node<'_>,
) -> Option<Obstacle> {
    let text = program.module(module);
    let parts = parts(attention);
    let names = &attention.names;
    if let Some(part) = parts.iter().find(|part| mentions_any(text, **part, names)) {
        return Some((part.start_byte(), "uses scores or weights elsewhere"));
    }
    // The output may be assigned to a variable that held scores or weights.
    let assigned = writes(text, statement);
    let first = attention.statements.iter().map(|one| one.start_byte()).min();
    let first = first.unwrap_or(statement.start_byte());
    let is_removed = |node: &Node<'_>| {
        let start = node.start_byte();
        let mut ranges = attention.statements.iter().map(|one| one.byte_range());
        ranges.any(|range| range.contains(&start)) || attention.output.byte_range().contains(&start)
    };
    let function = text.function_at(statement.start_byte());
    let function = function.and_then(|at| text.functions.lookup(at));
    let around = function.and_then(|one| text.node(&one.body)).or_else(|| statement.parent())?;
    let elsewhere = everything(around).into_iter().find(|node| {
        node.is(Kind::Identifier)
            && node.start_byte() >= first
            && names.contains(&written(text, *node))
            && !is_keyword(*node)
            && !is_removed(node)
            && !(assigned.contains(&written(text, *node)) && is_of_output(*node, statement))
    });
    if let Some(node) = elsewhere {
        return Some((node.start_byte(), "uses scores or weights elsewhere"));
    }
    // Each part has to be what it was where it was used before.
    let needed: Vec<(usize, BTreeSet<String>)> =
        parts.iter().map(|part| (part.start_byte(), reads(text, *part))).collect();
    let mut next = statement.prev_named_sibling();
    while let Some(one) = next.filter(|one| one.start_byte() >= first) {
        next = one.prev_named_sibling();
        if attention.statements.contains(&one) {
            continue;
        }
        let changed = writes(text, one);
        let mut before = needed.iter().filter(|(start, _)| *start < one.start_byte());
        if before.any(|(_, names)| !names.is_disjoint(&changed)) {
            return Some((one.start_byte(), "changes a part of the attention before its end"));
        }
    }
    None
}

/// Whether a variable that the output is assigned to means the output here: as the target of its
/// statement, or after it.
fn is_of_output(variable: Node<'_>, statement: Node<'_>) -> bool {
    let parent = variable.parent().filter(|parent| parent.is(Kind::Assignment));
    let is_target = parent.and_then(|parent| parent.field(Field::Left)) == Some(variable);
    variable.start_byte() >= statement.end_byte()
        || is_target && variable.start_byte() >= statement.start_byte()
}

/// Whether a name is that of a keyword argument or of an attribute.
fn is_keyword(node: Node<'_>) -> bool {
    let Some(parent) = node.parent() else { return false };
    match Kind::of(&parent) {
        Kind::KeywordArgument => parent.field(Field::Name) == Some(node),
        Kind::Attribute => parent.field(Field::Attribute) == Some(node),
        _ => false,
    }
}

/// The expressions that the fused call takes, other than the values.
fn parts<'a>(attention: &Attention<'a>) -> Vec<Node<'a>> {
    let mut parts = vec![attention.scores.queries, attention.scores.keys_node, attention.values];
    parts.extend(attention.scores.factors.iter().map(|factor| factor.value));
    parts.extend(
        attention.scores.masks.iter().flat_map(|mask| [Some(mask.place), mask.condition]).flatten(),
    );
    parts.extend(
        attention
            .scores
            .bias
            .iter()
            .flat_map(|(bias, condition)| [Some(*bias), *condition])
            .flatten(),
    );
    parts
}

/// Writes the fused call, and removes the statements before it.
fn replace<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    module: usize,
    attention: &Attention<'a>,
) -> Result<(), Refusal> {
    let text = program.module(module);
    let (mask, is_causal) = mask_argument(program, module, attention)?;
    let queries = text.text(&attention.scores.queries.byte_range());
    let mut arguments = vec![
        queries.to_owned(),
        attention.scores.keys.clone(),
        text.text(&attention.values.byte_range()).to_owned(),
    ];
    arguments.extend(mask.map(|mask| format!("attn_mask={mask}")));
    arguments.extend(attention.dropout.iter().map(|share| format!("dropout_p={share}")));
    arguments.extend(is_causal.then(|| "is_causal=True".to_owned()));
    let tensors = [queries, attention.scores.keys.as_str()];
    let scale = scale::scale(program, module, &attention.scores.factors, tensors);
    arguments.extend(scale.map(|scale| format!("scale={scale}")));
    if attention.scores.masks.iter().any(|mask| mask.is_finite) {
        edits.note(
            "A query whose keys are all masked had equal weights before, and has none (or NaN) now",
        );
    }
    if attention.dropout.is_some() {
        edits.note("On a CPU, PyTorch has no fused kernel for attention with dropout");
    }
    let functional = imports::functional(edits, module, text);
    let callee = format!("{functional}.scaled_dot_product_attention");
    place::write(program, edits, module, attention.output, (&callee, &arguments));
    place::remove(program, edits, module, &attention.statements)
}

/// The argument `attn_mask`, or whether the mask is the causal one.
fn mask_argument(
    program: &Program<'_>,
    module: usize,
    attention: &Attention<'_>,
) -> Result<(Option<String>, bool), Refusal> {
    let text = program.module(module);
    let as_written = |node: Node<'_>| text.text(&node.byte_range()).to_owned();
    if let Some((bias, condition)) = attention.scores.bias {
        let bias = as_written(bias);
        let Some(condition) = condition else { return Ok((Some(bias), false)) };
        // Without a mask the argument is None, as the variable is.
        let is_itself = written(text, condition) == format!("{bias}isnotNone");
        let otherwise = format!("{bias} if {} else None", as_written(condition));
        return Ok((Some(if is_itself { bias } else { otherwise }), false));
    }
    match attention.scores.masks.as_slice() {
        [] => Ok((None, false)),
        [one] if mask::is_causal(program, module, one) => Ok((None, true)),
        [one] => {
            let kept = mask::kept(text, one);
            let kept = match one.condition {
                Some(condition) => format!("{kept} if {} else None", as_written(condition)),
                None => kept,
            };
            Ok((Some(kept), false))
        }
        several => {
            if let Some(one) = several.iter().find(|mask| mask.condition.is_some()) {
                let what = "masks scores twice, once under a condition: combine the masks";
                return Err(program.refuse(module, one.place.start_byte(), what));
            }
            let all: Vec<String> =
                several.iter().map(|mask| format!("({})", mask::kept(text, mask))).collect();
            Ok((Some(all.join(" & ")), false))
        }
    }
}
