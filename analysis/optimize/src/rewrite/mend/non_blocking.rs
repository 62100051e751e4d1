//! Copies to the GPU that the program does not wait for (PyTorch, "CUDA semantics").

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::pinned_memory::{copies, copy_without_waiting};
use super::super::program::Program;
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
        if !copy_without_waiting(program, edits, module, call)? {
            done.get_or_insert(program.at(module, call.start_byte()));
        }
    }
    if !edits.is_empty() {
        edits.note(
            "only copies from pinned memory are asynchronous: set `pin_memory=True` on the \
            DataLoader",
        );
        return Ok(());
    }
    Err(match done {
        Some(at) => Refusal::done(format!("{at} is already non-blocking")),
        None => Refusal::not_understood("no batch is copied to a GPU here"),
    })
}
