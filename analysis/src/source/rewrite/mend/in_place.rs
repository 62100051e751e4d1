//! Activations that write over their input, where nothing else needs it.

use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::program::Program;
use super::Wanted;
use super::layers::{
    Found, Layer, calls_of, held, input_of, is_used_otherwise, leaves_its_output, sequences, switch,
};

/// `inplace=True` of activations behind layers that need their output for nothing.
pub(super) fn rewrite(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    at: &Wanted<'_>,
) -> Result<(), Refusal> {
    let mut found = Found::at(at);
    for (module, layers) in sequences(program) {
        for pair in layers.windows(2) {
            match pair {
                [(before, _), (Layer::Activation, made)] if leaves_its_output(*before) => {
                    found.meet(program, module, *made, &[]);
                }
                _ => {}
            }
        }
    }
    let all = held(program);
    for activation in all.iter().filter(|one| one.layer == Layer::Activation) {
        let calls = calls_of(program, activation);
        let is_safe = |call: &Node<'_>| {
            let input = input_of(program, &all, activation, *call);
            input.is_some_and(|(layer, _)| leaves_its_output(layer))
        };
        if !calls.is_empty() && calls.iter().all(is_safe) && !is_used_otherwise(program, activation)
        {
            found.meet(program, activation.module, activation.made, &calls);
        }
    }
    match found.change(program, edits, in_place)? {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("{at} works in place already"))),
        None => {
            let why = "no activation whose input nothing else needs, as far as is seen, is here";
            Err(Refusal::not_understood(why))
        }
    }
}

/// Lets one activation work in place; false where it does.
fn in_place(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    module: usize,
    made: Node<'_>,
) -> Result<bool, Refusal> {
    let Some(arguments) = program.arguments(module, made) else { return Ok(false) };
    if arguments.has_star || !arguments.splats.is_empty() {
        let why = "gives the activation starred arguments, which may hold inplace already";
        return Err(program.refuse(module, made.start_byte(), why));
    }
    let given = arguments.named("inplace").or(arguments.positional.first().copied());
    switch(program, edits, (module, made), ("inplace", "True"), given)
}
