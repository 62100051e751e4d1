//! Layers that follow each other in an `nn.Sequential`.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::program::Program;
use super::super::syntax::{callee, mentions, object_of, statement_of, within, written};
use super::layers::layer;
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Call, Module, last_name};

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
            let list = text.node(&call.span).and_then(|it| it.field(Field::Arguments));
            let Some(list) = list else { continue };
            let given = named_children(list);
            let given = in_order(text, &given).unwrap_or(given);
            let mut runs: Vec<Vec<Node<'a>>> =
                given.split(|one| one.is(Kind::ListSplat)).map(<[_]>::to_vec).collect();
            for splat in given.iter().filter(|one| one.is(Kind::ListSplat)) {
                let name = splat.named_child(0).filter(|one| one.is(Kind::Identifier));
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
pub(super) fn is_a_sequence(program: &Program<'_>, module: usize, class: usize) -> bool {
    let text = program.module(module);
    let base = |base: &std::ops::Range<usize>| program.absolute(module, text.text(base));
    let bases = text.classes.lookup(class).map(|one| one.bases.as_slice()).unwrap_or_default();
    bases.iter().any(|one| base(one) == "torch.nn.Sequential")
        && text.function("forward", Some(class)).is_none()
}

/// The layers of `nn.Sequential(OrderedDict([("conv", nn.Conv2d(…)), …]))`.
fn in_order<'a>(text: &Module, given: &[Node<'a>]) -> Option<Vec<Node<'a>>> {
    let [one] = given else { return None };
    let is_one = one.is(Kind::Call) && last_name(&callee(text, *one)) == "OrderedDict";
    let list = Some(one).filter(|_| is_one)?.field(Field::Arguments)?;
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
    let held = (node.is(Kind::Identifier)).then(|| held_by(program, module, function, node));
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
    text.node(&only.value).filter(|value| value.is(Kind::Call) && uses == 2)
}

/// Where a function, or the code outside of functions, uses a variable; nothing where a function in it
/// does.
fn variables<'a>(text: &'a Module, function: Option<usize>, name: &str) -> Option<Vec<Node<'a>>> {
    let root = match function {
        Some(at) => text.node(&text.functions.lookup(at)?.body)?,
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
        let is_keyword = node.parent().is_some_and(|one| one.is(Kind::KeywordArgument))
            && field("name") == Some(node.id());
        node.is(Kind::Identifier)
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
        one.id() != second.id()
            && matches!(Kind::of(one), Kind::Comment | Kind::ExpressionStatement)
    });
    behind.next().is_some_and(|one| one.id() == second.id())
}

fn use_of<'a>(program: &Program<'a>, module: usize, mention: Node<'a>) -> Option<Use<'a>> {
    let text = program.module(module);
    let parent = mention.parent()?;
    let around = parent.parent()?;
    let is_left = parent.field(Field::Left).is_some_and(|left| left.id() == mention.id());
    let elements = |value: Node<'a>| match Kind::of(&value) {
        Kind::List | Kind::Tuple => named_children(value),
        _ => vec![value],
    };
    match Kind::of(&parent) {
        Kind::Assignment if is_left => {
            let value = parent.field(Field::Right)?;
            (value.is(Kind::List)).then(|| Use::Begins(named_children(value)))
        }
        Kind::AugmentedAssignment if is_left => {
            let operator = parent.field(Field::Operator)?;
            let value = parent.field(Field::Right)?;
            (operator.kind() == "+=").then(|| Use::Grows(elements(value)))
        }
        Kind::Attribute => {
            let is_statement = around.parent()?.is(Kind::ExpressionStatement);
            let call = Some(around).filter(|one| one.is(Kind::Call) && is_statement)?;
            let given = named_children(call.field(Field::Arguments)?);
            let [given] = given[..] else { return None };
            if object_of(text, call, "append").is_some() {
                return Some(Use::Grows(vec![given]));
            }
            object_of(text, call, "extend").map(|_| Use::Grows(elements(given)))
        }
        Kind::ListSplat | Kind::ArgumentList => {
            let call = if parent.is(Kind::ListSplat) { around.parent()? } else { around };
            let name = callee(text, call);
            let makes = parent.is(Kind::ListSplat)
                && (last_name(&name) == "Sequential" || name.ends_with(".__init__"));
            (makes || name == "len").then_some(Use::Reads)
        }
        _ => None,
    }
}
