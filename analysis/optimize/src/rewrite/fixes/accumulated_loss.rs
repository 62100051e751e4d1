//! A loss that is accumulated with its autograd graph, which keeps the activations of every
//! iteration alive.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::forward::{Backward, backwards};
use super::super::program::Program;
use super::super::syntax::{callee, object_of, within, written};
use super::TargetLines;
use super::sums::{added, metered};
use ridgeline_python::semantics::module::{Call, Module};

/// Calls whose result has no autograd graph.
const WITHOUT_GRAPH: [&str; 5] = ["item", "detach", "tolist", "numpy", "float"];

/// Attributes of tensors that are not methods.
const TENSOR_ATTRIBUTES: [&str; 15] = [
    "shape",
    "data",
    "grad",
    "grad_fn",
    "dtype",
    "device",
    "requires_grad",
    "ndim",
    "is_leaf",
    "T",
    "mT",
    "H",
    "mH",
    "real",
    "imag",
];

/// Methods of dictionaries that tensors do not have.
const DICTIONARY_METHODS: [&str; 5] = ["items", "keys", "get", "update", "pop"];

/// Writes `total += loss.detach()` and `losses.append(loss.detach())`.
pub fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    let backwards = backwards(program)?;
    for backward in &backwards {
        let (module, function) = backward.scope;
        let text = program.module(module);
        let loss = written(text, backward.loss);
        if !matches!(Kind::of(&backward.loss), Kind::Identifier | Kind::Attribute) {
            continue;
        }
        let own = text.assignments.iter().filter(|one| one.function == function);
        // A variable that a backward pass starts from needs its graph.
        let accumulated = own.filter(|one| !is_backward_root(program, &backwards, &one.target));
        let values = accumulated.filter_map(|one| added(text, one));
        let appended = text.calls.iter().filter(|call| call.function == function);
        let appended =
            appended.filter_map(|call| appended_value(program, &backwards, module, call));
        for value in values.chain(appended) {
            if !at.includes(program, module, value) {
                continue;
            }
            for name in mentions_of(text, value, &loss) {
                if has_no_graph(text, name, value) {
                    done.get_or_insert(program.at(module, value.start_byte()));
                } else {
                    edits.replace(module, name.byte_range(), format!("{loss}.detach()"));
                }
            }
        }
    }
    if edits.is_empty() && !at.is_empty() {
        others(program, edits, &backwards, at);
    }
    match done {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("{at} already accumulates it without its graph"))),
        None => {
            Err(Refusal::not_understood("no loss that requires a gradient is accumulated here"))
        }
    }
}

/// Detaches other values at the line of a finding, which also retain their graphs: `total +=
/// criterion(out, y)`.
fn others<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    backwards: &[Backward<'a>],
    at: &TargetLines<'_>,
) {
    for (module, text) in program.modules().iter().enumerate() {
        let accumulated = text.assignments.iter();
        let accumulated =
            accumulated.filter(|one| !is_backward_root(program, backwards, &one.target));
        let values = accumulated.filter_map(|one| added(text, one));
        let calls = text.calls.iter();
        let appended = calls.filter_map(|call| appended_value(program, backwards, module, call));
        let metered = text.calls.iter().filter_map(|call| {
            let node = program.node(module, call)?;
            at.includes(program, module, node).then(|| metered(program, module, node))?
        });
        for value in values.chain(appended).chain(metered.map(|one| one.value)) {
            let is_plain = matches!(
                Kind::of(&value),
                Kind::Identifier | Kind::Attribute | Kind::Call | Kind::Subscript
            );
            let mut parts = within(value).into_iter();
            let is_known = !parts.any(|part| has_no_graph(text, part, value));
            let is_one = !holds_tensors(text, value);
            if is_plain && is_known && is_one && at.includes(program, module, value) {
                edits.insert(module, value.end_byte(), ".detach()");
            }
        }
    }
}

/// Whether a variable is a dictionary or another object that contains tensors and has no `detach`:
/// its function reads `out["loss"]`, `out.logits` or `out.items()`, or runs a backward pass from
/// `out[0]`.
pub fn holds_tensors(text: &Module, variable: Node<'_>) -> bool {
    if !variable.is(Kind::Identifier) {
        return false;
    }
    let name = written(text, variable);
    let is_it = |node: Option<Node<'_>>| node.is_some_and(|node| written(text, node) == name);
    let is_backward_root = |node: Node<'_>| {
        std::iter::successors(node.parent(), |node| node.parent())
            .take_while(|around| !around.is(Kind::Block))
            .any(|around| around.is(Kind::Call) && callee(text, around).ends_with("backward"))
    };
    let holds = |node: Node<'_>| {
        let field = |name: Field| node.field(name);
        match Kind::of(&node) {
            Kind::Subscript => {
                let is_key = || field(Field::Subscript).is_some_and(|key| key.is(Kind::String));
                is_it(field(Field::Value)) && (is_key() || is_backward_root(node))
            }
            Kind::Attribute => {
                let read =
                    field(Field::Attribute).map(|read| written(text, read)).unwrap_or_default();
                let is_method = node.parent().is_some_and(|parent| parent.is(Kind::Call));
                let is_held = match is_method {
                    true => DICTIONARY_METHODS.contains(&read.as_str()),
                    false => !TENSOR_ATTRIBUTES.contains(&read.as_str()),
                };
                is_held && is_it(field(Field::Object))
            }
            _ => false,
        }
    };
    let function = text.function_at(variable.start_byte()).and_then(|at| text.functions.lookup(at));
    let scope = match function {
        Some(function) => text.node(&function.body),
        None => text.index.tree().map(|tree| tree.root_node()),
    };
    scope.is_some_and(|scope| within(scope).into_iter().any(holds))
}

/// Whether a backward pass starts from a variable.
fn is_backward_root(program: &Program<'_>, backwards: &[Backward<'_>], variable: &str) -> bool {
    backwards.iter().any(|one| {
        let text = program.module(one.scope.0);
        mentions_of(text, one.loss, variable).next().is_some()
    })
}

/// Returns the value appended to a list: `losses.append(loss)`.
fn appended_value<'a>(
    program: &Program<'a>,
    backwards: &[Backward<'a>],
    module: usize,
    call: &Call,
) -> Option<Node<'a>> {
    let node = program.node(module, call).filter(|_| call.name() == "append")?;
    let text = program.module(module);
    let list = object_of(text, node, "append")?;
    // `sum(losses).backward()`
    if is_backward_root(program, backwards, &written(text, list)) {
        return None;
    }
    program.arguments(module, node)?.positional.first().copied()
}

/// Returns the reads of a variable in an expression.
fn mentions_of<'t>(
    text: &'t Module,
    value: Node<'t>,
    variable: &'t str,
) -> impl Iterator<Item = Node<'t>> {
    let all = within(value).into_iter();
    all.filter(move |node| {
        matches!(Kind::of(node), Kind::Identifier | Kind::Attribute)
            && written(text, *node) == variable
    })
}

/// Whether the use of a variable in an expression has no graph: `loss.item()`, `float(loss)`.
fn has_no_graph(text: &Module, name: Node<'_>, value: Node<'_>) -> bool {
    let mut node = name;
    while let Some(around) = node.parent().filter(|_| node.id() != value.id()) {
        if around.is(Kind::Call)
            && let Some(function) = around.field(Field::Function)
        {
            let called = written(text, function);
            let last = called.rsplit('.').next().unwrap_or_default();
            if WITHOUT_GRAPH.contains(&last) {
                return true;
            }
        }
        node = around;
    }
    // `loss.data`
    name.parent().is_some_and(|parent| written(text, parent).ends_with(".data"))
}
