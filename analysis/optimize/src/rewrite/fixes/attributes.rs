//! The attributes that hold layers, and their uses in the methods of a class.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::program::Program;
use super::super::syntax::{callee, mentions, statement_of, within, written};
use super::layers::layer;
use ridgeline_python::semantics::functions::{Callable, callable};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Assignment, last_name};
use ridgeline_python::semantics::trace::Place;

/// An attribute of a class that holds a layer.
pub(super) struct LayerAttribute<'a> {
    pub module: usize,
    pub class: usize,
    /// Name of the attribute, such as `self.conv1`.
    pub name: &'a str,
    /// Class of the layer, such as `Conv2d`.
    pub layer: String,
    /// The call that creates it.
    pub creation: Node<'a>,
}

/// Returns the attributes that are assigned once, with a layer of PyTorch.
pub(super) fn layer_attributes<'a>(program: &Program<'a>) -> Vec<LayerAttribute<'a>> {
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        let own = |one: &&Assignment| one.target.starts_with("self.") && !one.is_augmented;
        for one in text.assignments.iter().filter(own) {
            let Some(class) = program.class_of((module, one.function)) else { continue };
            let is_same = |other: &&Assignment| {
                other.target == one.target
                    && program.class_of((module, other.function)) == Some(class)
            };
            let made = text.node(&one.value);
            let (Some(made), 1) = (made, text.assignments.iter().filter(is_same).count()) else {
                continue;
            };
            if let Some(layer) = layer(program, module, made) {
                found.push(LayerAttribute {
                    module,
                    class,
                    name: &one.target,
                    layer,
                    creation: made,
                });
            }
        }
    }
    found
}

/// Returns the calls of an attribute in its class.
pub(super) fn calls_of<'a>(program: &Program<'a>, attribute: &LayerAttribute<'a>) -> Vec<Node<'a>> {
    let text = program.module(attribute.module);
    let own = text.calls.iter().filter(|call| {
        call.callee == attribute.name
            && program.class_of((attribute.module, call.function)) == Some(attribute.class)
    });
    own.filter_map(|call| text.node(&call.span)).collect()
}

/// Whether an attribute has uses other than calls in its class: it is passed on, put into a list,
/// or called from outside or in a subclass.
pub(super) fn has_other_uses(program: &Program<'_>, attribute: &LayerAttribute<'_>) -> bool {
    let text = program.module(attribute.module);
    let Some(class) = text.classes.lookup(attribute.class) else { return true };
    let source = text.text(&class.span);
    let name = attribute.name;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let uses = source.match_indices(name).filter(|(at, _)| {
        let rest = source.get(at + name.len()..).unwrap_or_default();
        !rest.starts_with(is_word)
    });
    let from_outside = program.calls().any(|(module, call)| {
        // `F.linear(x, w)` and `x.relu()` do not count.
        let is_imported = program.called(module, call) != call.callee;
        let owner = call.callee.rsplit_once('.').map(|(owner, _)| owner);
        call.name() == last_name(name)
            && owner.is_some_and(|owner| owner != "self")
            && !is_imported
            && !program.module(module).text(&call.span).ends_with("()")
    });
    let is_inherited = || {
        subclasses(program, attribute).any(|(module, class)| {
            let text = program.module(module);
            text.classes.lookup(class).is_some_and(|one| mentions(text.text(&one.span), name))
        })
    };
    // Every mention except its creation has to be a call.
    from_outside || is_inherited() || uses.count() != calls_of(program, attribute).len() + 1
}

/// Whether an attribute is reassigned from outside or in a subclass: `model.bn = nn.Identity()`.
pub(super) fn is_replaced(program: &Program<'_>, attribute: &LayerAttribute<'_>) -> bool {
    let name = last_name(attribute.name);
    let assigned = program.modules().iter().enumerate().any(|(module, text)| {
        text.assignments.iter().any(|one| {
            let Some((owner, last)) = one.target.rsplit_once('.') else { return false };
            let class = program.class_of((module, one.function));
            let is_subclass = || {
                subclasses(program, attribute)
                    .any(|subclass| Some(subclass.1) == class && subclass.0 == module)
            };
            last == name && (owner != "self" || is_subclass())
        })
    });
    let by_name = [format!("\"{name}\""), format!("'{name}'")];
    assigned
        || program.calls().filter(|(_, call)| call.name() == "setattr").any(|(module, call)| {
            let source = program.module(module).text(&call.span);
            by_name.iter().any(|name| source.contains(name.as_str()))
        })
}

/// Returns the subclasses of an attribute's class.
fn subclasses(
    program: &Program<'_>,
    attribute: &LayerAttribute<'_>,
) -> impl Iterator<Item = (usize, usize)> {
    let all = program.modules().iter().enumerate();
    let all = all.flat_map(|(module, text)| (0..text.classes.len()).map(move |at| (module, at)));
    all.filter(|one| inherits(program, *one, (attribute.module, attribute.class), 0))
}

fn inherits(
    program: &Program<'_>,
    (module, class): (usize, usize),
    from: (usize, usize),
    depth: u32,
) -> bool {
    let text = program.module(module);
    let bases = text.classes.lookup(class).map(|one| one.bases.as_slice()).unwrap_or_default();
    bases.iter().any(|base| {
        let written: String = text.text(base).split_whitespace().collect();
        match callable(&program.tracer, &Place { module, span: base.clone() }, &written) {
            Some(Callable::Class(inner, at)) => {
                (inner, at) == from
                    || (depth < 8 && inherits(program, (inner, at), from, depth + 1))
            }
            _ => false,
        }
    })
}

/// Returns the layer whose output is the argument of a call, if nothing else can use that output,
/// and its call. `given` is the argument.
pub(super) fn layer_before<'a, 'h>(
    program: &Program<'a>,
    all: &'h [LayerAttribute<'a>],
    (module, class): (usize, usize),
    given: Node<'a>,
) -> Option<(&'h LayerAttribute<'a>, Node<'a>)> {
    let text = program.module(module);
    let made_by = |node: Node<'a>| {
        let name = callee(text, node);
        let is_variable = |one: &&LayerAttribute<'a>| {
            one.module == module && one.class == class && one.name == name
        };
        let known = all.iter().find(is_variable).filter(|_| node.is(Kind::Call))?;
        Some((known, node))
    };
    if given.is(Kind::Call) {
        return made_by(given);
    }
    if !given.is(Kind::Identifier) {
        return None;
    }
    // `x = self.conv(x)` directly before, and no other use of that `x`: it is replaced or returned,
    // and the rest of the statement does not read it.
    let variable = written(text, given);
    let statement = statement_of(given)?;
    let (target, value) = match Kind::of(&statement) {
        Kind::ReturnStatement => (None, statement),
        _ => assigned(statement).map(|(left, right)| (Some(left), right))?,
    };
    let is_replaced = target.is_none_or(|left| written(text, left) == variable);
    let is_variable =
        |node: &Node<'_>| node.is(Kind::Identifier) && written(text, *node) == variable;
    let is_seen_once = within(value).iter().filter(|node| is_variable(node)).count() == 1;
    let (left, value) = assigned(before(statement)?)?;
    (is_replaced && is_seen_once && written(text, left) == variable)
        .then(|| made_by(value))
        .flatten()
}

/// Returns the only argument of a call.
pub(super) fn only_argument(call: Node<'_>) -> Option<Node<'_>> {
    match named_children(call.field(Field::Arguments)?)[..] {
        [one] if !one.is(Kind::KeywordArgument) => Some(one),
        _ => None,
    }
}

/// Returns the statement before another one.
fn before(statement: Node<'_>) -> Option<Node<'_>> {
    let before =
        std::iter::successors(statement.prev_named_sibling(), |one| one.prev_named_sibling());
    before.take(64).find(|one| !one.is(Kind::Comment))
}

/// Returns target and value of a plain assignment.
fn assigned(statement: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let inner = statement.named_child(0).filter(|_| statement.is(Kind::ExpressionStatement))?;
    let left = inner.field(Field::Left).filter(|_| inner.is(Kind::Assignment))?;
    Some((left, inner.field(Field::Right)?))
}
