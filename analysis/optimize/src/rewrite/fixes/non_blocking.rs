//! Non-blocking copies to the GPU (PyTorch, "CUDA semantics").

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::pinned_memory::{copies, make_non_blocking};
use super::super::program::Program;
use super::TargetLines;

/// Adds `non_blocking=True` to the copies of batches.
pub(super) fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    for (module, call) in copies(program)? {
        if !at.includes(program, module, call) {
            continue;
        }
        if !make_non_blocking(program, edits, module, call)? {
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
