//! Activations in host memory during the forward pass (`torch.autograd.graph.save_on_cpu`).

use super::Refusal;
use super::compile::{self, model_calls};
use super::edits::Edits;
use super::imports;
use super::program::Program;
use super::syntax::statement_of;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

/// Wraps the statements that call the model in the training step.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    check_applicable(program)?;
    let mut wrapped: Vec<(usize, Node<'a>)> = Vec::new();
    for one in model_calls(program)? {
        let (module, _) = one.scope;
        let at = one.call.start_byte();
        let Some(statement) = statement_of(one.call) else { continue };
        if statement.is(Kind::ReturnStatement) || is_simple(statement) {
            if !wrapped.iter().any(|(_, known)| known.id() == statement.id()) {
                wrapped.push((module, statement));
            }
            continue;
        }
        let why =
            "calls the model inside a larger statement: assign its output to a variable first";
        return Err(program.refuse(module, at, why));
    }
    for (module, statement) in wrapped {
        let torch = imports::torch(edits, module, program.module(module));
        let header = format!("with {torch}.autograd.graph.save_on_cpu(pin_memory=True):");
        edits.wrap(program, module, statement.byte_range(), &header)?;
    }
    edits.note("all tensors that the model saves for its backward pass, its weights included, are copied to the host and \
        back");
    Ok(())
}

/// Whether a statement computes an output, and runs no backward pass.
fn is_simple(statement: Node<'_>) -> bool {
    let inner = statement.named_child(0).filter(|_| statement.is(Kind::ExpressionStatement));
    inner.is_some_and(|inner| {
        let value = match Kind::of(&inner) {
            Kind::Assignment | Kind::AugmentedAssignment => inner.field(Field::Right),
            _ => None,
        };
        value.is_some()
    })
}

/// Rejects programs that already change what is saved, or how the model is called.
fn check_applicable(program: &Program<'_>) -> Result<(), Refusal> {
    for (module, call) in program.calls() {
        let qualified = program.called(module, call);
        let at = || program.at(module, call.span.start);
        match qualified.rsplit('.').next().unwrap_or_default() {
            "save_on_cpu" => {
                return Err(Refusal::done(format!("{} already offloads activations", at())));
            }
            "saved_tensors_hooks" => {
                let why = "already changes how tensors are saved for the backward pass";
                return Err(program.refuse(module, call.span.start, why));
            }
            "checkpoint" | "checkpoint_sequential" if qualified.starts_with("torch.") => {
                let why = "recomputes activations, which then need not be offloaded";
                return Err(program.refuse(module, call.span.start, why));
            }
            _ => {}
        }
    }
    compile::first_compiled(program).map_or(Ok(()), |(module, at)| {
        let why = "compiles the model: the compiler decides what is saved for the backward pass";
        Err(program.refuse(module, at, why))
    })
}
