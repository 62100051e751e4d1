//! Layers that follow each other in an `nn.Sequential`, and whether something looks in between.

use std::collections::HashSet;

use tree_sitter::Node;

use super::super::super::batch_site::gather::named_children;
use super::super::super::batch_site::module::{Call, Module, last_name};
use super::super::models::is_module_class;
use super::super::program::Program;
use super::super::syntax::{
    callee, calls_in, everything, mentions, object_of, statement_of, targets, within, written,
};
use super::layers::layer;

/// A layer in a sequence.
#[derive(Clone)]
pub(super) struct Element<'a> {
    /// `Conv2d`; empty where it is none of torch's.
    pub layer: String,
    /// What makes it.
    pub made: Node<'a>,
}

/// The layers that follow each other, by text: each is given what the one before gives.
pub(super) fn sequences<'a>(program: &Program<'a>) -> Vec<(usize, Vec<Element<'a>>)> {
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        for call in text.calls.iter().filter(|call| is_sequential(program, module, call)) {
            let list = text.node(&call.span).and_then(|it| it.child_by_field_name("arguments"));
            let Some(list) = list else { continue };
            let given = named_children(list);
            let given = in_order(text, &given).unwrap_or(given);
            let mut runs: Vec<Vec<Node<'a>>> =
                given.split(|one| one.kind() == "list_splat").map(<[_]>::to_vec).collect();
            for splat in given.iter().filter(|one| one.kind() == "list_splat") {
                let name = splat.named_child(0).filter(|one| one.kind() == "identifier");
                let name = name.map(|name| written(text, name)).unwrap_or_default();
                runs.extend(grown(program, module, call.function, &name).unwrap_or_default());
            }
            let elements = |run: Vec<Node<'a>>| {
                run.into_iter().map(|one| element(program, module, call.function, one)).collect()
            };
            found.extend(runs.into_iter().map(|run| (module, elements(run))));
        }
    }
    found
}

/// `nn.Sequential(…)`, and `super().__init__(…)` of a class that is one and runs as one.
fn is_sequential(program: &Program<'_>, module: usize, call: &Call) -> bool {
    if call.name() == "Sequential" {
        return program.called(module, call) == "torch.nn.Sequential";
    }
    let is_constructor = call.name() == "__init__" && call.callee.starts_with("super(");
    let class = program.class_of((module, call.function)).filter(|_| is_constructor);
    class.is_some_and(|class| is_a_sequence(program, module, class))
}

/// Whether a class is an `nn.Sequential` that has no `forward` of its own.
fn is_a_sequence(program: &Program<'_>, module: usize, class: usize) -> bool {
    let text = program.module(module);
    let base = |base: &std::ops::Range<usize>| program.absolute(module, text.text(base));
    let bases = text.classes.get(class).map(|one| one.bases.as_slice()).unwrap_or_default();
    bases.iter().any(|one| base(one) == "torch.nn.Sequential")
        && text.function("forward", Some(class)).is_none()
}

/// The layers of `nn.Sequential(OrderedDict([("conv", nn.Conv2d(…)), …]))`.
fn in_order<'a>(text: &Module, given: &[Node<'a>]) -> Option<Vec<Node<'a>>> {
    let [one] = given else { return None };
    let is_one = one.kind() == "call" && last_name(&callee(text, *one)) == "OrderedDict";
    let list = Some(one).filter(|_| is_one)?.child_by_field_name("arguments")?;
    let pairs = named_children(*named_children(list).first()?);
    let layers = pairs.iter().map(|pair| match (pair.kind(), &named_children(*pair)[..]) {
        ("tuple" | "list" | "pair", [_, layer]) => Some(*layer),
        _ => None,
    });
    layers.collect()
}

/// What a layer of a list is; a name stands for the layer that it holds, where it does nothing else.
fn element<'a>(
    program: &Program<'a>,
    module: usize,
    function: Option<usize>,
    node: Node<'a>,
) -> Element<'a> {
    let held = (node.kind() == "identifier").then(|| held_by(program, module, function, node));
    let made = held.flatten().unwrap_or(node);
    Element { layer: layer(program, module, made).unwrap_or_default(), made }
}

/// `conv = nn.Conv2d(…)`, where the name is mentioned once besides.
fn held_by<'a>(
    program: &Program<'a>,
    module: usize,
    function: Option<usize>,
    name: Node<'a>,
) -> Option<Node<'a>> {
    let text = program.module(module);
    let written = written(text, name);
    let mut set = text
        .assignments
        .iter()
        .filter(|one| one.function == function && one.target == written && one.element.is_none());
    let (only, None) = (set.next()?, set.next()) else { return None };
    let uses = variables(text, function, &written)?.len();
    text.node(&only.value).filter(|value| value.kind() == "call" && uses == 2)
}

/// Where a function, or the code outside of functions, uses a variable; nothing where a function in it
/// does.
fn variables<'a>(text: &'a Module, function: Option<usize>, name: &str) -> Option<Vec<Node<'a>>> {
    let root = match function {
        Some(at) => text.node(&text.functions.get(at)?.body)?,
        None => text.index.tree()?.root_node(),
    };
    let mut inner = text.functions.iter().filter(|one| one.outer == function);
    if name.is_empty() || inner.any(|one| mentions(text.text(&one.span), name)) {
        return None;
    }
    let is_it = |node: &Node<'_>| {
        let field = |name: &str| {
            let parent = node.parent();
            parent.and_then(|parent| parent.child_by_field_name(name)).map(|it| it.id())
        };
        let is_member = field("attribute") == Some(node.id());
        let is_keyword = node.parent().is_some_and(|one| one.kind() == "keyword_argument")
            && field("name") == Some(node.id());
        node.kind() == "identifier"
            && !is_member
            && !is_keyword
            && text.text(&node.byte_range()) == name
    };
    Some(within(root).into_iter().filter(is_it).collect())
}

/// What one mention of a list does.
enum Use<'a> {
    /// `layers = […]`
    Begins(Vec<Node<'a>>),
    /// `layers += […]`, `layers.append(…)`, `layers.extend(…)`
    Grows(Vec<Node<'a>>),
    /// `nn.Sequential(*layers)`, `len(layers)`
    Reads,
}

/// The layers that stand beside each other in a list that only grows: those of one list, and of
/// statements that follow one another.
fn grown<'a>(
    program: &Program<'a>,
    module: usize,
    function: Option<usize>,
    name: &str,
) -> Option<Vec<Vec<Node<'a>>>> {
    let text = program.module(module);
    let mut runs: Vec<Vec<Node<'a>>> = Vec::new();
    let mut last: Option<Node<'a>> = None;
    for mention in variables(text, function, name)? {
        let statement = statement_of(mention)?;
        let (elements, follows) = match use_of(program, module, mention)? {
            Use::Reads => continue,
            Use::Begins(elements) => (elements, false),
            Use::Grows(elements) => (elements, last.is_some_and(|last| leads_to(last, statement))),
        };
        last = Some(statement);
        match runs.last_mut().filter(|_| follows) {
            Some(run) => run.extend(elements),
            None => runs.push(elements),
        }
    }
    Some(runs)
}

/// Whether one statement of a block always runs behind another, with nothing but expressions between.
fn leads_to(first: Node<'_>, second: Node<'_>) -> bool {
    let behind =
        std::iter::successors(first.next_named_sibling(), |one| one.next_named_sibling()).take(64);
    let mut behind = behind.skip_while(|one| {
        one.id() != second.id() && matches!(one.kind(), "comment" | "expression_statement")
    });
    behind.next().is_some_and(|one| one.id() == second.id())
}

fn use_of<'a>(program: &Program<'a>, module: usize, mention: Node<'a>) -> Option<Use<'a>> {
    let text = program.module(module);
    let parent = mention.parent()?;
    let around = parent.parent()?;
    let is_left = parent.child_by_field_name("left").is_some_and(|left| left.id() == mention.id());
    let elements = |value: Node<'a>| match value.kind() {
        "list" | "tuple" => named_children(value),
        _ => vec![value],
    };
    match parent.kind() {
        "assignment" if is_left => {
            let value = parent.child_by_field_name("right")?;
            (value.kind() == "list").then(|| Use::Begins(named_children(value)))
        }
        "augmented_assignment" if is_left => {
            let operator = parent.child_by_field_name("operator")?;
            let value = parent.child_by_field_name("right")?;
            (operator.kind() == "+=").then(|| Use::Grows(elements(value)))
        }
        "attribute" => {
            let is_statement = around.parent()?.kind() == "expression_statement";
            let call = Some(around).filter(|one| one.kind() == "call" && is_statement)?;
            let given = named_children(call.child_by_field_name("arguments")?);
            let [given] = given[..] else { return None };
            if object_of(text, call, "append").is_some() {
                return Some(Use::Grows(vec![given]));
            }
            object_of(text, call, "extend").map(|_| Use::Grows(elements(given)))
        }
        "list_splat" | "argument_list" => {
            let call = if parent.kind() == "list_splat" { around.parent()? } else { around };
            let name = callee(text, call);
            let makes = parent.kind() == "list_splat"
                && (last_name(&name) == "Sequential" || name.ends_with(".__init__"));
            (makes || name == "len").then_some(Use::Reads)
        }
        _ => None,
    }
}

/// Where a program takes layers out of a sequence one by one, or lets somebody look in between, so
/// that not only the next layer sees what one gives: text and offset.
pub(super) fn taken_apart(program: &Program<'_>) -> Option<(usize, usize)> {
    const LOOKS: [&str; 4] = [
        "register_forward_hook",
        "register_module_forward_hook",
        "create_feature_extractor",
        "IntermediateLayerGetter",
    ];
    let holders = Holders::of(program);
    for (module, text) in program.modules().iter().enumerate() {
        let hook = text.calls.iter().find(|call| LOOKS.contains(&call.name()));
        if let Some(call) = hook {
            return Some((module, call.span.start));
        }
        let Some(tree) = text.index.tree() else { continue };
        let found = everything(tree.root_node()).into_iter().find(|node| match node.kind() {
            "for_statement" | "for_in_clause" => calls_each(program, &holders, module, *node),
            "subscript" => is_part(&holders, text, *node),
            "call" => object_of(text, *node, "children").is_some() && !is_looped(*node),
            _ => false,
        });
        if let Some(node) = found {
            return Some((module, node.start_byte()));
        }
    }
    None
}

/// `for layer in self.layers: x = layer(x)`, where that may be a sequence.
fn calls_each(program: &Program<'_>, holders: &Holders<'_>, module: usize, node: Node<'_>) -> bool {
    let text = program.module(module);
    let (Some(left), Some(right)) =
        (node.child_by_field_name("left"), node.child_by_field_name("right"))
    else {
        return false;
    };
    let names = targets(text, left);
    let around = if node.kind() == "for_statement" { Some(node) } else { node.parent() };
    let calls = around.map(calls_in).unwrap_or_default();
    if !calls.iter().any(|call| names.contains(&callee(text, *call))) {
        return false;
    }
    let over = within(right);
    let is_whole = |one: &&Node<'_>| one.parent().is_none_or(|it| it.kind() != "attribute");
    let over = over.iter().filter(|one| matches!(one.kind(), "identifier" | "attribute"));
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

/// `self.layers[0](x)`, `model[:3]`.
fn is_part(holders: &Holders<'_>, text: &Module, node: Node<'_>) -> bool {
    let Some(value) = node.child_by_field_name("value") else { return false };
    let name = written(text, value);
    let name = last_name(&name);
    let is_called = node.parent().is_some_and(|parent| {
        parent.kind() == "call"
            && parent.child_by_field_name("function").is_some_and(|it| it.id() == node.id())
    });
    let is_slice = node.child_by_field_name("subscript").is_some_and(|it| it.kind() == "slice");
    (is_called || is_slice) && holders.sequences.contains(name)
}

/// Whether a call is what a loop goes over.
fn is_looped(call: Node<'_>) -> bool {
    let is_it = |parent: Node<'_>| {
        matches!(parent.kind(), "for_statement" | "for_in_clause")
            && parent.child_by_field_name("right").is_some_and(|it| it.id() == call.id())
    };
    call.parent().is_some_and(is_it)
}

/// What variables and attributes hold, by the last parts of their names.
struct Holders<'a> {
    /// Those that are given a sequence somewhere: by its constructor, or by a function or class of the
    /// program that makes one.
    sequences: HashSet<&'a str>,
    /// Those that are given lists of layers alone, which run nothing by themselves.
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

/// Whether an expression makes a list of layers.
fn is_list(text: &Module, value: Node<'_>) -> bool {
    matches!(value.kind(), "list" | "list_comprehension" | "dictionary" | "tuple")
        || matches!(last_name(&callee(text, value)), "ModuleList" | "ModuleDict" | "list")
}
