//! Values that a program accumulates over iterations: in a variable, or in an object of its own
//! class (`losses.update(loss, n)` of an `AverageMeter`).

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::program::Program;
use super::super::syntax::{callee, within, written};
use ridgeline_python::semantics::functions::{Callable, callable};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Assignment, Module};
use ridgeline_python::semantics::trace::Place;

/// Returns the value added by an assignment: `value` in `total += value`, `total = total + value`
/// and `mean = 0.9 * mean + value`.
pub fn added<'a>(text: &'a Module, one: &Assignment) -> Option<Node<'a>> {
    let value = text.node(&one.value)?;
    let operator = |node: Node<'a>| node.field(Field::Operator).map(|it| it.kind());
    if one.is_augmented {
        return (operator(value.parent()?) == Some("+=")).then_some(value);
    }
    let side = |node: Node<'a>, name: &str| {
        node.child_by_field_name(name).filter(|_| node.is(Kind::BinaryOperator))
    };
    let (left, right) = (side(value, "left")?, side(value, "right")?);
    let is_itself = |node: Node<'a>| written(text, node).replace('\'', "\"") == one.target;
    let is_part_of_itself = |node: Node<'a>| {
        let is_scaled = matches!(operator(node), Some("*" | "/"));
        let sides = [side(node, "left"), side(node, "right")];
        is_itself(node) || (is_scaled && sides.into_iter().flatten().any(is_itself))
    };
    match (operator(value), is_part_of_itself(left), is_part_of_itself(right)) {
        (Some("+"), true, false) => Some(right),
        (Some("+"), false, true) => Some(left),
        _ => None,
    }
}

/// A value that a call adds to an object of the program.
pub struct MeterUpdate<'a> {
    /// Name of the object in the call: `losses`.
    pub object: String,
    /// The argument of the call.
    pub value: Node<'a>,
    /// Where the method adds it: the module and the added expression.
    pub sum: (usize, Node<'a>),
}

/// Returns the value that `losses.update(loss, n)` adds to a number or list of `losses`, which is
/// an object of a class of the program.
pub fn metered<'a>(
    program: &Program<'a>,
    module: usize,
    call: Node<'a>,
) -> Option<MeterUpdate<'a>> {
    let text = program.module(module);
    let name = callee(text, call);
    let object = name.rsplit_once('.')?.0.to_owned();
    let place = Place { module, span: call.byte_range() };
    let Callable::Function(there, at) = callable(&program.tracer, &place, &name)? else {
        return None;
    };
    let inner = program.module(there);
    let method = inner.functions.lookup(at).filter(|one| one.decorators.is_empty())?;
    method.class.filter(|_| is_always_one(text, &object))?;
    let arguments = program.arguments(module, call)?;
    method.parameters.iter().skip(1).enumerate().find_map(|(place, parameter)| {
        let given = arguments.positional.get(place).copied();
        let value = given.or_else(|| arguments.named(&parameter.name))?;
        let sum = sum_of(inner, at, &parameter.name).filter(|_| !parameter.is_rest)?;
        Some(MeterUpdate { object: object.clone(), value, sum: (there, sum) })
    })
}

/// Whether all assignments of a variable call the same function or class.
fn is_always_one(text: &Module, variable: &str) -> bool {
    let made = text.assignments.iter().filter(|one| one.target == variable);
    let mut makers = made.map(|one| {
        let call = text.node(&one.value).filter(|value| value.is(Kind::Call))?;
        Some(callee(text, call))
    });
    let first = makers.next().flatten();
    first.is_some() && makers.all(|other| other == first)
}

/// Returns where a method adds a parameter with its graph to an attribute that starts as a number
/// or an empty list and that the method does not shorten.
fn sum_of<'a>(text: &'a Module, method: usize, parameter: &str) -> Option<Node<'a>> {
    // Text that may remove the graph or otherwise avoid retaining it.
    const GRAPH_REMOVERS: [&str; 9] = [
        "no_grad",
        "inference_mode",
        "item(",
        "detach",
        "isinstance",
        "pop",
        "clear",
        "del ",
        "[-",
    ];
    let function = text.functions.lookup(method)?;
    let source = text.text(&function.span);
    let own = || text.assignments.iter().filter(|one| one.function == Some(method));
    let is_reassigned = own().any(|one| one.target == parameter);
    if is_reassigned || GRAPH_REMOVERS.iter().any(|word| source.contains(word)) {
        return None;
    }
    let starts_empty = |attribute: &str, is_list: bool| {
        let is_in_class = |one: &&Assignment| {
            let class = one.function.and_then(|at| text.functions.lookup(at)?.class);
            one.target == attribute && class == function.class
        };
        let others = text.assignments.iter().filter(is_in_class);
        let mut others = others.filter(|one| added(text, one).is_none()).peekable();
        let is_empty = |one: &Assignment| {
            let value = text.text(&one.value);
            let is_number = || value.parse::<f64>().is_ok() || value.starts_with("torch.zeros(");
            let is_it = if is_list { matches!(value, "[]" | "list()") } else { is_number() };
            is_it && one.function != Some(method)
        };
        attribute.starts_with("self.") && others.peek().is_some() && others.all(is_empty)
    };
    let sums = own().filter(|one| starts_empty(&one.target, false));
    let sums = sums.filter_map(|one| added(text, one));
    let calls = text.calls.iter().filter(|call| call.function == Some(method));
    let lists = calls.filter_map(|call| {
        call.callee.strip_suffix(".append").filter(|list| starts_empty(list, true))?;
        let node = text.node(&call.span).filter(|node| node.is(Kind::Call))?;
        named_children(node.field(Field::Arguments)?).first().copied()
    });
    sums.chain(lists).find(|value| retains_graph(text, *value, parameter))
}

/// Whether an expression retains the graph of a parameter: `value`, `value * n`.
fn retains_graph(text: &Module, node: Node<'_>, parameter: &str) -> bool {
    let nodes = within(node);
    let is_plain = |one: &Node<'_>| {
        let kinds = ["identifier", "binary_operator", "integer", "float", "attribute"];
        kinds.contains(&one.kind()) || one.is(Kind::ParenthesizedExpression)
    };
    let is_it = |one: &Node<'_>| {
        // `value.data` has no graph.
        let is_attribute_access = one.parent().is_some_and(|parent| parent.is(Kind::Attribute));
        one.is(Kind::Identifier) && written(text, *one) == parameter && !is_attribute_access
    };
    nodes.iter().all(is_plain) && nodes.iter().any(is_it)
}
