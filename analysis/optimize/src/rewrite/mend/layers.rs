//! Layers of `torch.nn`: what a call makes, and edits that change one argument of some.

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use std::collections::HashSet;

use tree_sitter::Node;

use super::super::Refusal;
use super::super::argument::{self, Argument};
use super::super::edits::Edits;
use super::super::program::Program;
use super::super::syntax::callee;
use super::Wanted;
use ridgeline_python::semantics::module::last_name;

/// A layer that an edit may change.
pub struct Candidate<'a> {
    pub module: usize,
    /// The call that makes it.
    pub made: Node<'a>,
    /// Other places where a person may ask for the edit: where it is used, what is behind it.
    pub uses: Vec<Node<'a>>,
    /// Why it has to stay as it is.
    pub refusal: Option<Refusal>,
}

impl<'a> Candidate<'a> {
    pub fn new(module: usize, made: Node<'a>, uses: Vec<Node<'a>>) -> Candidate<'a> {
        Candidate { module, made, uses, refusal: None }
    }
}

/// Says why all have to stay as they are.
pub fn refuse_all(candidates: &mut [Candidate<'_>], refusal: &Refusal) {
    for one in candidates {
        one.refusal.get_or_insert_with(|| refusal.clone());
    }
}

/// Changes the candidates of which a place has a wanted line, with what tells false of one that is as
/// wanted already. What is refused is left out where others are changed.
///
/// # Errors
/// Where none is changed: why. `done` and `none` end and are the sentences for it.
pub fn change_all<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &Wanted<'_>,
    candidates: &[Candidate<'a>],
    change: impl Fn(&mut Edits<'a>, &Candidate<'a>) -> Result<bool, Refusal>,
    (done, none): (&str, &str),
) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    let (mut there, mut refused) = (None, None);
    for one in candidates {
        let mut places = std::iter::once(&one.made).chain(&one.uses);
        let is_wanted = places.any(|node| at.meets(program, one.module, *node));
        if !is_wanted || !seen.insert((one.module, one.made.id())) {
            continue;
        }
        match one.refusal.clone().map_or_else(|| change(edits, one), Err) {
            Ok(true) => {}
            Ok(false) => {
                there.get_or_insert(program.at(one.module, one.made.start_byte()));
            }
            Err(refusal) => {
                refused.get_or_insert(refusal);
            }
        }
    }
    match (there, refused) {
        _ if !edits.is_empty() => Ok(()),
        (Some(at), _) => Err(Refusal::done(format!("{at} {done}"))),
        (None, Some(refusal)) => Err(refusal),
        (None, None) => Err(Refusal::not_understood(none)),
    }
}

/// Switches an argument of a layer on or off; false where it is so already.
pub fn switch(
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

/// What a call makes of `torch.nn`: `Conv2d`; nothing where it makes none of its layers.
pub fn layer(program: &Program<'_>, module: usize, call: Node<'_>) -> Option<String> {
    let call = Some(call).filter(|call| call.is(Kind::Call))?;
    let whole = program.absolute(module, &callee(program.module(module), call));
    let rest = whole.strip_prefix("torch.nn.")?;
    let is_none = ["functional", "init", "utils"].iter().any(|part| rest.starts_with(part));
    (!is_none).then(|| last_name(rest).to_owned())
}

/// The kind of a layer, also of one that learns the size of its input: `Conv2d` for `LazyConv2d`.
pub fn plain_name(layer: &str) -> &str {
    layer.strip_prefix("Lazy").unwrap_or(layer)
}

/// Whether a layer leaves its output alone in the backward pass, and never gives its input itself.
pub fn leaves_its_output(layer: &str) -> bool {
    let name = plain_name(layer);
    let of_dimensions = ["ConvTranspose", "Conv", "BatchNorm", "InstanceNorm"];
    let is_one = |kind: &&str| {
        name.strip_prefix(kind).is_some_and(|rest| matches!(rest, "1d" | "2d" | "3d"))
    };
    of_dimensions.iter().any(is_one)
        || matches!(name, "Linear" | "GroupNorm" | "LayerNorm" | "SyncBatchNorm")
}

/// A norm over the batch, by which a bias in front of it is taken away.
pub fn is_batch_norm(layer: &str) -> bool {
    let name = plain_name(layer);
    matches!(name, "BatchNorm1d" | "BatchNorm2d" | "BatchNorm3d" | "SyncBatchNorm")
}
