//! Activations that write over their input, where nothing else needs it.

use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::program::Program;
use super::super::syntax::written;
use super::Wanted;
use super::layers::{
    Layer, calls_of, held, input_of, is_used_otherwise, leaves_its_output, sequences,
};

/// `inplace=True` of activations behind layers that need their output for nothing.
pub(super) fn rewrite(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    at: &Wanted<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    let mut take = |edits: &mut Edits<'_>, module: usize, made: Node<'_>, uses: &[Node<'_>]| {
        let mut places = std::iter::once(&made).chain(uses);
        if !places.any(|node| at.meets(program, module, *node)) {
            return Ok(());
        }
        if !in_place(program, edits, module, made)? {
            done.get_or_insert(program.at(module, made.start_byte()));
        }
        Ok(())
    };
    for (module, layers) in sequences(program) {
        for pair in layers.windows(2) {
            match pair {
                [(before, _), (Layer::Activation, made)] if leaves_its_output(*before) => {
                    take(edits, module, *made, &[])?;
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
            take(edits, activation.module, activation.made, &calls)?;
        }
    }
    match done {
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
    let text = program.module(module);
    let Some(arguments) = program.arguments(module, made) else { return Ok(false) };
    if arguments.has_star || !arguments.splats.is_empty() {
        let why = "gives the activation starred arguments, which may hold inplace already";
        return Err(program.refuse(module, made.start_byte(), why));
    }
    let given = arguments.named("inplace").or(arguments.positional.first().copied());
    match given.map(|given| (given, written(text, given))) {
        None => edits.add_arguments(program, module, made, &["inplace=True"])?,
        Some((_, value)) if value == "True" => return Ok(false),
        Some((given, value)) if value == "False" => {
            edits.replace(module, given.byte_range(), "True");
        }
        Some((_, value)) => {
            let what = format!("takes inplace from `{value}`: set it there");
            return Err(program.refuse(module, made.start_byte(), &what));
        }
    }
    Ok(true)
}
