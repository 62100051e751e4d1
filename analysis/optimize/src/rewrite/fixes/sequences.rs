//! Consecutive layers in an `nn.Sequential`.

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
    /// Class of the layer, such as `Conv2d`. Empty if it is not one of PyTorch's.
    pub layer: String,
    /// The expression that creates it.
    pub made: Node<'a>,
}

/// Returns runs of consecutive layers by module. Each layer takes the output of the previous one.
pub(super) fn sequences<'a>(program: &Program<'a>) -> Vec<(usize, Vec<Element<'a>>)> {
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        for call in text.calls.iter().filter(|call| is_sequential(program, module, call)) {
            let list = text.node(&call.span).and_then(|it| it.field(Field::Arguments));
            let Some(list) = list else { continue };
            let given = named_children(list);
            let given = ordered_dict_layers(text, &given).unwrap_or(given);
            let mut runs: Vec<Vec<Node<'a>>> =
                given.split(|one| one.is(Kind::ListSplat)).map(<[_]>::to_vec).collect();
            for splat in given.iter().filter(|one| one.is(Kind::ListSplat)) {
                let name = splat.named_child(0).filter(|one| one.is(Kind::Identifier));
                let name = name.map(|name| written(text, name)).unwrap_or_default();
                runs.extend(
                    runs_of_list(program, module, call.function, &name).unwrap_or_default(),
                );
            }
            let elements = |run: Vec<Node<'a>>| {
                run.into_iter().map(|one| element(program, module, call.function, one)).collect()
            };
            found.extend(runs.into_iter().map(|run| (module, elements(run))));
        }
    }
    found
}

/// Whether a call is `nn.Sequential(…)`, or `super().__init__(…)` of a subclass without its own
/// `forward`.
fn is_sequential(program: &Program<'_>, module: usize, call: &Call) -> bool {
    if call.name() == "Sequential" {
        return program.called(module, call) == "torch.nn.Sequential";
    }
    let is_constructor = call.name() == "__init__" && call.callee.starts_with("super(");
    let class = program.class_of((module, call.function)).filter(|_| is_constructor);
    class.is_some_and(|class| is_a_sequence(program, module, class))
}

/// Whether a class is an `nn.Sequential` without its own `forward`.
pub(super) fn is_a_sequence(program: &Program<'_>, module: usize, class: usize) -> bool {
    let text = program.module(module);
    let base = |base: &std::ops::Range<usize>| program.absolute(module, text.text(base));
    let bases = text.classes.lookup(class).map(|one| one.bases.as_slice()).unwrap_or_default();
    bases.iter().any(|one| base(one) == "torch.nn.Sequential")
        && text.function("forward", Some(class)).is_none()
}

/// Returns the layers of `nn.Sequential(OrderedDict([("conv", nn.Conv2d(…)), …]))`.
fn ordered_dict_layers<'a>(text: &Module, given: &[Node<'a>]) -> Option<Vec<Node<'a>>> {
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

/// Returns an element of a list. A name stands for the layer that it holds if it has no other use.
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

/// Returns the value of a name assigned once, such as `conv = nn.Conv2d(…)`, if it has exactly one
/// other use.
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
    let uses = uses_of(text, function, &written)?.len();
    text.node(&only.value).filter(|value| value.is(Kind::Call) && uses == 2)
}

/// Returns the uses of a variable in a function, or at module level. Returns `None` if a nested
/// function uses it.
fn uses_of<'a>(text: &'a Module, function: Option<usize>, name: &str) -> Option<Vec<Node<'a>>> {
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

/// The effect of one use of a list.
enum Use<'a> {
    /// `layers = […]`
    Begins(Vec<Node<'a>>),
    /// `layers += […]`, `layers.append(…)`, `layers.extend(…)`
    Grows(Vec<Node<'a>>),
    /// `nn.Sequential(*layers)`, `len(layers)`
    Reads,
}

/// Returns runs of adjacent layers in a list that only grows: those of one list literal, and of
/// consecutive statements.
fn runs_of_list<'a>(
    program: &Program<'a>,
    module: usize,
    function: Option<usize>,
    name: &str,
) -> Option<Vec<Vec<Node<'a>>>> {
    let text = program.module(module);
    let mut runs: Vec<Vec<Node<'a>>> = Vec::new();
    let mut last: Option<Node<'a>> = None;
    for mention in uses_of(text, function, name)? {
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

/// Whether a statement of a block always runs after another one, with only expressions in between.
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
            let creates_sequence = parent.is(Kind::ListSplat)
                && (last_name(&name) == "Sequential" || name.ends_with(".__init__"));
            (creates_sequence || name == "len").then_some(Use::Reads)
        }
        _ => None,
    }
}
