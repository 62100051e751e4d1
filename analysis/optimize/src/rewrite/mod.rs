//! Edits that apply an optimization: what a person would write, where they would write it.
//!
//! Nothing is executed. Code with an unexpected form is refused with the reason, because a wrong
//! edit would train a different model.

mod argument;
mod autocast;
mod channels_last;
mod checkpoint;
mod compile;
mod cuda_graphs;
mod data_parallel;
mod devices;
mod edits;
pub mod fixes;
pub mod forward;
mod frameworks;
pub mod fused_attention;
mod gradient_compression;
mod imports;
mod layout;
pub mod loader;
pub mod models;
mod no_sync;
mod offload;
pub mod optimizers;
mod origins;
mod outputs;
pub mod pinned_memory;
mod prefetch;
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

/// The kind of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EditKind {
    /// `torch.autocast(…, dtype=torch.bfloat16)` around forward pass and loss.
    AutocastBFloat16,
    /// `torch.autocast` in float16, with a gradient scaler.
    AutocastFloat16,
    /// `torch.set_float32_matmul_precision("high")`.
    Tf32,
    /// `fused=True` for the optimizer.
    FusedOptimizer,
    /// `foreach=True` for the optimizer.
    ForeachOptimizer,
    /// `zero_grad(set_to_none=True)`.
    ZeroGradToNone,
    /// `model = torch.compile(model)`.
    Compile,
    /// `model = torch.compile(model, mode="reduce-overhead")`.
    CudaGraphs,
    /// `memory_format=torch.channels_last` for the model and its input.
    ChannelsLast,
    /// `torch.utils.checkpoint` around calls of modules.
    Checkpoint,
    /// `torch.autograd.graph.save_on_cpu` around the calls of the model.
    Offload,
    /// `DistributedDataParallel` under `torchrun`.
    DataParallel,
    /// `model.no_sync()` around the backward passes that are not followed by a step.
    Accumulate,
    /// A communication hook of `DistributedDataParallel` that sends bfloat16.
    GradientCompression,
    /// `scaled_dot_product_attention` in place of matmul, softmax and matmul.
    FusedAttention,
    /// `num_workers` and `persistent_workers` of the loader.
    LoaderWorkers,
    /// `pin_memory` of the loader, and non-blocking copies.
    PinnedMemory,
    /// A generator around the loader that copies the next batch on another stream.
    Prefetch,
    /// `total += loss.detach()`.
    DetachAccumulated,
    /// `@torch.no_grad()` on the validation function.
    NoGradInValidation,
    /// `model.eval()` before validation and `model.train()` after it.
    EvalModeInValidation,
    /// Removes `torch.autograd.set_detect_anomaly(True)`.
    RemoveAnomalyDetection,
    /// `persistent_workers=True` of the loader.
    PersistentWorkers,
    /// `non_blocking=True` of a copy.
    NonBlockingCopy,
    /// `torch.backends.cudnn.benchmark = True`, or `False` at the line of a finding.
    CudnnBenchmark,
    /// `bias=False` for a layer before a batch norm.
    WithoutBias,
    /// `inplace=True` for an activation.
    InPlaceActivation,
    /// `need_weights=False` for a call of `nn.MultiheadAttention`.
    WithoutAttentionWeights,
}

impl EditKind {
    /// Whether the edit has no effect when training on a CPU.
    pub fn needs_gpu(self) -> bool {
        matches!(
            self,
            EditKind::Tf32
                | EditKind::PinnedMemory
                | EditKind::Prefetch
                | EditKind::AutocastFloat16
                | EditKind::CudaGraphs
                | EditKind::Offload
                | EditKind::DataParallel
                | EditKind::GradientCompression
        )
    }

    /// Whether the edit only has an effect with several processes, which a launcher starts.
    pub fn needs_launcher(self) -> bool {
        matches!(
            self,
            EditKind::DataParallel | EditKind::Accumulate | EditKind::GradientCompression
        )
    }

    /// The edits that apply an optimization predicted by a what-if.
    pub const ALL: [EditKind; 18] = [
        EditKind::AutocastBFloat16,
        EditKind::AutocastFloat16,
        EditKind::Tf32,
        EditKind::FusedOptimizer,
        EditKind::ForeachOptimizer,
        EditKind::ZeroGradToNone,
        EditKind::Compile,
        EditKind::CudaGraphs,
        EditKind::ChannelsLast,
        EditKind::Checkpoint,
        EditKind::Offload,
        EditKind::DataParallel,
        EditKind::Accumulate,
        EditKind::GradientCompression,
        EditKind::FusedAttention,
        EditKind::LoaderWorkers,
        EditKind::PinnedMemory,
        EditKind::Prefetch,
    ];

    /// The edits that fix a finding and have no what-if.
    pub const FIXES: [EditKind; 10] = [
        EditKind::DetachAccumulated,
        EditKind::NoGradInValidation,
        EditKind::EvalModeInValidation,
        EditKind::RemoveAnomalyDetection,
        EditKind::PersistentWorkers,
        EditKind::NonBlockingCopy,
        EditKind::CudnnBenchmark,
        EditKind::WithoutBias,
        EditKind::InPlaceActivation,
        EditKind::WithoutAttentionWeights,
    ];

    /// Returns the name of the optimization that it applies, as in what-ifs. Returns `None` for
    /// edits that only fix a finding.
    pub fn optimization(self) -> Option<&'static str> {
        EditKind::ALL.contains(&self).then(|| self.name())
    }

    /// Returns the name in commands and documents. For an optimization, it is the name in what-ifs.
    pub fn name(self) -> &'static str {
        match self {
            EditKind::AutocastBFloat16 => "amp-bf16",
            EditKind::AutocastFloat16 => "amp-fp16",
            EditKind::Tf32 => "tf32",
            EditKind::FusedOptimizer => "fused-optimizer",
            EditKind::ForeachOptimizer => "foreach-optimizer",
            EditKind::ZeroGradToNone => "zero-grad-none",
            EditKind::Compile => "compile",
            EditKind::CudaGraphs => "cuda-graphs",
            EditKind::ChannelsLast => "channels-last",
            EditKind::Checkpoint => "recompute",
            EditKind::Offload => "offload",
            EditKind::DataParallel => "data-parallel",
            EditKind::Accumulate => "accumulate",
            EditKind::GradientCompression => "gradient-compression",
            EditKind::FusedAttention => "fused-attention",
            EditKind::LoaderWorkers => "loader-workers",
            EditKind::PinnedMemory => "pinned-memory",
            EditKind::Prefetch => "prefetch",
            EditKind::DetachAccumulated => "detach-accumulated",
            EditKind::NoGradInValidation => "no-grad-in-validation",
            EditKind::EvalModeInValidation => "eval-mode-in-validation",
            EditKind::RemoveAnomalyDetection => "remove-anomaly-detection",
            EditKind::PersistentWorkers => "persistent-workers",
            EditKind::NonBlockingCopy => "non-blocking-copy",
            EditKind::CudnnBenchmark => "cudnn-benchmark",
            EditKind::WithoutBias => "without-bias",
            EditKind::InPlaceActivation => "in-place-activation",
            EditKind::WithoutAttentionWeights => "without-attention-weights",
        }
    }

    /// Returns the title shown to the user.
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
            EditKind::CudaGraphs => "Compile the model into CUDA graphs (reduce-overhead)",
            EditKind::ChannelsLast => "Use channels_last memory format",
            EditKind::Checkpoint => "Recompute activations in the backward pass (checkpoint)",
            EditKind::Offload => "Offload saved activations to host memory (save_on_cpu)",
            EditKind::Accumulate => "Synchronize gradients once per step (no_sync)",
            EditKind::GradientCompression => "Exchange gradients in bfloat16 (bf16_compress_hook)",
            EditKind::DataParallel => "Train on several GPUs (torchrun, DistributedDataParallel)",
            EditKind::FusedAttention => "Use fused attention (scaled_dot_product_attention)",
            EditKind::LoaderWorkers => "Load data in worker processes (num_workers)",
            EditKind::PinnedMemory => "Copy batches from pinned memory (pin_memory, non_blocking)",
            EditKind::Prefetch => "Copy the next batch while the GPU computes (CUDA stream)",
            EditKind::DetachAccumulated => "Accumulate the loss without its graph (detach)",
            EditKind::NoGradInValidation => "Validate without gradients (torch.no_grad)",
            EditKind::EvalModeInValidation => "Validate in evaluation mode (model.eval)",
            EditKind::RemoveAnomalyDetection => "Disable anomaly detection",
            EditKind::PersistentWorkers => "Keep DataLoader workers alive (persistent_workers)",
            EditKind::NonBlockingCopy => "Use a non-blocking copy (non_blocking)",
            EditKind::CudnnBenchmark => "Enable cuDNN autotuning (cudnn.benchmark)",
            EditKind::WithoutBias => "Remove the redundant bias (bias=False)",
            EditKind::InPlaceActivation => "Use the in-place activation (inplace=True)",
            EditKind::WithoutAttentionWeights => {
                "Do not compute the attention weights (need_weights=False)"
            }
        }
    }

    /// Returns the edit with a name.
    pub fn from_name(name: &str) -> Option<EditKind> {
        EditKind::ALL.into_iter().chain(EditKind::FIXES).find(|kind| kind.name() == name)
    }
}

/// A requested edit.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The kind of edit.
    pub kind: EditKind,
    /// The lines that it concerns, in the current text: file relative to the root, line number
    /// starting at 1.
    pub lines: &'a [(&'a str, u32)],
    /// Number of workers, if specified.
    pub count: Option<u32>,
}

/// An edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Edits by file, relative to the root, as byte ranges in order that do not overlap.
    pub files: Vec<FileEdits>,
    /// Title of the code action: `Use mixed precision (bf16 autocast)`.
    pub title: &'static str,
    /// The kind of edit.
    pub kind: EditKind,
    /// Notes for the user who applies it.
    pub notes: Vec<String>,
}

/// The edits of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileEdits {
    /// Path relative to the root.
    pub path: String,
    /// Replaced ranges with their new text.
    pub edits: Vec<(Range<usize>, String)>,
}

impl FileEdits {
    /// Returns the text after the edits.
    pub fn applied(&self, text: &str) -> String {
        let mut edited = text.to_owned();
        for (range, replacement) in self.edits.iter().rev() {
            edited.replace_range(range.clone(), replacement);
        }
        edited
    }

    /// Returns the changed lines of the text before the edits, starting at 1.
    pub fn lines(&self, text: &str) -> Vec<u32> {
        let lines = ridgeline_python::Lines::new(text);
        let mut changed: Vec<u32> =
            self.edits.iter().map(|(range, _)| lines.line_of(range.start)).collect();
        changed.dedup();
        changed
    }
}

/// The reason why there is no edit.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// The edit is already present.
    #[error("{0}")]
    Done(String),
    /// The code does not have the form that the edit expects.
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

/// Creates the edit that applies an optimization to a program.
///
/// # Errors
/// Fails if the edit is already present, or if the code does not have the expected form.
pub fn rewrite(
    project: &dyn Project,
    entry: &Entry,
    request: &Request<'_>,
) -> Result<Rewrite, Refusal> {
    let mut all = rewrites(project, entry, std::slice::from_ref(request));
    all.pop().unwrap_or_else(|| Err(Refusal::not_understood("no edit was requested")))
}

/// Creates several independent edits. The texts are read once.
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
        EditKind::CudaGraphs => cuda_graphs::rewrite(program, edits),
        EditKind::ChannelsLast => channels_last::rewrite(program, edits),
        EditKind::Checkpoint => checkpoint::rewrite(program, edits, request.lines),
        EditKind::Offload => offload::rewrite(program, edits),
        EditKind::DataParallel => data_parallel::rewrite(program, edits),
        EditKind::Accumulate => no_sync::rewrite(program, edits),
        EditKind::GradientCompression => gradient_compression::rewrite(program, edits),
        EditKind::FusedAttention => {
            let at = fixes::TargetLines::new(request.lines);
            fused_attention::rewrite(program, edits, &at)
        }
        EditKind::LoaderWorkers => loader::rewrite(program, edits, request.count),
        EditKind::PinnedMemory => pinned_memory::rewrite(program, edits),
        EditKind::Prefetch => prefetch::rewrite(program, edits),
        _ => fixes::rewrite(program, edits, request.kind, request.lines),
    }?;
    std::mem::replace(edits, Edits::new(program)).finish(request.kind)
}

#[cfg(test)]
mod tests;
