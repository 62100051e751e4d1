//! Layers by the attributes that hold them, and what the methods of a class do with them.

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
pub(super) struct Held<'a> {
    pub module: usize,
    pub class: usize,
    /// `self.conv1`.
    pub name: &'a str,
    /// `Conv2d`.
    pub layer: String,
    /// The call that makes it.
    pub made: Node<'a>,
}

/// The attributes that hold one layer of torch's each, and always the same.
pub(super) fn held<'a>(program: &Program<'a>) -> Vec<Held<'a>> {
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
                found.push(Held { module, class, name: &one.target, layer, made });
            }
        }
    }
    found
}

/// The calls of an attribute in its class.
pub(super) fn calls_of<'a>(program: &Program<'a>, held: &Held<'a>) -> Vec<Node<'a>> {
    let text = program.module(held.module);
    let own = text.calls.iter().filter(|call| {
        call.callee == held.name
            && program.class_of((held.module, call.function)) == Some(held.class)
    });
    own.filter_map(|call| text.node(&call.span)).collect()
}

/// Whether an attribute is used but called in its class: handed over, put into a list, called from
/// outside or in a class that inherits it.
pub(super) fn is_used_otherwise(program: &Program<'_>, held: &Held<'_>) -> bool {
    let text = program.module(held.module);
    let Some(class) = text.classes.lookup(held.class) else { return true };
    let whole = text.text(&class.span);
    let name = held.name;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let uses = whole.match_indices(name).filter(|(at, _)| {
        let rest = whole.get(at + name.len()..).unwrap_or_default();
        !rest.starts_with(is_word)
    });
    let from_outside = program.calls().any(|(module, call)| {
        // `F.linear(x, w)` and `x.relu()` are none.
        let is_imported = program.called(module, call) != call.callee;
        let owner = call.callee.rsplit_once('.').map(|(owner, _)| owner);
        call.name() == last_name(name)
            && owner.is_some_and(|owner| owner != "self")
            && !is_imported
            && !program.module(module).text(&call.span).ends_with("()")
    });
    let is_inherited = || {
        heirs(program, held).any(|(module, class)| {
            let text = program.module(module);
            text.classes.lookup(class).is_some_and(|one| mentions(text.text(&one.span), name))
        })
    };
    // It is made once, and every other time it is called.
    from_outside || is_inherited() || uses.count() != calls_of(program, held).len() + 1
}

/// Whether another object takes an attribute's place: `model.bn = nn.Identity()`, or in a class that
/// inherits it.
pub(super) fn is_replaced(program: &Program<'_>, held: &Held<'_>) -> bool {
    let name = last_name(held.name);
    let assigned = program.modules().iter().enumerate().any(|(module, text)| {
        text.assignments.iter().any(|one| {
            let Some((owner, last)) = one.target.rsplit_once('.') else { return false };
            let class = program.class_of((module, one.function));
            let is_heir =
                || heirs(program, held).any(|heir| Some(heir.1) == class && heir.0 == module);
            last == name && (owner != "self" || is_heir())
        })
    });
    let by_name = [format!("\"{name}\""), format!("'{name}'")];
    assigned
        || program.calls().filter(|(_, call)| call.name() == "setattr").any(|(module, call)| {
            let whole = program.module(module).text(&call.span);
            by_name.iter().any(|name| whole.contains(name.as_str()))
        })
}

/// The classes that inherit from the one that holds an attribute.
fn heirs(program: &Program<'_>, held: &Held<'_>) -> impl Iterator<Item = (usize, usize)> {
    let all = program.modules().iter().enumerate();
    let all = all.flat_map(|(module, text)| (0..text.classes.len()).map(move |at| (module, at)));
    all.filter(|one| inherits(program, *one, (held.module, held.class), 0))
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

/// The layer whose output a call of one class is given, which nothing else can see: what it is, and
/// its call. `given` is the argument of that call.
pub(super) fn layer_before<'a, 'h>(
    program: &Program<'a>,
    all: &'h [Held<'a>],
    (module, class): (usize, usize),
    given: Node<'a>,
) -> Option<(&'h Held<'a>, Node<'a>)> {
    let text = program.module(module);
    let made_by = |node: Node<'a>| {
        let name = callee(text, node);
        let is_it =
            |one: &&Held<'a>| one.module == module && one.class == class && one.name == name;
        let known = all.iter().find(is_it).filter(|_| node.is(Kind::Call))?;
        Some((known, node))
    };
    if given.is(Kind::Call) {
        return made_by(given);
    }
    if !given.is(Kind::Identifier) {
        return None;
    }
    // `x = self.conv(x)` directly in front, and nothing of `x` is left behind: its value is replaced
    // or returned, and nothing else in that statement looks at it.
    let variable = written(text, given);
    let statement = statement_of(given)?;
    let (target, value) = match Kind::of(&statement) {
        Kind::ReturnStatement => (None, statement),
        _ => assigned(statement).map(|(left, right)| (Some(left), right))?,
    };
    let is_replaced = target.is_none_or(|left| written(text, left) == variable);
    let is_it = |node: &Node<'_>| node.is(Kind::Identifier) && written(text, *node) == variable;
    let is_seen_once = within(value).iter().filter(|node| is_it(node)).count() == 1;
    let (left, value) = assigned(before(statement)?)?;
    (is_replaced && is_seen_once && written(text, left) == variable)
        .then(|| made_by(value))
        .flatten()
}

/// The one argument of a call.
pub(super) fn only_argument(call: Node<'_>) -> Option<Node<'_>> {
    match named_children(call.field(Field::Arguments)?)[..] {
        [one] if !one.is(Kind::KeywordArgument) => Some(one),
        _ => None,
    }
}

/// The statement in front of another.
fn before(statement: Node<'_>) -> Option<Node<'_>> {
    let before =
        std::iter::successors(statement.prev_named_sibling(), |one| one.prev_named_sibling());
    before.take(64).find(|one| !one.is(Kind::Comment))
}

/// Target and value of a plain assignment.
fn assigned(statement: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let inner = statement.named_child(0).filter(|_| statement.is(Kind::ExpressionStatement))?;
    let left = inner.field(Field::Left).filter(|_| inner.is(Kind::Assignment))?;
    Some((left, inner.field(Field::Right)?))
}
