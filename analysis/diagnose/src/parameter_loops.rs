//! Python loops over the parameters of a model that change one parameter per iteration: averages of
//! weights, and hand-written optimizers.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use ridgeline_optimize::rewrite::syntax::{callee, calls_in, object_of, reads, targets, written};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Module, last_name};

/// Calls in the condition of an `if` that do not read tensor values, so iterations do not differ by
/// them.
const VALUE_FREE_CALLS: [&str; 6] =
    ["len", "isinstance", "hasattr", "dim", "numel", "is_floating_point"];

/// Whether a loop iterates over parameters: of a model, of an optimizer's parameter group, or a
/// list of them.
pub(super) fn iterates_over_parameters(text: &Module, iterable: Node<'_>) -> bool {
    let over = written(text, iterable);
    let is_parameter_group = over.contains("[\"params\"]") || over.contains("['params']");
    let pairs = ["zip", "enumerate", "list", "reversed"];
    let is_pairs = iterable.is(Kind::Call) && pairs.contains(&callee(text, iterable).as_str());
    let parts = match iterable.field(Field::Arguments) {
        Some(arguments) if is_pairs => named_children(arguments),
        _ => vec![iterable],
    };
    is_parameter_group
        || names_parameters(&over)
        || parts.into_iter().any(|part| is_list_of_parameters(text, part))
}

fn names_parameters(written: &str) -> bool {
    written.contains("parameters()") || written.contains("state_dict()")
}

/// Whether a variable is `list(model.parameters())` or `[p for p in model.parameters() if …]`, or
/// has a name like `self.params`, as hand-written optimizers use it.
fn is_list_of_parameters(text: &Module, variable: Node<'_>) -> bool {
    let name = written(text, variable);
    if matches!(last_name(&name), "params" | "parameters") {
        return true;
    }
    let mut assignments = text.assignments.iter().filter(|one| one.target == name).peekable();
    let is_list = |value: Node<'_>| {
        let constructors = ["list", "tuple", "filter", "parameters", "named_parameters"];
        let kind_fits = match Kind::of(&value) {
            Kind::Call => constructors.contains(&last_name(&callee(text, value))),
            kind => kind == Kind::ListComprehension,
        };
        kind_fits && names_parameters(&written(text, value))
    };
    assignments.peek().is_some()
        && assignments.all(|one| text.node(&one.value).is_some_and(is_list))
}

/// Whether each iteration changes its own parameter and leaves nothing for the next one.
pub(super) fn updates_each_parameter(
    text: &Module,
    body: Node<'_>,
    loop_variables: &BTreeSet<String>,
) -> bool {
    let other_reads = BTreeSet::new();
    let mut body_state =
        LoopBody { text, own: loop_variables.clone(), other_reads, changes: false };
    body_state.block(body) && body_state.changes
}

/// What a loop iteration has done so far.
struct LoopBody<'t> {
    text: &'t Module,
    /// The iteration's own variables: its parameter, and those that it assigned.
    own: BTreeSet<String>,
    /// The other variables that it reads.
    other_reads: BTreeSet<String>,
    changes: bool,
}

impl LoopBody<'_> {
    /// Returns false if a statement may have other effects.
    fn block(&mut self, block: Node<'_>) -> bool {
        named_children(block).into_iter().all(|one| self.statement(one))
    }

    fn statement(&mut self, statement: Node<'_>) -> bool {
        match Kind::of(&statement) {
            Kind::PassStatement
            | Kind::ContinueStatement
            | Kind::AssertStatement
            | Kind::RaiseStatement => true,
            Kind::IfStatement | Kind::ElifClause | Kind::ElseClause => {
                named_children(statement).into_iter().all(|part| match Kind::of(&part) {
                    Kind::Block => self.block(part),
                    Kind::ElifClause | Kind::ElseClause => self.statement(part),
                    _ => self.condition_is_value_free(part),
                })
            }
            Kind::WithStatement => {
                let body = statement.field(Field::Body);
                let head = named_children(statement).into_iter().next();
                let head = head.map(|head| written(self.text, head)).unwrap_or_default();
                let is_harmless = head.contains("no_grad") || head.contains("inference_mode");
                is_harmless && body.is_some_and(|body| self.block(body))
            }
            Kind::ExpressionStatement => {
                statement.named_child(0).is_some_and(|inner| self.expression(inner))
            }
            _ => false,
        }
    }

    /// The condition of an `if`.
    fn condition_is_value_free(&mut self, condition: Node<'_>) -> bool {
        self.reads(condition);
        let calls = calls_in(condition);
        calls
            .into_iter()
            .all(|call| VALUE_FREE_CALLS.contains(&last_name(&callee(self.text, call))))
    }

    fn expression(&mut self, inner: Node<'_>) -> bool {
        let field = |name: Field| inner.field(name);
        match Kind::of(&inner) {
            // `average.mul_(decay)`
            Kind::Call => {
                let name = callee(self.text, inner);
                let last = last_name(&name);
                let is_in_place =
                    last.ends_with('_') && !last.ends_with("__") && last != "requires_grad_";
                let is_own = object_of(self.text, inner, last).is_some_and(|it| self.is_own(it));
                self.reads(inner);
                self.changes = true;
                is_in_place && is_own
            }
            Kind::AugmentedAssignment => {
                let (Some(left), Some(right)) = (field(Field::Left), field(Field::Right)) else {
                    return false;
                };
                self.reads(right);
                // `state["step"] += 1` is not a tensor operation.
                self.changes |= !matches!(Kind::of(&right), Kind::Integer | Kind::Float);
                self.is_own(left)
            }
            Kind::Assignment => {
                let (Some(left), Some(right)) = (field(Field::Left), field(Field::Right)) else {
                    return false;
                };
                self.reads(right);
                self.assigns_own(left, right)
            }
            _ => false,
        }
    }

    /// Whether the assignment target belongs to the iteration.
    fn assigns_own(&mut self, left: Node<'_>, right: Node<'_>) -> bool {
        match Kind::of(&left) {
            Kind::Attribute | Kind::Subscript => {
                let is_value = match left.field(Field::Attribute) {
                    Some(name) => matches!(written(self.text, name).as_str(), "data" | "grad"),
                    None => true,
                };
                self.changes |= right.is(Kind::BinaryOperator);
                is_value && self.is_own(left)
            }
            _ => {
                let names = targets(self.text, left);
                let is_left_over = !names.is_disjoint(&self.other_reads);
                self.own.extend(names);
                !is_left_over
            }
        }
    }

    /// `p.data`, `state["step"]`, `self.shadow[name]`
    fn is_own(&self, place: Node<'_>) -> bool {
        !reads(self.text, place).is_disjoint(&self.own)
    }

    fn reads(&mut self, node: Node<'_>) {
        let read = reads(self.text, node);
        self.other_reads.extend(read.into_iter().filter(|name| !self.own.contains(name)));
    }
}
