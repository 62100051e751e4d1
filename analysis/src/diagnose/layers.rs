//! Layers that follow one another, as the text makes and calls them.

use tree_sitter::Node;

use crate::source::batch_site::gather::named_children;
use crate::source::batch_site::module::last_name;
use crate::source::rewrite::program::Program;
use crate::source::rewrite::syntax::{callee, calls_in, mentions, statement_of, written};

/// Two layers of which the second one is given what the first one gives, and nobody else is: the calls
/// that make them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    /// The text, as a place in [`Program::modules`].
    pub module: usize,
    pub first: Node<'a>,
    pub second: Node<'a>,
}

/// The pairs of a program's layers: side by side in an `nn.Sequential`, or called one on the other in a
/// `forward`.
pub(crate) fn pairs<'a>(program: &Program<'a>) -> Vec<Pair<'a>> {
    let mut found = in_sequential(program);
    found.extend(in_forward(program));
    found
}

/// What a call makes, with its whole name: `torch.nn.Conv2d`.
pub(crate) fn made(program: &Program<'_>, module: usize, call: Node<'_>) -> String {
    program.absolute(module, &callee(program.module(module), call))
}

fn in_sequential<'a>(program: &Program<'a>) -> Vec<Pair<'a>> {
    let mut found = Vec::new();
    for (module, call) in program.calls().filter(|(_, call)| call.name() == "Sequential") {
        let text = program.module(module);
        let list =
            program.node(module, call).and_then(|node| node.child_by_field_name("arguments"));
        let Some(list) = list else { continue };
        found.extend(neighbours(module, &named_children(list)));
        // `layers = [nn.Conv2d(…), …]`, and `nn.Sequential(*layers)`.
        let starred = named_children(list).into_iter().filter(|one| one.kind() == "list_splat");
        for name in starred.filter_map(|one| one.named_child(0)) {
            let name = written(text, name);
            let lists = text
                .assignments
                .iter()
                .filter(|one| one.function == call.function && one.target == name)
                .filter_map(|one| text.node(&one.value).filter(|node| node.kind() == "list"));
            for list in lists {
                found.extend(neighbours(module, &named_children(list)));
            }
        }
    }
    found
}

fn neighbours<'a>(module: usize, layers: &[Node<'a>]) -> Vec<Pair<'a>> {
    let pairs = layers.windows(2).filter_map(|two| match two {
        [first, second] if first.kind() == "call" && second.kind() == "call" => {
            Some(Pair { module, first: *first, second: *second })
        }
        _ => None,
    });
    pairs.collect()
}

/// `self.bn(self.conv(x))`, or `x = self.conv(x)` and right behind it `x = self.bn(x)`.
fn in_forward<'a>(program: &Program<'a>) -> Vec<Pair<'a>> {
    let mut found = Vec::new();
    for (module, call) in program.calls() {
        let text = program.module(module);
        let is_forward = call
            .function
            .and_then(|at| text.functions.get(at))
            .is_some_and(|it| it.name == "forward");
        let Some(second) = attribute(&call.callee).filter(|_| is_forward) else { continue };
        let Some(node) = program.node(module, call) else { continue };
        let first = first_of(program, module, node);
        let Some(first) = first.as_deref().and_then(attribute) else { continue };
        let made = |name: &str| made_once(program, module, call.function, name);
        if let Some((first, second)) = made(first).zip(made(second)) {
            found.push(Pair { module, first, second });
        }
    }
    found
}

/// `conv` of `self.conv`.
fn attribute(callee: &str) -> Option<&str> {
    callee.strip_prefix("self.").filter(|name| !name.contains(['.', '[', '(']))
}

/// What is called to give a call its one argument: `self.conv`.
fn first_of(program: &Program<'_>, module: usize, call: Node<'_>) -> Option<String> {
    let text = program.module(module);
    let arguments = named_children(call.child_by_field_name("arguments")?);
    let [argument] = arguments[..] else { return None };
    if argument.kind() == "call" {
        return Some(callee(text, argument));
    }
    // `x = self.bn(x)`, where the statement before is `x = self.conv(…)`.
    let statement = statement_of(call)?;
    let assigned = |statement: Node<'_>| {
        let inner = statement.named_child(0).filter(|one| one.kind() == "assignment")?;
        let left = inner.child_by_field_name("left")?;
        (left.kind() == "identifier").then(|| written(text, left))
    };
    let before =
        statement.prev_named_sibling().filter(|one| one.kind() == "expression_statement")?;
    let name = assigned(before)?;
    let value = before.named_child(0)?.child_by_field_name("right")?;
    let is_chain = name == written(text, argument) && assigned(statement) == Some(name);
    (is_chain && value.kind() == "call").then(|| callee(text, value))
}

/// The call that makes an attribute of the class of a method, where one assignment does and one call
/// uses it.
fn made_once<'a>(
    program: &Program<'a>,
    module: usize,
    method: Option<usize>,
    name: &str,
) -> Option<Node<'a>> {
    let text = program.module(module);
    let class = program.class_of((module, method))?;
    let of_class = |function: Option<usize>| program.class_of((module, function)) == Some(class);
    let target = format!("self.{name}");
    let mut made = text
        .assignments
        .iter()
        .filter(|one| one.target == target && of_class(one.function))
        .filter(|one| one.element.is_none() && !one.is_augmented);
    let (one, other) = (made.next()?, made.next());
    let uses = text
        .calls
        .iter()
        .filter(|call| of_class(call.function) && mentions(text.text(&call.span), &target));
    // A call around it mentions it, too; only those that call it count.
    let calls = uses.filter(|call| call.callee == target).count();
    let value = text.node(&one.value).filter(|value| value.kind() == "call")?;
    (other.is_none() && calls == 1 && calls_in(value).len() == 1).then_some(value)
}

/// The number of arguments in front that have no name, and the value of the named one. Nothing where a
/// star may hide it.
pub(crate) fn argument<'a>(
    program: &Program<'a>,
    module: usize,
    call: Node<'_>,
    name: &str,
) -> Option<(usize, Option<Node<'a>>)> {
    let arguments = program.arguments(module, call)?;
    let is_plain = !arguments.has_star && arguments.splats.is_empty();
    is_plain.then(|| (arguments.positional.len(), arguments.named(name)))
}

/// The last part of what a call makes, where that is a layer of PyTorch's.
pub(crate) fn layer(program: &Program<'_>, module: usize, call: Node<'_>) -> Option<String> {
    let whole = made(program, module, call);
    whole.starts_with("torch.nn.").then(|| last_name(&whole).to_owned())
}
