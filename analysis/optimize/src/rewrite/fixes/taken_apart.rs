//! Detects access to single layers of a sequence.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::HashSet;

use tree_sitter::Node;

use super::super::models::is_module_class;
use super::super::program::Program;
use super::super::syntax::{
    callee, calls_in, everything, mentions, object_of, targets, within, written,
};
use super::sequences::is_a_sequence;
use ridgeline_python::semantics::module::{Module, last_name};

/// Returns where a program accesses the layers of a sequence one by one, or registers hooks, so
/// that not only the next layer sees a layer's output: module and offset.
pub fn taken_apart(program: &Program<'_>) -> Option<(usize, usize)> {
    const HOOKS: [&str; 4] = [
        "register_forward_hook",
        "register_module_forward_hook",
        "create_feature_extractor",
        "IntermediateLayerGetter",
    ];
    let holders = Holders::of(program);
    for (module, text) in program.modules().iter().enumerate() {
        let hook = text.calls.iter().find(|call| HOOKS.contains(&call.name()));
        if let Some(call) = hook {
            return Some((module, call.span.start));
        }
        let Some(tree) = text.index.tree() else { continue };
        let found = everything(tree.root_node()).into_iter().find(|node| match Kind::of(node) {
            Kind::ForStatement | Kind::ForInClause => calls_each(program, &holders, module, *node),
            Kind::Subscript => is_part(&holders, text, *node),
            Kind::Call => object_of(text, *node, "children").is_some() && !is_looped(*node),
            _ => false,
        });
        if let Some(node) = found {
            return Some((module, node.start_byte()));
        }
    }
    None
}

/// Whether a loop calls each layer: `for layer in self.layers: x = layer(x)`, where that may be a
/// sequence.
fn calls_each(program: &Program<'_>, holders: &Holders<'_>, module: usize, node: Node<'_>) -> bool {
    let text = program.module(module);
    let (Some(left), Some(right)) = (node.field(Field::Left), node.field(Field::Right)) else {
        return false;
    };
    let names = targets(text, left);
    let around = if node.is(Kind::ForStatement) { Some(node) } else { node.parent() };
    let calls = around.map(calls_in).unwrap_or_default();
    if !calls.iter().any(|call| names.contains(&callee(text, *call))) {
        return false;
    }
    let over = within(right);
    let is_whole = |one: &&Node<'_>| one.parent().is_none_or(|it| !it.is(Kind::Attribute));
    let over =
        over.iter().filter(|one| matches!(Kind::of(one), Kind::Identifier | Kind::Attribute));
    let over = over.filter(is_whole);
    let over: Vec<String> = over.map(|one| written(text, *one)).collect();
    let in_a_model = program
        .class_of((module, text.function_at(node.start_byte())))
        .is_some_and(|class| is_module_class(program, module, class, 0));
    over.iter().any(|name| {
        let last = last_name(name);
        matches!(last, "children" | "named_children" | "modules" | "_modules")
            || holders.sequences.contains(last)
            || (in_a_model && name.starts_with("self") && !holders.lists.contains(last))
    })
}

/// Whether a subscript accesses part of a sequence: `self.layers[0](x)`, `model[:3]`, or `model[1]
/// = nn.Identity()`.
fn is_part(holders: &Holders<'_>, text: &Module, node: Node<'_>) -> bool {
    let Some(value) = node.field(Field::Value) else { return false };
    let name = written(text, value);
    let name = last_name(&name);
    let is_called = node.parent().is_some_and(|parent| {
        parent.is(Kind::Call)
            && parent.field(Field::Function).is_some_and(|it| it.id() == node.id())
    });
    let is_slice = node.field(Field::Subscript).is_some_and(|it| it.is(Kind::Slice));
    let is_replaced = node.parent().is_some_and(|parent| {
        let left = parent.field(Field::Left).filter(|_| parent.is(Kind::Assignment));
        left.is_some_and(|left| left.id() == node.id())
    });
    (is_called || is_slice || is_replaced) && holders.sequences.contains(name)
}

/// Whether a call is the iterable of a loop.
fn is_looped(call: Node<'_>) -> bool {
    let is_it = |parent: Node<'_>| {
        matches!(Kind::of(&parent), Kind::ForStatement | Kind::ForInClause)
            && parent.field(Field::Right).is_some_and(|it| it.id() == call.id())
    };
    call.parent().is_some_and(is_it)
}

/// The contents of variables and attributes, by the last parts of their names.
struct Holders<'a> {
    /// Names that are assigned a sequence somewhere: by its constructor, or by a function or class
    /// of the program that creates one.
    sequences: HashSet<&'a str>,
    /// Names that are assigned only lists of layers, which run nothing themselves.
    lists: HashSet<&'a str>,
}

impl<'a> Holders<'a> {
    fn of(program: &Program<'a>) -> Holders<'a> {
        let mut makers: HashSet<&str> = HashSet::from(["Sequential"]);
        for (module, text) in program.modules().iter().enumerate() {
            let functions = text.functions.iter();
            makers.extend(
                functions
                    .filter(|one| mentions(text.text(&one.span), "Sequential"))
                    .map(|one| one.name.as_str()),
            );
            let classes = text.classes.iter().enumerate();
            makers.extend(
                classes
                    .filter(|(at, _)| is_a_sequence(program, module, *at))
                    .map(|(_, one)| one.name.as_str()),
            );
        }
        let (mut sequences, mut lists, mut others) =
            (HashSet::new(), HashSet::new(), HashSet::new());
        for text in program.modules() {
            for one in text.assignments.iter().filter(|one| !one.is_augmented) {
                let name = last_name(&one.target);
                let Some(value) = text.node(&one.value) else { continue };
                if is_list(text, value) {
                    lists.insert(name);
                    continue;
                }
                others.insert(name);
                let mut calls = calls_in(value).into_iter();
                if calls.any(|call| makers.contains(last_name(&callee(text, call)))) {
                    sequences.insert(name);
                }
            }
        }
        lists.retain(|name| !others.contains(name));
        Holders { sequences, lists }
    }
}

/// Whether an expression creates a list of layers.
fn is_list(text: &Module, value: Node<'_>) -> bool {
    matches!(
        Kind::of(&value),
        Kind::List | Kind::ListComprehension | Kind::Dictionary | Kind::Tuple
    ) || matches!(last_name(&callee(text, value)), "ModuleList" | "ModuleDict" | "list")
}
