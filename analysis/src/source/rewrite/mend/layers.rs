//! Layers by the attributes that hold them, and what the `forward` of a class does with them.

use tree_sitter::Node;

use super::super::super::batch_site::module::{Assignment, last_name};
use super::super::Refusal;
use super::super::argument::{self, Argument};
use super::super::edits::Edits;
use super::super::program::Program;
use super::super::syntax::{callee, written};
use super::Wanted;

/// The layers that an edit is about.
pub(super) struct Found<'w, 'a> {
    at: &'w Wanted<'w>,
    /// The texts and the calls that make them.
    layers: Vec<(usize, Node<'a>)>,
}

impl<'w, 'a> Found<'w, 'a> {
    /// None yet, of those at some lines.
    pub fn at(at: &'w Wanted<'w>) -> Found<'w, 'a> {
        Found { at, layers: Vec::new() }
    }

    /// Takes the layer that a call makes, where the call or one of its uses has a wanted line.
    pub fn meet(
        &mut self,
        program: &Program<'_>,
        module: usize,
        made: Node<'a>,
        uses: &[Node<'_>],
    ) {
        let mut places = std::iter::once(&made).chain(uses);
        if places.any(|node| self.at.meets(program, module, *node)) {
            self.layers.push((module, made));
        }
    }

    /// Changes them all; gives where the first one is that is as wanted already.
    pub fn change(
        self,
        program: &Program<'_>,
        edits: &mut Edits<'_>,
        change: Change,
    ) -> Result<Option<String>, Refusal> {
        let mut done = None;
        for (module, made) in self.layers {
            if !change(program, edits, module, made)? {
                done.get_or_insert(program.at(module, made.start_byte()));
            }
        }
        Ok(done)
    }
}

/// Changes the layer that a call makes; false where it is as wanted already.
type Change = fn(&Program<'_>, &mut Edits<'_>, usize, Node<'_>) -> Result<bool, Refusal>;

/// Switches an argument of a layer on or off; false where it is so already.
pub(super) fn switch(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    (module, made): (usize, Node<'_>),
    (name, value): (&str, &str),
    given: Option<Node<'_>>,
) -> Result<bool, Refusal> {
    match argument::set(program, edits, (module, made), (name, value), given)? {
        Argument::Set => Ok(true),
        Argument::There => Ok(false),
        Argument::Given(other) => {
            let what = format!("takes {name} from `{other}`: set it there");
            Err(program.refuse(module, made.start_byte(), &what))
        }
    }
}

/// What a constructor of `torch.nn` makes, as far as edits care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Convolution,
    BatchNorm,
    /// What needs its input for the backward pass, and not its output.
    KeepsInput,
    /// One that can write over its input.
    Activation,
    Other,
}

/// The layer that a call makes; nothing where it is none of torch's.
pub(super) fn layer(program: &Program<'_>, module: usize, call: Node<'_>) -> Option<Layer> {
    let name = callee(program.module(module), call);
    let whole = program.absolute(module, &name);
    if !whole.starts_with("torch.nn.") || whole.starts_with("torch.nn.functional") {
        return None;
    }
    Some(match last_name(&whole) {
        "Conv1d" | "Conv2d" | "Conv3d" => Layer::Convolution,
        "BatchNorm1d" | "BatchNorm2d" | "BatchNorm3d" | "SyncBatchNorm" => Layer::BatchNorm,
        "Linear" | "GroupNorm" | "ConvTranspose1d" | "ConvTranspose2d" | "ConvTranspose3d" => {
            Layer::KeepsInput
        }
        "ReLU" | "ReLU6" => Layer::Activation,
        _ => Layer::Other,
    })
}

/// Whether a layer leaves its output alone in the backward pass.
pub(super) fn leaves_its_output(layer: Layer) -> bool {
    matches!(layer, Layer::Convolution | Layer::BatchNorm | Layer::KeepsInput)
}

/// An attribute of a class that holds a layer.
pub(super) struct Held<'a> {
    pub module: usize,
    pub class: usize,
    /// `self.conv1`.
    pub name: &'a str,
    pub layer: Layer,
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
            let made = text.node(&one.value).filter(|node| node.kind() == "call");
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

/// Whether an attribute is used but called: handed over, put into a list.
pub(super) fn is_used_otherwise(program: &Program<'_>, held: &Held<'_>) -> bool {
    let text = program.module(held.module);
    let Some(class) = text.classes.get(held.class) else { return true };
    let whole = text.text(&class.span);
    let name = held.name;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let uses = whole.match_indices(name).filter(|(at, _)| {
        let rest = whole.get(at + name.len()..).unwrap_or_default();
        !rest.starts_with(is_word)
    });
    // It is made once, and every other time it is called.
    uses.count() != calls_of(program, held).len() + 1
}

/// What makes the input of a call: the layer whose output it is, which nothing else can see.
pub(super) fn input_of<'a>(
    program: &Program<'a>,
    all: &[Held<'a>],
    of: &Held<'a>,
    call: Node<'a>,
) -> Option<(Layer, Node<'a>)> {
    let text = program.module(of.module);
    let list =
        call.child_by_field_name("arguments").filter(|list| list.named_child_count() == 1)?;
    let given = list.named_child(0)?;
    let made_by = |node: Node<'a>| {
        let name = callee(text, node);
        let is_it =
            |one: &&Held<'a>| one.module == of.module && one.class == of.class && one.name == name;
        let known = all.iter().find(is_it).filter(|_| node.kind() == "call")?;
        Some((known.layer, node))
    };
    if given.kind() == "call" {
        return made_by(given);
    }
    if given.kind() != "identifier" {
        return None;
    }
    // `x = self.conv(x)` directly in front, and nothing of `x` is left behind: its value is replaced
    // or returned.
    let variable = written(text, given);
    let statement = super::super::syntax::statement_of(call)?;
    let is_replaced = match statement.kind() {
        "return_statement" => true,
        _ => assigned(statement).is_some_and(|(left, _)| written(text, left) == variable),
    };
    let (left, value) = assigned(before(statement)?)?;
    (is_replaced && written(text, left) == variable).then(|| made_by(value)).flatten()
}

/// The statement in front of another.
fn before(statement: Node<'_>) -> Option<Node<'_>> {
    let before =
        std::iter::successors(statement.prev_named_sibling(), |one| one.prev_named_sibling());
    before.take(64).find(|one| one.kind() != "comment")
}

/// Target and value of a plain assignment.
fn assigned(statement: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let inner = statement.named_child(0).filter(|_| statement.kind() == "expression_statement")?;
    let left = inner.child_by_field_name("left").filter(|_| inner.kind() == "assignment")?;
    Some((left, inner.child_by_field_name("right")?))
}

/// The layers that follow each other in each `nn.Sequential`: what they are, and the calls that make
/// them.
pub(super) fn sequences<'a>(program: &Program<'a>) -> Vec<(usize, Vec<(Layer, Node<'a>)>)> {
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        for call in text.calls.iter().filter(|call| call.name() == "Sequential") {
            if program.called(module, call) != "torch.nn.Sequential" {
                continue;
            }
            let Some(node) = program.node(module, call) else { continue };
            let Some(arguments) = program.arguments(module, node) else { continue };
            if arguments.has_star {
                continue;
            }
            let layers = arguments.positional.iter().map(|one| {
                let layer = layer(program, module, *one).filter(|_| one.kind() == "call");
                (layer.unwrap_or(Layer::Other), *one)
            });
            found.push((module, layers.collect()));
        }
    }
    found
}
