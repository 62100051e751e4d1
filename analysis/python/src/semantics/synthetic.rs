//! Batches of random numbers or slices of a text: the first size of a tensor.

use crate::syntax::kind::Kind;
use tree_sitter::Node;

use super::call_sites::{Arguments, CallSite};
use super::gather::named_children;
use super::module::Call;
use super::objects::within_call;
use super::trace::{Place, PossibleValues, Tracer};

/// Torch functions that create a tensor of a given size.
const MAKERS: [&str; 6] = ["randn", "rand", "zeros", "ones", "empty", "randint"];

/// The first size of the first tensor that a function creates, in a program that slices its own
/// batches: `ix = torch.randint(len(data) - block_size, (batch_size,))`.
pub(super) fn first_created_size(
    tracer: &Tracer<'_>,
    module: usize,
    function: usize,
    site: &CallSite,
) -> PossibleValues {
    let text = &tracer.modules[module];
    let own = text.calls.iter().filter(|call| call.function == Some(function));
    let makers: Vec<&Call> = own.filter(|call| is_maker(call)).take(8).collect();
    for call in makers {
        let found =
            within_call(tracer, site, (module, function), || first_size(tracer, module, call));
        if !found.numbers.is_empty() {
            return found;
        }
    }
    PossibleValues::default()
}

/// Whether a call creates a tensor of a given size.
pub fn is_maker(call: &Call) -> bool {
    MAKERS.contains(&call.name()) && call.callee.contains('.')
}

/// Traces the first size of a created tensor.
pub fn first_size(tracer: &Tracer<'_>, module: usize, call: &Call) -> PossibleValues {
    let place = Place { module, span: call.span.clone() };
    let Some(arguments) = Arguments::of(tracer, &place) else { return PossibleValues::default() };
    let sizes = arguments.named("size");
    let is_tuple = |node: &Node<'_>| matches!(Kind::of(node), Kind::Tuple | Kind::List);
    let sizes = match (sizes, call.name()) {
        (Some(sizes), _) => Some(sizes),
        (None, "randint") => arguments.positional.iter().copied().find(is_tuple),
        (None, _) => arguments.positional.first().copied(),
    };
    let first = sizes.and_then(|sizes| {
        if is_tuple(&sizes) { named_children(sizes).first().copied() } else { Some(sizes) }
    });
    // A one-dimensional tensor is more likely a bias than a batch, unless it holds labels or
    // positions.
    let is_vector = call.name() != "randint"
        && arguments.positional.len() == 1
        && sizes.is_none_or(|sizes| !is_tuple(&sizes) || named_children(sizes).len() == 1);
    match first.filter(|_| !is_vector) {
        Some(first) => tracer.part(&place, first, &[]),
        None => PossibleValues::default(),
    }
}
