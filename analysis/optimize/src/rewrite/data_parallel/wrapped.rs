//! The variables that hold the wrapped model, and what is done with them.

use ridgeline_python::semantics::functions::{Callable, callable};
use ridgeline_python::semantics::module::last_name;
use ridgeline_python::semantics::trace::Place;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::layout::Layout;
use super::super::program::{Program, Scope};
use super::super::syntax::{callee, everything, written};
use super::is_part_of_name;

/// Methods that mean the same for a model and its wrapper.
const SHARED: [&str; 9] = [
    "parameters",
    "named_parameters",
    "train",
    "eval",
    "training",
    "zero_grad",
    "requires_grad_",
    "forward",
    "__class__",
];
/// Methods that have to be called on the model itself, because the wrapper changes the names of its parameters.
const OF_THE_MODEL: [&str; 2] = ["state_dict", "load_state_dict"];
/// Functions that may receive the wrapped model.
const RECEIVERS: [&str; 5] = ["print", "len", "id", "summary", "watch"];
/// The maximum number of variables followed.
const MAX_NAMES: usize = 64;

/// The model, and where it is wrapped.
pub(super) struct WrappedModel<'a> {
    /// The function in which it is wrapped.
    pub scope: Scope,
    pub variable: String,
    /// The statement after which it is wrapped.
    pub statement: Node<'a>,
}

/// Whether a method means the same for a model and its wrapper.
pub(super) fn is_shared(method: &str) -> bool {
    SHARED.contains(&method) && method != "forward"
}

/// A variable that holds the wrapped model. An attribute belongs to its class.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    module: usize,
    function: Option<usize>,
    class: Option<usize>,
    variable: String,
}

impl Name {
    fn new(program: &Program<'_>, (module, function): Scope, variable: &str) -> Name {
        let class = variable.contains('.').then(|| program.class_of((module, function))).flatten();
        let function = if class.is_some() { None } else { function };
        Name { module, function, class, variable: variable.to_owned() }
    }

    /// Whether a name in a function means this variable.
    fn is_meant_in(&self, program: &Program<'_>, function: Option<usize>) -> bool {
        let text = program.module(self.module);
        if self.class.is_some() {
            return program.class_of((self.module, function)) == self.class;
        }
        let mut at = function;
        while let Some(one) = at.filter(|_| at != self.function) {
            let Some(found) = text.functions.lookup(one) else { return false };
            let is_parameter = found.parameters.iter().any(|it| it.name == self.variable);
            let is_assigned = text.assignments.iter().any(|it| {
                it.function == Some(one) && it.class.is_none() && it.target == self.variable
            });
            if is_parameter || is_assigned {
                return false;
            }
            at = found.outer;
        }
        at == self.function
    }
}

/// Rejects uses of the model that its wrapper does not support. Its state becomes that of the model itself, so that
/// files stay the same.
pub(super) fn check_uses<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    model: &WrappedModel<'a>,
) -> Result<(), Refusal> {
    let mut names = vec![Name::new(program, model.scope, &model.variable)];
    let mut next = 0;
    while let Some(name) = names.get(next).cloned() {
        next += 1;
        let text = program.module(name.module);
        let Some(tree) = text.index.tree() else { continue };
        for node in everything(tree.root_node()) {
            let is_name = matches!(Kind::of(&node), Kind::Identifier | Kind::Attribute);
            if !is_name || written(text, node) != name.variable || is_part_of_name(node) {
                continue;
            }
            let function = text.function_at(node.start_byte());
            let is_before = (name.module, function) == model.scope
                && node.end_byte() <= model.statement.end_byte();
            if is_before || !name.is_meant_in(program, function) {
                continue;
            }
            let scope = (name.module, function);
            let more = use_of(program, edits, scope, node)?;
            for one in more {
                if names.len() >= MAX_NAMES {
                    return Err(Refusal::not_understood("the model is in too many variables"));
                }
                if !names.contains(&one) {
                    names.push(one);
                }
            }
        }
    }
    Ok(())
}

/// Checks one use of the wrapped model. Returns the other variables that it gets into.
fn use_of(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    scope: Scope,
    node: Node<'_>,
) -> Result<Vec<Name>, Refusal> {
    let (module, _) = scope;
    let text = program.module(module);
    let Some(parent) = node.parent() else { return Ok(Vec::new()) };
    let is = |field: Field| parent.field(field).is_some_and(|one| one.id() == node.id());
    let variable = written(text, node);
    let refuse = |what: String| Err(program.refuse(module, node.start_byte(), &what));
    match Kind::of(&parent) {
        Kind::Attribute => {
            let name = parent.field(Field::Attribute).map(|name| text.text(&name.byte_range()));
            let name = name.unwrap_or_default();
            if OF_THE_MODEL.contains(&name) {
                edits.replace(module, node.byte_range(), itself(program, module, &variable));
            } else if !is_shared(name) {
                let what = format!(
                    "uses `{variable}.{name}`, which DistributedDataParallel does not have"
                );
                return refuse(what);
            }
            Ok(Vec::new())
        }
        Kind::Call if is(Field::Function) => Ok(Vec::new()),
        Kind::ArgumentList | Kind::KeywordArgument => {
            passed(program, edits, scope, node).map(|one| one.into_iter().collect())
        }
        Kind::Assignment if is(Field::Right) => {
            let left = parent.field(Field::Left).map(|left| written(text, left));
            let is_plain = |left: &String| {
                !left.contains([',', '[', '('])
                    && (!left.contains('.') || left.starts_with("self."))
            };
            match left.filter(is_plain) {
                Some(left) => Ok(vec![Name::new(program, scope, &left)]),
                None => refuse(format!("stores `{variable}`, which is the wrapped model")),
            }
        }
        Kind::Assignment if is(Field::Left) => {
            refuse(format!("assigns `{variable}` again after it was wrapped"))
        }
        Kind::ComparisonOperator
        | Kind::BooleanOperator
        | Kind::NotOperator
        | Kind::Interpolation => Ok(Vec::new()),
        _ => {
            refuse(format!("uses `{variable}`, the wrapped model, in a way that is not supported"))
        }
    }
}

/// Checks a call that receives the wrapped model. Returns the parameter of the program's function.
fn passed(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    (module, _): Scope,
    node: Node<'_>,
) -> Result<Option<Name>, Refusal> {
    let text = program.module(module);
    let variable = written(text, node);
    let mut call = node.parent();
    while let Some(one) = call.filter(|one| !one.is(Kind::Call)) {
        call = one.parent();
    }
    let what = format!("passes `{variable}`, the wrapped model, to other code");
    let refusal = || program.refuse(module, node.start_byte(), &what);
    let call = call.ok_or_else(refusal)?;
    let name = callee(text, call);
    if program.absolute(module, &name) == "torch.save" {
        edits.replace(module, node.byte_range(), itself(program, module, &variable));
        return Ok(None);
    }
    let place = Place { module, span: call.byte_range() };
    let (inner, at) = match callable(&program.tracer, &place, &name) {
        Some(Callable::Function(inner, at)) => (inner, at),
        Some(Callable::Class(inner, class)) => {
            let made = program.module(inner).function("__init__", Some(class));
            (inner, made.ok_or_else(refusal)?)
        }
        None if RECEIVERS.contains(&last_name(&name)) => return Ok(None),
        None => return Err(refusal()),
    };
    let arguments = program.arguments(module, call).ok_or_else(refusal)?;
    let function = program.module(inner).functions.lookup(at).ok_or_else(refusal)?;
    let by_name = arguments.by_name.iter().find(|(_, value)| value.id() == node.id());
    let skipped = usize::from(function.class.is_some());
    let by_place = arguments.positional.iter().position(|one| one.id() == node.id());
    let parameter = match by_name {
        Some((name, _)) => Some(name.clone()),
        None => by_place.and_then(|place| {
            function
                .parameters
                .iter()
                .nth(place + skipped)
                .filter(|it| !it.is_rest)
                .map(|it| it.name.clone())
        }),
    };
    let parameter = parameter.ok_or_else(refusal)?;
    Ok(Some(Name::new(program, (inner, Some(at)), &parameter)))
}

/// The model itself, whether it is wrapped or not.
fn itself(program: &Program<'_>, module: usize, variable: &str) -> String {
    let module_name = Layout::of(program.module(module)).quoted("module");
    format!("getattr({variable}, {module_name}, {variable})")
}
