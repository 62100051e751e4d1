//! Sets gradients to None instead of zero (PyTorch, "Performance Tuning Guide").

use super::Refusal;
use super::edits::Edits;
use super::program::Program;
use super::syntax::{callee, object_of, statement_of, written};
use ridgeline_python::semantics::module::last_name;

/// Writes `zero_grad(set_to_none=True)`, and `p.grad = None` for `p.grad.zero_()`.
pub(super) fn rewrite(program: &Program<'_>, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    let mut already_default = None;
    for (module, call) in program.calls() {
        let Some(node) = program.node(module, call) else { continue };
        let text = program.module(module);
        match call.name() {
            "zero_grad" => {
                let Some(arguments) = program.arguments(module, node) else { continue };
                let named = arguments.named("set_to_none");
                let Some(given) = named.or(arguments.positional.first().copied()) else {
                    already_default.get_or_insert(program.at(module, call.span.start));
                    continue;
                };
                match written(text, given).as_str() {
                    "True" => {
                        already_default.get_or_insert(program.at(module, call.span.start));
                    }
                    "False" if named.is_some() => edits.replace(module, given.byte_range(), "True"),
                    "False" => {
                        edits.replace(module, given.byte_range(), "set_to_none=True");
                    }
                    value => {
                        let what = format!("takes set_to_none from `{value}`: set it there");
                        return Err(program.refuse(module, call.span.start, &what));
                    }
                }
            }
            "zero_" => {
                let Some(object) = object_of(text, node, "zero_") else { continue };
                let written = written(text, object);
                let gradient = written.strip_suffix(".data").unwrap_or(&written);
                let is_alone =
                    statement_of(node).is_some_and(|one| one.byte_range() == node.byte_range());
                if last_name(gradient) != "grad" || callee(text, node).len() > 80 {
                    continue;
                }
                if !is_alone {
                    let why = "clears a gradient inside a larger statement";
                    return Err(program.refuse(module, call.span.start, why));
                }
                edits.replace(module, node.byte_range(), format!("{gradient} = None"));
            }
            _ => {}
        }
    }
    match already_default {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("{at} already sets gradients to None"))),
        None => Err(Refusal::not_understood("no zero_grad() call was found in the program")),
    }
}
