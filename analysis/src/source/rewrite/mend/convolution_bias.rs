//! A convolution's bias that the batch norm behind it takes out again (PyTorch, "Performance Tuning
//! Guide").

use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::models::keeps_states;
use super::super::program::Program;
use super::super::syntax::callee;
use super::Wanted;
use super::layers::{Found, Layer, calls_of, held, input_of, is_used_otherwise, sequences, switch};

/// Arguments that stand before `bias`.
const BEFORE_BIAS: usize = 7;

/// `bias=False` of convolutions that only a batch norm follows.
pub(super) fn rewrite(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    at: &Wanted<'_>,
) -> Result<(), Refusal> {
    let mut found = Found::at(at);
    for (module, layers) in sequences(program) {
        for pair in layers.windows(2) {
            if let [(Layer::Convolution, made), (Layer::BatchNorm, norm)] = pair {
                found.meet(program, module, *made, &[*norm]);
            }
        }
    }
    let all = held(program);
    for norm in all.iter().filter(|one| one.layer == Layer::BatchNorm) {
        for call in calls_of(program, norm) {
            let Some((Layer::Convolution, by)) = input_of(program, &all, norm, call) else {
                continue;
            };
            let name = callee(program.module(norm.module), by);
            let convolution = all.iter().find(|one| {
                one.module == norm.module && one.class == norm.class && one.name == name
            });
            let Some(convolution) = convolution else { continue };
            // Elsewhere its bias may be needed.
            if calls_of(program, convolution).len() != 1 || is_used_otherwise(program, convolution)
            {
                continue;
            }
            found.meet(program, norm.module, convolution.made, &[by, norm.made]);
        }
    }
    let done = found.change(program, edits, without_bias)?;
    if !edits.is_empty() {
        if keeps_states(program) {
            edits.note("what was saved before has these biases: load it with `strict=False`");
        }
        return Ok(());
    }
    Err(match done {
        Some(at) => Refusal::done(format!("{at} has no bias already")),
        None => Refusal::not_understood("no convolution that only a batch norm follows is here"),
    })
}

/// Takes the bias of one convolution away; false where it has none.
fn without_bias(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    module: usize,
    made: Node<'_>,
) -> Result<bool, Refusal> {
    let Some(arguments) = program.arguments(module, made) else { return Ok(false) };
    let is_open = arguments.has_star || !arguments.splats.is_empty();
    if is_open || arguments.positional.len() > BEFORE_BIAS {
        let why = "gives the convolution its bias in a form that is not followed";
        return Err(program.refuse(module, made.start_byte(), why));
    }
    switch(program, edits, (module, made), ("bias", "False"), arguments.named("bias"))
}
