//! Optimizer arguments: `fused` and `foreach`.

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::program::Program;
use super::syntax::written;
use ridgeline_python::semantics::module::last_name;

/// Optimizers of `torch.optim` that support `fused`.
const FUSED: [&str; 4] = ["Adagrad", "Adam", "AdamW", "SGD"];
/// Optimizers of `torch.optim` that support `foreach`.
const FOREACH: [&str; 12] = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
];

/// Whether an optimizer class supports `foreach`. This is unknown for a project's own classes.
pub fn takes_foreach(type_name: &str) -> bool {
    FOREACH.contains(&type_name)
}

/// Sets `fused=True`.
pub fn fused(program: &Program<'_>, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    set(program, edits, "fused", "foreach", &FUSED)?;
    Ok(())
}

/// Sets `foreach=True`.
pub fn foreach(program: &Program<'_>, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    set(program, edits, "foreach", "fused", &FOREACH)?;
    Ok(())
}

/// Whether a callee creates an optimizer of PyTorch.
pub fn makes_optimizer(program: &Program<'_>, module: usize, callee: &str) -> bool {
    let qualified = program.absolute(module, callee);
    let is_class = last_name(&qualified).starts_with(|c: char| c.is_ascii_uppercase());
    qualified.starts_with("torch.optim.")
        && is_class
        && !qualified.contains("lr_scheduler")
        && !qualified.contains("swa_utils")
}

/// Whether a variable is an optimizer, judged by its creation or its name.
pub fn is_optimizer(program: &Program<'_>, variable: &str) -> bool {
    let last = last_name(variable);
    let lower = last.to_lowercase();
    if lower.contains("sched") || lower.contains("scaler") || lower.contains("env") {
        return false;
    }
    let is_made = program.modules().iter().enumerate().any(|(module, text)| {
        text.assignments.iter().any(|one| {
            last_name(&one.target) == last
                && text.node(&one.value).is_some_and(|node| {
                    node.is(Kind::Call)
                        && makes_optimizer(program, module, &super::syntax::callee(text, node))
                })
        })
    });
    is_made || lower.contains("optim") || lower.starts_with("opt") || lower.ends_with("opt")
}

fn set(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    wanted: &str,
    other: &str,
    able: &[&str],
) -> Result<(), Refusal> {
    let mut done = BTreeSet::new();
    let mut unable = BTreeSet::new();
    for (module, call) in program.calls() {
        if !makes_optimizer(program, module, &call.callee) {
            continue;
        }
        let Some(node) = program.node(module, call) else { continue };
        let at = program.at(module, call.span.start);
        let name = last_name(&program.called(module, call)).to_owned();
        if !able.contains(&name.as_str()) {
            unable.insert(format!("{at} creates {name}, which does not support {wanted}"));
            continue;
        }
        match argument(program, edits, module, node, wanted, other)? {
            true => {}
            false => {
                done.insert(at);
            }
        }
    }
    if !edits.is_empty() {
        return Ok(());
    }
    if let Some(at) = done.first() {
        return Err(Refusal::done(format!("{at} already has {wanted}=True")));
    }
    if let Some(why) = unable.into_iter().next() {
        return Err(Refusal::NotUnderstood(why));
    }
    Err(no_optimizer(program))
}

/// Sets the argument of one optimizer. Returns false if it is already set.
fn argument(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    module: usize,
    call: Node<'_>,
    wanted: &str,
    other: &str,
) -> Result<bool, Refusal> {
    let text = program.module(module);
    let start = call.start_byte();
    let refuse = |what: String| Err(program.refuse(module, start, &what));
    let Some(arguments) = program.arguments(module, call) else {
        return refuse("creates the optimizer in an unsupported form".to_owned());
    };
    if arguments.has_star || !arguments.splats.is_empty() {
        return refuse(format!(
            "passes starred arguments to the optimizer, which may already set {wanted}"
        ));
    }
    if arguments.named("differentiable").is_some_and(|one| written(text, one) == "True") {
        return refuse(format!("creates a differentiable optimizer, which excludes {wanted}"));
    }
    let is_literal = |value: &str| matches!(value, "True" | "False" | "None");
    let given = arguments.named(wanted);
    if let Some(given) = given {
        let value = written(text, given);
        return match value.as_str() {
            "True" => Ok(false),
            _ if is_literal(&value) => {
                edits.replace(module, given.byte_range(), "True");
                Ok(true)
            }
            _ => refuse(format!("takes {wanted} from `{value}`: set it there")),
        };
    }
    if let Some(given) = arguments.named(other) {
        let value = written(text, given);
        if wanted == "foreach" && value == "True" {
            let at = program.at(module, start);
            return Err(Refusal::done(format!(
                "{at} has {other}=True, which already includes this"
            )));
        }
        if !is_literal(&value) {
            return refuse(format!("takes {other} from `{value}`: set it there"));
        }
        // The two arguments exclude each other.
        let argument = given.parent().unwrap_or(given);
        edits.replace(module, argument.byte_range(), format!("{wanted}=True"));
        return Ok(true);
    }
    edits.add_arguments(program, module, call, &[&format!("{wanted}=True")])?;
    Ok(true)
}

/// Returns the reason why no optimizer was found.
fn no_optimizer(program: &Program<'_>) -> Refusal {
    for (module, text) in program.modules().iter().enumerate() {
        for one in &text.assignments {
            let is_call = text.node(&one.value).is_some_and(|node| node.is(Kind::Call));
            let last = last_name(&one.target).to_lowercase();
            let is_named = last.starts_with("optim") || last == "opt" || last.starts_with("opt_");
            if is_call && is_named {
                let value = text.node(&one.value);
                let maker = value.map(|node| super::syntax::callee(text, node)).unwrap_or_default();
                let what = format!(
                    "creates the optimizer with `{maker}`, which is not part of \
                    PyTorch"
                );
                return program.refuse(module, one.at.start, &what);
            }
        }
    }
    Refusal::not_understood("no PyTorch optimizer was found in the program")
}
