//! Outputs of models that are still used after a later call of the model.

use std::collections::BTreeSet;

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::models::Models;
use super::program::{Program, Scope};
use super::syntax::{callee, reads, statement_of, targets, within};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Module, last_name};

/// Methods whose result may share memory with the tensor.
const VIEWS: [&str; 20] = [
    "chunk",
    "contiguous",
    "cuda",
    "detach",
    "expand",
    "float",
    "flatten",
    "half",
    "permute",
    "reshape",
    "select",
    "split",
    "squeeze",
    "t",
    "to",
    "transpose",
    "type",
    "unbind",
    "unsqueeze",
    "view",
];
/// Methods that store their argument.
const STORES: [&str; 6] = ["append", "appendleft", "add", "extend", "insert", "put"];
/// Attributes of a tensor that are not tensors.
const FACTS: [&str; 4] = ["shape", "dtype", "device", "ndim"];
/// The maximum number of assignments followed from an output.
const MAX_ROUNDS: usize = 4;

/// Rejects programs that store an output of a model, return it, or pass it to a later call of the model.
pub(super) fn check_not_kept(program: &Program<'_>) -> Result<(), Refusal> {
    let models = Models::of(program);
    for (module, text) in program.modules().iter().enumerate() {
        let scopes = std::iter::once(None).chain((0..text.functions.len()).map(Some));
        for function in scopes.filter(|function| program.is_reached((module, *function))) {
            check_scope(program, &models, (module, function))?;
        }
    }
    Ok(())
}

fn check_scope(program: &Program<'_>, models: &Models, scope: Scope) -> Result<(), Refusal> {
    let (module, function) = scope;
    let text = program.module(module);
    // A model calls its layers by the same names, within the graph.
    let is_inside = function.is_some_and(|at| text.functions[at].name == "forward");
    let calls: Vec<Node<'_>> = text
        .calls
        .iter()
        .filter(|call| call.function == function && models.is_one(&call.callee))
        .filter_map(|call| program.node(module, call))
        .collect();
    if is_inside || calls.is_empty() {
        return Ok(());
    }
    let outputs = Outputs::of(text, function, models);
    let refuse = |node: Node<'_>, what: &str| {
        let what = format!(
            "{what}, and a CUDA graph would overwrite it in the next iteration: clone() it first"
        );
        Err(program.refuse(module, node.start_byte(), &what))
    };
    for call in &calls {
        let statement = statement_of(*call).unwrap_or(*call);
        let given = call.field(Field::Arguments).map(|list| reads(text, list)).unwrap_or_default();
        let later = outputs
            .names
            .iter()
            .find(|(name, assigned)| given.contains(name) && *assigned >= statement.start_byte());
        if let Some((name, _)) = later.filter(|_| is_in_loop(*call)) {
            return refuse(
                *call,
                &format!("passes `{name}`, an output of the model, to its next call"),
            );
        }
        let mut around = call.parent();
        while let Some(node) = around.filter(|node| node.start_byte() >= statement.start_byte()) {
            let kind = Kind::of(&node);
            let collects = matches!(
                kind,
                Kind::ListComprehension
                    | Kind::SetComprehension
                    | Kind::DictionaryComprehension
                    | Kind::GeneratorExpression
            );
            let body = node.field(Field::Body);
            if collects && body.is_some_and(|body| outputs.holds(text, body)) {
                return refuse(node, "collects outputs of the model");
            }
            around = node.parent();
        }
    }
    let Some(body) = body_of(text, function) else { return Ok(()) };
    for node in within(body) {
        match Kind::of(&node) {
            Kind::ReturnStatement | Kind::Yield
                if named_children(node).iter().any(|one| outputs.holds(text, *one)) =>
            {
                return refuse(node, "returns an output of the model");
            }
            Kind::Call => {
                let name = callee(text, node);
                let stores = name.contains('.') && STORES.contains(&last_name(&name));
                let given = node.field(Field::Arguments).filter(|_| stores);
                if given.is_some_and(|list| {
                    named_children(list).iter().any(|one| outputs.holds(text, *one))
                }) {
                    return refuse(node, "stores an output of the model");
                }
            }
            Kind::Assignment => {
                let to = node.field(Field::Left).filter(|left| left.is(Kind::Subscript));
                let value = node.field(Field::Right).filter(|_| to.is_some());
                if value.is_some_and(|value| outputs.holds(text, value)) {
                    return refuse(node, "stores an output of the model");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn body_of(text: &Module, function: Option<usize>) -> Option<Node<'_>> {
    match function {
        Some(at) => text.node(&text.functions.lookup(at)?.body),
        None => Some(text.index.tree()?.root_node()),
    }
}

fn is_in_loop(node: Node<'_>) -> bool {
    let mut at = node.parent();
    while let Some(node) = at.filter(|node| !node.is(Kind::FunctionDefinition)) {
        if matches!(Kind::of(&node), Kind::ForStatement | Kind::WhileStatement) {
            return true;
        }
        at = node.parent();
    }
    false
}

/// The variables of a function that may share memory with an output of a model.
struct Outputs<'m> {
    models: &'m Models,
    /// Names, and where they are assigned.
    names: BTreeSet<(String, usize)>,
}

impl<'m> Outputs<'m> {
    fn of(text: &Module, function: Option<usize>, models: &'m Models) -> Outputs<'m> {
        let mut outputs = Outputs { models, names: BTreeSet::new() };
        let own =
            text.assignments.iter().filter(|one| one.function == function && !one.is_augmented);
        let own: Vec<_> = own.collect();
        for _ in 0..MAX_ROUNDS {
            let before = outputs.names.len();
            for one in &own {
                let Some(value) = text.node(&one.value) else { continue };
                if outputs.holds(text, value) && !models.is_one(&one.target) {
                    outputs.names.insert((one.target.clone(), one.at.start));
                }
            }
            if outputs.names.len() == before {
                break;
            }
        }
        outputs
    }

    /// Whether an expression is an output of a model, a part of one, or a collection of them.
    fn holds(&self, text: &Module, value: Node<'_>) -> bool {
        match Kind::of(&value) {
            Kind::Identifier => {
                let name = text.text(&value.byte_range());
                self.names.iter().any(|(known, _)| known == name)
            }
            Kind::Attribute => {
                let name = value.field(Field::Attribute).map(|name| text.text(&name.byte_range()));
                if name.is_some_and(|name| FACTS.contains(&name)) {
                    return false;
                }
                let own = targets(text, value);
                let is_known = self.names.iter().any(|(known, _)| own.contains(known));
                is_known || value.field(Field::Object).is_some_and(|one| self.holds(text, one))
            }
            Kind::Subscript => value.field(Field::Value).is_some_and(|one| self.holds(text, one)),
            Kind::KeywordArgument | Kind::Pair => {
                value.field(Field::Value).is_some_and(|one| self.holds(text, one))
            }
            Kind::Tuple
            | Kind::List
            | Kind::Dictionary
            | Kind::ExpressionList
            | Kind::ParenthesizedExpression => {
                named_children(value).into_iter().any(|one| self.holds(text, one))
            }
            Kind::Call => {
                let name = callee(text, value);
                let function = value.field(Field::Function);
                let object = function.and_then(|function| function.field(Field::Object));
                self.models.is_one(&name)
                    || object.is_some_and(|object| {
                        VIEWS.contains(&last_name(&name)) && self.holds(text, object)
                    })
            }
            _ => false,
        }
    }
}
