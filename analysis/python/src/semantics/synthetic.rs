//! Batches that a script makes of random numbers or cuts out of a text: the first size of a tensor.

use crate::syntax::kind::Kind;
use tree_sitter::Node;

use super::call_sites::{Arguments, CallSite};
use super::gather::named_children;
use super::module::Call;
use super::objects::within_call;
use super::trace::{Found, Place, Tracer};

/// Functions of torch that make a tensor, and where its sizes are.
const MAKERS: [&str; 6] = ["randn", "rand", "zeros", "ones", "empty", "randint"];

/// The first size of the first tensor that a function makes, of a program that cuts its batches by
/// itself: `ix = torch.randint(len(data) - block_size, (batch_size,))`.
pub(super) fn made_in(
    tracer: &Tracer<'_>,
    module: usize,
    function: usize,
    site: &CallSite,
) -> Found {
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
    Found::default()
}

/// Whether a call makes a tensor of given sizes.
pub fn is_maker(call: &Call) -> bool {
    MAKERS.contains(&call.name()) && call.callee.contains('.')
}

/// What the first size of a made tensor comes from.
pub fn first_size(tracer: &Tracer<'_>, module: usize, call: &Call) -> Found {
    let place = Place { module, span: call.span.clone() };
    let Some(arguments) = Arguments::of(tracer, &place) else { return Found::default() };
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
    // A vector of one size is rather a bias than a batch, unless it holds labels or places.
    let is_vector = call.name() != "randint"
        && arguments.positional.len() == 1
        && sizes.is_none_or(|sizes| !is_tuple(&sizes) || named_children(sizes).len() == 1);
    match first.filter(|_| !is_vector) {
        Some(first) => tracer.part(&place, first, &[]),
        None => Found::default(),
    }
}
