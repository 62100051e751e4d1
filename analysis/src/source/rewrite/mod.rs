//! Edits that make an optimization: what a person would write, where they would write it.
//!
//! Nothing runs. What is not as expected is refused with the reason, because a wrong edit would train
//! another model.

use std::ops::Range;

use super::batch_site::{Entry, Project};

/// What to edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EditKind {
    /// `torch.autocast(…, dtype=torch.bfloat16)` around forward pass and loss.
    AutocastBFloat16,
    /// The same in float16, with a gradient scaler.
    AutocastFloat16,
    /// `torch.set_float32_matmul_precision("high")`.
    Tf32,
    /// `fused=True` at the optimizer.
    FusedOptimizer,
    /// `foreach=True` at the optimizer.
    ForeachOptimizer,
    /// `zero_grad(set_to_none=True)`.
    ZeroGradToNone,
    /// `model = torch.compile(model)`.
    Compile,
    /// `memory_format=torch.channels_last` at the model and its input.
    ChannelsLast,
    /// `torch.utils.checkpoint` around calls of modules.
    Checkpoint,
    /// `num_workers` of the loader, and that its workers stay.
    LoaderWorkers,
    /// `pin_memory` of the loader, and copies that do not block.
    PinnedMemory,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to edit.
    pub kind: EditKind,
    /// The lines that it is about, in today's text: file relative to the root, line from 1.
    pub lines: &'a [(&'a str, u32)],
    /// How many workers, where that is asked.
    pub count: Option<u32>,
}

/// An edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// By file, relative to the root: what is replaced, as ranges of bytes, in order and apart.
    pub files: Vec<FileEdits>,
    /// What it does, for the title of a code action: `Train in bfloat16 (autocast)`.
    pub title: String,
}

/// The edits of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileEdits {
    /// Relative to the root.
    pub path: String,
    /// What is replaced by what.
    pub edits: Vec<(Range<usize>, String)>,
}

/// Why there is no edit.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// The text has it already.
    #[error("{0}")]
    Done(String),
    /// The text is not what the edit expects.
    #[error("{0}")]
    NotUnderstood(String),
}

/// The edit that makes an optimization of a program.
///
/// # Errors
/// Where the text has it already, or is not what the edit expects.
pub fn rewrite(
    project: &dyn Project,
    entry: &Entry,
    request: &Request<'_>,
) -> Result<Rewrite, Refusal> {
    let _ = (project, entry, request);
    Err(Refusal::NotUnderstood("edits are not made yet".to_owned()))
}
