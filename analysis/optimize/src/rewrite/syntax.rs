//! Small queries on a syntax tree.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;

/// The maximum number of nodes inspected by one query.
const MAX_NODES: usize = 50_000;

/// Returns the statement that contains a node: a child of a block or of the file.
pub fn statement_of(node: Node<'_>) -> Option<Node<'_>> {
    let mut node = node;
    while let Some(parent) = node.parent() {
        if matches!(Kind::of(&parent), Kind::Block | Kind::Module) {
            return Some(node);
        }
        node = parent;
    }
    None
}

/// Returns a node and its descendants in text order. Functions and classes defined inside are
/// skipped, because they run at another time.
pub fn within(node: Node<'_>) -> Vec<Node<'_>> {
    below(node, false)
}

/// Returns a node and its descendants, including those in functions and classes.
pub fn everything(node: Node<'_>) -> Vec<Node<'_>> {
    below(node, true)
}

fn below(node: Node<'_>, into_definitions: bool) -> Vec<Node<'_>> {
    let mut found = vec![node];
    let mut cursor = node.walk();
    if !cursor.goto_first_child() {
        return found;
    }
    loop {
        let at = cursor.node();
        let is_definition = !into_definitions
            && matches!(
                Kind::of(&at),
                Kind::FunctionDefinition | Kind::ClassDefinition | Kind::Lambda
            );
        if at.is_named() && !is_definition {
            found.push(at);
        }
        if found.len() >= MAX_NODES {
            return found;
        }
        if !is_definition && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() || cursor.node() == node {
                return found;
            }
        }
    }
}

/// Returns the calls in a node.
pub fn calls_in(node: Node<'_>) -> Vec<Node<'_>> {
    within(node).into_iter().filter(|node| node.is(Kind::Call)).collect()
}

/// Returns the callee without whitespace: `self.model`.
pub fn callee(module: &Module, call: Node<'_>) -> String {
    call.field(Field::Function).map(|one| written(module, one)).unwrap_or_default()
}

/// Returns the text of a node without whitespace.
pub fn written(module: &Module, node: Node<'_>) -> String {
    module.text(&node.byte_range()).chars().filter(|c| !c.is_whitespace()).collect()
}

/// Returns the object of a method call if the method has this name.
pub fn object_of<'t>(module: &Module, call: Node<'t>, method: &str) -> Option<Node<'t>> {
    let function = call.field(Field::Function)?;
    let name = function.field(Field::Attribute)?;
    let object = function.field(Field::Object)?;
    (module.text(&name.byte_range()) == method).then_some(object)
}

/// Returns a name or an attribute of `self`, or `None` for other nodes.
fn variable(module: &Module, node: Node<'_>) -> Option<String> {
    match Kind::of(&node) {
        Kind::Identifier => Some(module.text(&node.byte_range()).to_owned()),
        Kind::Attribute => {
            let object = node.field(Field::Object)?;
            let is_self =
                object.is(Kind::Identifier) && module.text(&object.byte_range()) == "self";
            is_self.then(|| written(module, node))
        }
        _ => None,
    }
}

/// Returns the variables that an expression or a statement reads: names, and attributes of `self`.
pub fn reads(module: &Module, node: Node<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![node];
    while let Some(node) = waiting.pop() {
        if found.len() > 1000 {
            break;
        }
        if let Some(name) = variable(module, node) {
            found.insert(name);
            continue;
        }
        match Kind::of(&node) {
            Kind::KeywordArgument => waiting.extend(node.field(Field::Value)),
            Kind::Attribute => waiting.extend(node.field(Field::Object)),
            Kind::Assignment => {
                waiting.extend(node.field(Field::Right));
                // `total[i] = …` reads `total`.
                let left = node.field(Field::Left);
                waiting.extend(left.filter(|left| left.is(Kind::Subscript)));
            }
            Kind::FunctionDefinition | Kind::ClassDefinition => {}
            _ => waiting.extend(named_children(node)),
        }
    }
    found
}

/// Returns the variables that a statement assigns, including nested statements. `x.append(…)`
/// changes `x`.
pub fn writes(module: &Module, statement: Node<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for node in within(statement) {
        let target = match Kind::of(&node) {
            Kind::Assignment
            | Kind::AugmentedAssignment
            | Kind::ForStatement
            | Kind::ForInClause => node.field(Field::Left),
            Kind::NamedExpression => node.field(Field::Name),
            Kind::AsPattern => node.field(Field::Alias),
            Kind::Call => ["append", "update", "add_", "extend"]
                .iter()
                .find_map(|method| object_of(module, node, method)),
            _ => None,
        };
        if let Some(target) = target {
            found.extend(targets(module, target));
        }
    }
    found
}

/// Returns the variables of a target: `a, (b, self.c)`, `d[0]`, `e.f`.
pub fn targets(module: &Module, target: Node<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![target];
    while let Some(node) = waiting.pop() {
        if let Some(name) = variable(module, node) {
            found.insert(name);
            continue;
        }
        match Kind::of(&node) {
            Kind::Subscript => waiting.extend(node.field(Field::Value)),
            Kind::Attribute => waiting.extend(node.field(Field::Object)),
            _ => waiting.extend(named_children(node).into_iter().take(64)),
        }
    }
    found
}

/// Whether a text contains a name as a whole word.
pub fn mentions(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + name.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}
