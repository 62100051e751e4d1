//! Loops that read the elements of tensors one by one: `for i in range(n): labels[i].item()`.

use std::collections::BTreeSet;

use super::loops::{UNSUPPORTED, trains_or_draws};
use ridgeline_optimize::rewrite::syntax::{
    callee, calls_in, object_of, reads, targets, within, written,
};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Module, last_name};
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

/// Functions and methods of Python's own types.
const PYTHON_CALLS: [&str; 14] = [
    "append", "extend", "add", "update", "get", "int", "float", "str", "len", "abs", "min", "max",
    "round", "print",
];

/// Whether each iteration of a `for` statement calls `.item()` on an element, or on what operators
/// of PyTorch compute from it, and nothing that an earlier iteration wrote is needed for that.
pub(crate) fn reads_elements(text: &Module, node: Node<'_>) -> bool {
    let field = |name: Field| node.field(name);
    let (Some(left), Some(iterable), Some(body)) =
        (field(Field::Left), field(Field::Right), field(Field::Body))
    else {
        return false;
    };
    let calls = calls_in(body);
    let is_excluded = |call: &Node<'_>| {
        let is_read = ["item", "print"].contains(&last_name(&callee(text, *call)));
        !is_read && trains_or_draws(text, *call)
    };
    if within(body).into_iter().any(|one| UNSUPPORTED.contains(&one.kind()))
        || calls.iter().any(is_excluded)
    {
        return false;
    }
    let elements = Elements {
        text,
        variables: targets(text, left),
        is_index: iterable.is(Kind::Call) && callee(text, iterable) == "range",
        is_together: iterable.is(Kind::Call)
            && ["zip", "enumerate"].contains(&callee(text, iterable).as_str()),
        statements: named_children(body),
    };
    let mut read = calls.iter().filter_map(|call| object_of(text, *call, "item"));
    read.any(|object| elements.has(object, true))
        && !calls.iter().any(|call| elements.is_passed_on(*call))
}

/// What a loop goes over.
struct Elements<'a> {
    text: &'a Module,
    variables: BTreeSet<String>,
    /// The variable is an index: `for i in range(n)`.
    is_index: bool,
    /// The variables are elements: `for a, b in zip(x, y)`.
    is_together: bool,
    statements: Vec<Node<'a>>,
}

impl Elements<'_> {
    /// Whether an expression is an element, or is computed from one by operators of PyTorch. A
    /// variable that the loop's body assigns once may be one (`is_followed`).
    fn has(&self, expression: Node<'_>, is_followed: bool) -> bool {
        let name = written(self.text, expression);
        let is_name = expression.is(Kind::Identifier);
        if is_name && self.is_together && self.variables.contains(&name) {
            return true;
        }
        let assigned: Vec<Node<'_>> = self
            .assignments()
            .filter(|(targets, _)| targets.contains(&name))
            .map(|(_, value)| value)
            .collect();
        if let ([value], true, true) = (assigned.as_slice(), is_name, is_followed) {
            return self.has(*value, false);
        }
        let own: BTreeSet<String> = self.assignments().flat_map(|(targets, _)| targets).collect();
        let is_at_index = |one: Node<'_>| {
            let parts = if one.is(Kind::Subscript) { named_children(one) } else { Vec::new() };
            matches!(parts[..], [_, index] if self.variables.contains(&written(self.text, index)))
        };
        self.is_index
            && reads(self.text, expression).is_disjoint(&own)
            && within(expression).into_iter().any(is_at_index)
            && calls_in(expression).into_iter().all(|call| self.is_operator(call))
    }

    /// Whether a call is one of PyTorch: a function, or a method of an expression with an index.
    fn is_operator(&self, call: Node<'_>) -> bool {
        let object = call.field(Field::Function).and_then(|function| function.field(Field::Object));
        let Some(object) = object else { return false };
        let is_module =
            ["torch", "F", "torch.nn.functional"].contains(&written(self.text, object).as_str());
        is_module || within(object).into_iter().any(|one| one.is(Kind::Subscript))
    }

    /// Whether a call passes an element to a function that may be a model: `net(x[i])`.
    fn is_passed_on(&self, call: Node<'_>) -> bool {
        let mut own = self.variables.clone();
        own.extend(self.assignments().flat_map(|(targets, _)| targets));
        let reads_own = |node: Option<Node<'_>>| {
            node.is_some_and(|node| !reads(self.text, node).is_disjoint(&own))
        };
        let function = call.field(Field::Function);
        let is_method = reads_own(function.and_then(|function| function.field(Field::Object)));
        reads_own(call.field(Field::Arguments))
            && !is_method
            && !self.is_operator(call)
            && !PYTHON_CALLS.contains(&last_name(&callee(self.text, call)))
    }

    /// The assignments of the body: the names that each assigns, and its value.
    fn assignments(&self) -> impl Iterator<Item = (BTreeSet<String>, Node<'_>)> {
        let nodes = self.statements.iter().flat_map(|one| within(*one));
        nodes.filter_map(|one| {
            let is_one = matches!(Kind::of(&one), Kind::Assignment | Kind::AugmentedAssignment);
            let left = one.field(Field::Left).filter(|_| is_one)?;
            Some((targets(self.text, left), one.field(Field::Right)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::with_program;
    use crate::loops::{LoopKind, loops};

    #[track_caller]
    fn check(body: &str, expected: bool) {
        let body = body.replace('\n', "\n    ");
        let text = format!(
            "import torch\ndef count(x, y, net, table):\n    {body}\n\ncount(1, 2, 3, 4)\n"
        );
        let found = with_program(&text, |program| {
            loops(program).iter().any(|one| one.kind == LoopKind::Elements)
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn elements_by_index() {
        check("for i in range(len(y)):\n    table[y[i].item()] += 1", true);
        check(
            "for i in range(len(y)):\n    p = torch.argmax(x[i]).item()\n    table[y[i]][p] += 1",
            true,
        );
        check(
            "for i in range(9):\n    p = x[i].argmax()\n    if p == 3:\n        table[p.item()] += 1",
            true,
        );
        check("for i in range(9):\n    right += (x[i].argmax() == y[i]).item()", true);
    }

    #[test]
    fn elements_together() {
        check("for p, t in zip(x.argmax(1), y):\n    table[t.item()][p.item()] += 1", true);
        check("for i, t in enumerate(y):\n    table[t.item()].append(i)", true);
    }

    #[test]
    fn batches_and_models_are_not_elements() {
        // Batches of a loader, and lists of anything.
        check("for a, b in loader:\n    total += (net(a) == b).sum().item()", false);
        check("for a in x:\n    total += a.item()", false);
        check("for i in range(9):\n    total += net(x[i]).item()", false);
        check("for i in range(9):\n    total += table.net(x[i]).item()", false);
        check("for a, b in zip(x, y):\n    total += net(a).item()", false);
        check(
            "for i, (a, b) in enumerate(loader):\n    out = net(a)\n    total += b.item()",
            false,
        );
        check("for i, b in enumerate(y):\n    table.append(int(b.item()))", true);
        // The element is not that of this iteration, or depends on an earlier one.
        check("for i in range(9):\n    total += x.sum().item()", false);
        check("for i in range(9):\n    x[i + 1] = x[i] * 2\n    total += x[i].item()", false);
        check("for i in range(9):\n    h = torch.tanh(h + x[i])\n    total += h.item()", false);
        // It trains.
        check("for i in range(9):\n    x[i].backward()\n    total += x[i].item()", false);
    }
}
