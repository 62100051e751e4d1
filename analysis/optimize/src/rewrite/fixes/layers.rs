//! Layers of `torch.nn`: recognizing the calls that create them, and edits that change one of their
//! arguments.

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use std::collections::HashSet;

use tree_sitter::Node;

use super::super::Refusal;
use super::super::argument::{self, Argument};
use super::super::edits::Edits;
use super::super::program::Program;
use super::super::syntax::callee;
use super::TargetLines;
use ridgeline_python::semantics::module::last_name;

/// A layer that an edit may change.
pub struct Candidate<'a> {
    pub module: usize,
    /// The call that creates it.
    pub creation: Node<'a>,
    /// Other positions where the edit may be requested: where it is used, or the layer after it.
    pub uses: Vec<Node<'a>>,
    /// Why it cannot be changed.
    pub refusal: Option<Refusal>,
}

impl<'a> Candidate<'a> {
    pub fn new(module: usize, made: Node<'a>, uses: Vec<Node<'a>>) -> Candidate<'a> {
        Candidate { module, creation: made, uses, refusal: None }
    }
}

/// Sets the refusal of all candidates.
pub fn refuse_all(candidates: &mut [Candidate<'_>], refusal: &Refusal) {
    for one in candidates {
        one.refusal.get_or_insert_with(|| refusal.clone());
    }
}

/// Changes the candidates at the requested lines. `change` returns false if the candidate already
/// has the change. Refusals are ignored if others are changed.
///
/// # Errors
/// Fails with the reason if none is changed. `done` completes the sentence about an existing
/// change, `none` is the sentence if there is no candidate.
pub fn change_all<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
    candidates: &[Candidate<'a>],
    change: impl Fn(&mut Edits<'a>, &Candidate<'a>) -> Result<bool, Refusal>,
    (done, none): (&str, &str),
) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    let (mut present, mut refused) = (None, None);
    for one in candidates {
        let mut places = std::iter::once(&one.creation).chain(&one.uses);
        let is_wanted = places.any(|node| at.includes(program, one.module, *node));
        if !is_wanted || !seen.insert((one.module, one.creation.id())) {
            continue;
        }
        match one.refusal.clone().map_or_else(|| change(edits, one), Err) {
            Ok(true) => {}
            Ok(false) => {
                present.get_or_insert(program.at(one.module, one.creation.start_byte()));
            }
            Err(refusal) => {
                refused.get_or_insert(refusal);
            }
        }
    }
    match (present, refused) {
        _ if !edits.is_empty() => Ok(()),
        (Some(at), _) => Err(Refusal::done(format!("{at} {done}"))),
        (None, Some(refusal)) => Err(refusal),
        (None, None) => Err(Refusal::not_understood(none)),
    }
}

/// Sets a boolean argument of a layer. Returns false if it already has the value.
pub fn switch(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    (module, made): (usize, Node<'_>),
    (name, value): (&str, &str),
    given: Option<Node<'_>>,
) -> Result<bool, Refusal> {
    match argument::set(program, edits, (module, made), (name, value), given)? {
        Argument::Set => Ok(true),
        Argument::AlreadySet => Ok(false),
        Argument::Other(other) => {
            let what = format!("takes {name} from `{other}`: set it there");
            Err(program.refuse(module, made.start_byte(), &what))
        }
    }
}

/// Returns the `torch.nn` layer that a call creates, such as `Conv2d`, or `None` for other calls.
pub fn layer(program: &Program<'_>, module: usize, call: Node<'_>) -> Option<String> {
    let call = Some(call).filter(|call| call.is(Kind::Call))?;
    let qualified = program.absolute(module, &callee(program.module(module), call));
    let rest = qualified.strip_prefix("torch.nn.")?;
    let is_none = ["functional", "init", "utils"].iter().any(|part| rest.starts_with(part));
    (!is_none).then(|| last_name(rest).to_owned())
}

/// Returns the name of a layer without `Lazy`: `Conv2d` for `LazyConv2d`.
pub fn plain_name(layer: &str) -> &str {
    layer.strip_prefix("Lazy").unwrap_or(layer)
}

/// Whether a layer does not need its output in the backward pass and never returns its input.
pub fn does_not_save_output(layer: &str) -> bool {
    let name = plain_name(layer);
    let dimensioned = ["ConvTranspose", "Conv", "BatchNorm", "InstanceNorm"];
    let is_one = |kind: &&str| {
        name.strip_prefix(kind).is_some_and(|rest| matches!(rest, "1d" | "2d" | "3d"))
    };
    dimensioned.iter().any(is_one)
        || matches!(name, "Linear" | "GroupNorm" | "LayerNorm" | "SyncBatchNorm")
}

/// Whether a layer is a batch norm, which cancels a bias before it.
pub fn is_batch_norm(layer: &str) -> bool {
    let name = plain_name(layer);
    matches!(name, "BatchNorm1d" | "BatchNorm2d" | "BatchNorm3d" | "SyncBatchNorm")
}
