//! Gradients exchanged in bfloat16: a communication hook of `DistributedDataParallel`
//! (`torch.distributed.algorithms.ddp_comm_hooks`).

use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::imports;
use super::layout::Layout;
use super::program::Program;
use super::syntax::{statement_of, written};
use ridgeline_python::semantics::module::last_name;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};

/// The hook. Unlike float16, bfloat16 has the range of float32, so gradients do not overflow.
const HOOK: &str = "bf16_compress_hook";
const HOOKS: &str = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks";

/// Registers the hook where the model is wrapped.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    if let Some((module, call)) =
        program.calls().find(|(_, call)| call.name() == "register_comm_hook")
    {
        let at = program.at(module, call.span.start);
        return Err(Refusal::done(format!("{at} already registers a communication hook")));
    }
    let (module, call) = wrapper(program)?;
    let text = program.module(module);
    let at = call.start_byte();
    let refuse = |what: &str| Err(program.refuse(module, at, what));
    let given = program.arguments(module, call).and_then(|one| one.named("mixed_precision"));
    if given.is_some_and(|given| written(text, given) != "None") {
        return refuse("chooses the type of exchanged gradients by `mixed_precision`");
    }
    let assignment = call.parent().filter(|one| one.is(Kind::Assignment));
    let left = assignment.and_then(|one| one.field(Field::Left));
    let left = left.filter(|left| matches!(Kind::of(left), Kind::Identifier | Kind::Attribute));
    let statement = statement_of(call).filter(|one| one.is(Kind::ExpressionStatement));
    let (Some(left), Some(statement)) = (left, statement) else {
        return refuse("wraps the model inside a larger expression: assign it to a variable first");
    };
    let layout = Layout::of(text);
    if layout.indentation(statement.start_byte()).is_none()
        || !layout.ends_line(statement.end_byte())
    {
        return refuse("has several statements on one line: put each on its own line");
    }
    let Some(hook) = imports::imported(edits, module, text, HOOKS, HOOK) else {
        return refuse(&format!("needs the name `{HOOK}`, which is used for something else"));
    };
    let model = written(text, left);
    edits.after(module, statement, &[format!("{model}.register_comm_hook(None, {hook})")]);
    edits.note("gradients are rounded to bfloat16 before they are summed, which changes the results slightly");
    Ok(())
}

/// Returns the only call that wraps a model in `DistributedDataParallel`.
fn wrapper<'a>(program: &Program<'a>) -> Result<(usize, Node<'a>), Refusal> {
    let mut calls = program.calls().filter_map(|(module, call)| {
        let qualified = program.called(module, call);
        let is_wrapper = matches!(last_name(&qualified), "DistributedDataParallel" | "DDP");
        Some((module, program.node(module, call).filter(|_| is_wrapper)?))
    });
    let Some(first) = calls.next() else {
        let why = "no DistributedDataParallel model was found: apply `data-parallel` first";
        return Err(Refusal::not_understood(why));
    };
    match calls.next() {
        Some((module, call)) => {
            let what = "wraps another model in DistributedDataParallel: edit it by hand";
            Err(program.refuse(module, call.start_byte(), what))
        }
        None => Ok(first),
    }
}
