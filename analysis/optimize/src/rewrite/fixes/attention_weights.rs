//! Attention weights that `nn.MultiheadAttention` returns and nothing uses. With `need_weights=False` it calls
//! `scaled_dot_product_attention`, which does not store them (PyTorch, `torch.nn.MultiheadAttention`).

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::program::Program;
use super::super::syntax::{everything, statement_of, written};
use super::TargetLines;
use super::attributes::{calls_of, layer_attributes};
use super::layers::{Candidate, change_all, switch};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;

const ARGUMENT: &str = "need_weights";
/// The position of the argument in `MultiheadAttention.forward`.
const POSITION: usize = 4;

/// Adds `need_weights=False` to calls whose weights nothing uses.
pub fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let calls = calls_without_use(program).into_iter();
    let found: Vec<Candidate<'a>> =
        calls.map(|(module, call)| Candidate::new(module, call, Vec::new())).collect();
    let change = |edits: &mut Edits<'a>, one: &Candidate<'a>| {
        let Ok(given) = given(program, one.module, one.creation) else {
            let what = "passes starred arguments to the attention";
            return Err(program.refuse(one.module, one.creation.start_byte(), what));
        };
        switch(program, edits, (one.module, one.creation), (ARGUMENT, "False"), given)
    };
    let nothing = "no call of nn.MultiheadAttention here returns weights that nothing uses";
    change_all(program, edits, at, &found, change, ("already returns no weights", nothing))
}

/// Returns the calls of `nn.MultiheadAttention` that compute weights which nothing uses: module and call.
pub fn unused_weights<'a>(program: &Program<'a>) -> Vec<(usize, Node<'a>)> {
    let computes = |(module, call): &(usize, Node<'a>)| {
        let text = program.module(*module);
        given(program, *module, *call)
            .is_ok_and(|given| given.is_none_or(|given| written(text, given) == "True"))
    };
    calls_without_use(program).into_iter().filter(computes).collect()
}

/// The value of the argument in a call.
///
/// # Errors
/// If starred arguments may contain it.
fn given<'a>(program: &Program<'a>, module: usize, call: Node<'a>) -> Result<Option<Node<'a>>, ()> {
    let arguments = program.arguments(module, call).ok_or(())?;
    if arguments.has_star || !arguments.splats.is_empty() {
        return Err(());
    }
    Ok(arguments.named(ARGUMENT).or(arguments.positional.get(POSITION).copied()))
}

/// The calls whose second result nothing uses.
fn calls_without_use<'a>(program: &Program<'a>) -> Vec<(usize, Node<'a>)> {
    let attributes = layer_attributes(program);
    let attentions = attributes.iter().filter(|one| one.layer == "MultiheadAttention");
    let calls = attentions
        .flat_map(|one| calls_of(program, one).into_iter().map(move |call| (one.module, call)));
    calls.filter(|(module, call)| is_unused(program.module(*module), *call)).collect()
}

/// Whether only the first result of a call is used: `attention(…)[0]`, or `x, _ = attention(…)`.
fn is_unused(text: &Module, call: Node<'_>) -> bool {
    let Some(parent) = call.parent() else { return false };
    match Kind::of(&parent) {
        Kind::Subscript if parent.field(Field::Value) == Some(call) => {
            parent.field(Field::Subscript).is_some_and(|index| written(text, index) == "0")
        }
        Kind::Assignment if parent.field(Field::Right) == Some(call) => {
            let Some(targets) = parent.field(Field::Left) else { return false };
            let [_, weights] = named_children(targets)[..] else { return false };
            matches!(Kind::of(&targets), Kind::PatternList | Kind::TuplePattern)
                && weights.is(Kind::Identifier)
                && !is_read_elsewhere(text, weights)
        }
        _ => false,
    }
}

/// Whether a variable's function also reads it. Other results that are assigned to it do not count.
fn is_read_elsewhere(text: &Module, variable: Node<'_>) -> bool {
    let name = written(text, variable);
    let mut around = statement_of(variable);
    while let Some(node) = around.filter(|node| !node.is(Kind::FunctionDefinition)) {
        around = node.parent();
    }
    let Some(function) = around else { return true };
    let mentions = everything(function).into_iter().filter(|node| {
        node.is(Kind::Identifier) && written(text, *node) == name && !is_target(*node)
    });
    mentions.count() > 0
}

/// Whether a name is one of several targets of an assignment.
fn is_target(node: Node<'_>) -> bool {
    let targets = node
        .parent()
        .filter(|parent| matches!(Kind::of(parent), Kind::PatternList | Kind::TuplePattern));
    let assignment = targets.and_then(|targets| Some((targets, targets.parent()?)));
    assignment.is_some_and(|(targets, assignment)| {
        assignment.is(Kind::Assignment) && assignment.field(Field::Left) == Some(targets)
    })
}
