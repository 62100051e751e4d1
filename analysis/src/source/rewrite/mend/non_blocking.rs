//! Copies to the GPU that the program does not wait for (PyTorch, "CUDA semantics").

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::pinned_memory::copies;
use super::super::program::Program;
use super::super::syntax::written;
use super::Wanted;

/// `non_blocking=True` at the copies of batches.
pub(super) fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &Wanted<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    for (module, call) in copies(program)? {
        if !at.meets(program, module, call) {
            continue;
        }
        let text = program.module(module);
        let Some(arguments) = program.arguments(module, call) else { continue };
        match arguments.named("non_blocking") {
            None => edits.add_arguments(program, module, call, &["non_blocking=True"])?,
            Some(given) if written(text, given) == "False" => {
                edits.replace(module, given.byte_range(), "True");
            }
            Some(_) => {
                done.get_or_insert(program.at(module, call.start_byte()));
            }
        }
    }
    if !edits.is_empty() {
        edits.note("only copies from pinned memory do not wait: `pin_memory=True` at the loader");
        return Ok(());
    }
    Err(match done {
        Some(at) => Refusal::done(format!("{at} does not wait already")),
        None => Refusal::not_understood("no copy of a batch to a GPU is here"),
    })
}
