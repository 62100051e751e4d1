//! Edits that make an optimization: what a person would write, where they would write it.
//!
//! Nothing runs. What is not as expected is refused with the reason, because a wrong edit would train
//! another model.

mod argument;
mod autocast;
mod channels_last;
mod checkpoint;
mod compile;
mod devices;
mod edits;
pub mod forward;
mod frameworks;
mod imports;
mod layout;
pub mod loader;
pub mod mend;
pub mod models;
pub mod optimizers;
mod origins;
pub mod pinned_memory;
pub mod program;
mod scaler;
pub mod syntax;
mod tf32;
mod zero_grad;

use std::ops::Range;

use edits::Edits;
use program::Program;
use ridgeline_python::semantics::project::Modules;
use ridgeline_python::semantics::{Entry, Project};

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
    /// `total += loss.detach()`.
    DetachAccumulated,
    /// `@torch.no_grad()` at the function that validates.
    NoGradInValidation,
    /// `model.eval()` before the validation and `model.train()` after it.
    EvalModeInValidation,
    /// Without `torch.autograd.set_detect_anomaly(True)`.
    RemoveAnomalyDetection,
    /// `persistent_workers=True` of the loader.
    PersistentWorkers,
    /// `non_blocking=True` of a copy.
    NonBlockingCopy,
    /// `model.no_sync()` around the backward passes that no step follows.
    NoSyncInAccumulation,
    /// `torch.backends.cudnn.benchmark`.
    CudnnBenchmark,
    /// `bias=False` of a layer before a batch norm.
    WithoutBias,
    /// `inplace=True` of an activation.
    InPlaceActivation,
}

impl EditKind {
    /// Whether it cannot help where a CPU trains.
    pub fn needs_gpu(self) -> bool {
        matches!(self, EditKind::Tf32 | EditKind::PinnedMemory | EditKind::AutocastFloat16)
    }

    /// Those that make an optimization that a what-if predicts.
    pub const ALL: [EditKind; 11] = [
        EditKind::AutocastBFloat16,
        EditKind::AutocastFloat16,
        EditKind::Tf32,
        EditKind::FusedOptimizer,
        EditKind::ForeachOptimizer,
        EditKind::ZeroGradToNone,
        EditKind::Compile,
        EditKind::ChannelsLast,
        EditKind::Checkpoint,
        EditKind::LoaderWorkers,
        EditKind::PinnedMemory,
    ];

    /// Those that mend a finding and make no what-if.
    pub const FIXES: [EditKind; 10] = [
        EditKind::DetachAccumulated,
        EditKind::NoGradInValidation,
        EditKind::EvalModeInValidation,
        EditKind::RemoveAnomalyDetection,
        EditKind::PersistentWorkers,
        EditKind::NonBlockingCopy,
        EditKind::NoSyncInAccumulation,
        EditKind::CudnnBenchmark,
        EditKind::WithoutBias,
        EditKind::InPlaceActivation,
    ];

    /// The optimization that it makes, by the name that what-ifs have for it; nothing for what only
    /// mends a finding.
    pub fn optimization(self) -> Option<&'static str> {
        EditKind::ALL.contains(&self).then(|| self.name())
    }

    /// What it is called in commands and documents: where it makes an optimization, by the name that
    /// what-ifs have for it.
    pub fn name(self) -> &'static str {
        match self {
            EditKind::AutocastBFloat16 => "amp-bf16",
            EditKind::AutocastFloat16 => "amp-fp16",
            EditKind::Tf32 => "tf32",
            EditKind::FusedOptimizer => "fused-optimizer",
            EditKind::ForeachOptimizer => "foreach-optimizer",
            EditKind::ZeroGradToNone => "zero-grad-none",
            EditKind::Compile => "compile",
            EditKind::ChannelsLast => "channels-last",
            EditKind::Checkpoint => "recompute",
            EditKind::LoaderWorkers => "loader-workers",
            EditKind::PinnedMemory => "pinned-memory",
            EditKind::DetachAccumulated => "detach-accumulated",
            EditKind::NoGradInValidation => "no-grad-in-validation",
            EditKind::EvalModeInValidation => "eval-mode-in-validation",
            EditKind::RemoveAnomalyDetection => "remove-anomaly-detection",
            EditKind::PersistentWorkers => "persistent-workers",
            EditKind::NonBlockingCopy => "non-blocking-copy",
            EditKind::NoSyncInAccumulation => "no-sync-in-accumulation",
            EditKind::CudnnBenchmark => "cudnn-benchmark",
            EditKind::WithoutBias => "without-bias",
            EditKind::InPlaceActivation => "in-place-activation",
        }
    }

    /// What it does, as a person reads it.
    pub fn title(self) -> &'static str {
        match self {
            EditKind::AutocastBFloat16 => "Use mixed precision (bf16 autocast)",
            EditKind::AutocastFloat16 => {
                "Use mixed precision (fp16 autocast with a gradient \
                scaler)"
            }
            EditKind::Tf32 => "Use TF32 for float32 matrix multiplications",
            EditKind::FusedOptimizer => "Use the fused optimizer (fused=True)",
            EditKind::ForeachOptimizer => "Use the foreach optimizer (foreach=True)",
            EditKind::ZeroGradToNone => "Set gradients to None instead of zero",
            EditKind::Compile => "Compile the model (torch.compile)",
            EditKind::ChannelsLast => "Use channels_last memory format",
            EditKind::Checkpoint => "Recompute activations in the backward pass (checkpoint)",
            EditKind::LoaderWorkers => "Load data in worker processes (num_workers)",
            EditKind::PinnedMemory => "Copy batches from pinned memory (pin_memory, non_blocking)",
            EditKind::DetachAccumulated => "Accumulate the loss without its graph (detach)",
            EditKind::NoGradInValidation => "Validate without gradients (torch.no_grad)",
            EditKind::EvalModeInValidation => "Validate in evaluation mode (model.eval)",
            EditKind::RemoveAnomalyDetection => "Disable anomaly detection",
            EditKind::PersistentWorkers => "Keep DataLoader workers alive (persistent_workers)",
            EditKind::NonBlockingCopy => "Use a non-blocking copy (non_blocking)",
            EditKind::NoSyncInAccumulation => "Synchronize gradients once per step (no_sync)",
            EditKind::CudnnBenchmark => "Enable cuDNN autotuning (cudnn.benchmark)",
            EditKind::WithoutBias => "Remove the redundant bias (bias=False)",
            EditKind::InPlaceActivation => "Use the in-place activation (inplace=True)",
        }
    }

    /// The edit of this name, whether it makes an optimization or mends a finding.
    pub fn of_name(name: &str) -> Option<EditKind> {
        EditKind::ALL.into_iter().chain(EditKind::FIXES).find(|kind| kind.name() == name)
    }
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// By file, relative to the root: what is replaced, as ranges of bytes, in order and apart.
    pub files: Vec<FileEdits>,
    /// What it does, for the title of a code action: `Use mixed precision (bf16 autocast)`.
    pub title: &'static str,
    /// What it is.
    pub kind: EditKind,
    /// What a person should know who takes it.
    pub notes: Vec<String>,
}

/// The edits of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileEdits {
    /// Relative to the root.
    pub path: String,
    /// What is replaced by what.
    pub edits: Vec<(Range<usize>, String)>,
}

impl FileEdits {
    /// The text after the edits.
    pub fn applied(&self, text: &str) -> String {
        let mut edited = text.to_owned();
        for (range, replacement) in self.edits.iter().rev() {
            edited.replace_range(range.clone(), replacement);
        }
        edited
    }

    /// The lines that are changed, in the text before, counted from 1.
    pub fn lines(&self, text: &str) -> Vec<u32> {
        let lines = ridgeline_python::Lines::new(text);
        let mut changed: Vec<u32> =
            self.edits.iter().map(|(range, _)| lines.line_of(range.start)).collect();
        changed.dedup();
        changed
    }
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

impl Refusal {
    fn not_understood(why: impl Into<String>) -> Refusal {
        Refusal::NotUnderstood(why.into())
    }

    fn done(what: impl Into<String>) -> Refusal {
        Refusal::Done(what.into())
    }
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
    let mut all = rewrites(project, entry, std::slice::from_ref(request));
    all.pop().unwrap_or_else(|| Err(Refusal::not_understood("no edit was requested")))
}

/// The same for several edits, each by itself: the texts are read once.
pub fn rewrites(
    project: &dyn Project,
    entry: &Entry,
    requests: &[Request<'_>],
) -> Vec<Result<Rewrite, Refusal>> {
    let modules = Modules::read(project, entry);
    if modules.is_empty() {
        let gone = Refusal::not_understood(format!("{} does not exist", entry.path));
        return requests.iter().map(|_| Err(gone.clone())).collect();
    }
    let program = Program::new(&modules, project, entry);
    requests.iter().map(|request| one(&program, request)).collect()
}

fn one(program: &Program<'_>, request: &Request<'_>) -> Result<Rewrite, Refusal> {
    if let Some(refusal) = frameworks::refusal(program, request.kind) {
        return Err(refusal);
    }
    let edits = &mut Edits::new(program);
    match request.kind {
        EditKind::AutocastBFloat16 => autocast::bfloat16(program, edits),
        EditKind::AutocastFloat16 => autocast::float16(program, edits),
        EditKind::Tf32 => tf32::rewrite(program, edits),
        EditKind::FusedOptimizer => optimizers::fused(program, edits),
        EditKind::ForeachOptimizer => optimizers::foreach(program, edits),
        EditKind::ZeroGradToNone => zero_grad::rewrite(program, edits),
        EditKind::Compile => compile::rewrite(program, edits),
        EditKind::ChannelsLast => channels_last::rewrite(program, edits),
        EditKind::Checkpoint => checkpoint::rewrite(program, edits, request.lines),
        EditKind::LoaderWorkers => loader::rewrite(program, edits, request.count),
        EditKind::PinnedMemory => pinned_memory::rewrite(program, edits),
        _ => mend::rewrite(program, edits, request.kind, request.lines),
    }?;
    std::mem::replace(edits, Edits::new(program)).finish(request.kind)
}

#[cfg(test)]
mod tests;
