//! Edits that fix a finding and have no what-if. Each is requested at the lines of a finding.
//! Without lines it applies everywhere in the program.

pub mod accumulated_loss;
mod activations;
mod anomaly_detection;
pub mod attention_weights;
mod attributes;
mod cudnn_benchmark;
mod eval_mode;
pub mod in_place;
pub mod layers;
pub mod losses;
mod modes;
mod no_grad;
mod non_blocking;
mod persistent_workers;
pub mod redundant_bias;
mod sequences;
pub mod sums;
pub mod taken_apart;
pub mod validation;

use tree_sitter::Node;

use super::edits::Edits;
use super::program::Program;
use super::{EditKind, Refusal};

/// Creates the edit of a kind.
pub fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    kind: EditKind,
    lines: &[(&str, u32)],
) -> Result<(), Refusal> {
    let at = &TargetLines::new(lines);
    match kind {
        EditKind::DetachAccumulated => accumulated_loss::rewrite(program, edits, at),
        EditKind::NoGradInValidation => no_grad::rewrite(program, edits, at),
        EditKind::EvalModeInValidation => eval_mode::rewrite(program, edits, at),
        EditKind::RemoveAnomalyDetection => anomaly_detection::rewrite(program, edits),
        EditKind::PersistentWorkers => persistent_workers::rewrite(program, edits, at),
        EditKind::NonBlockingCopy => non_blocking::rewrite(program, edits, at),
        EditKind::CudnnBenchmark => cudnn_benchmark::rewrite(program, edits, at),
        EditKind::WithoutBias => redundant_bias::rewrite(program, edits, at),
        EditKind::InPlaceActivation => in_place::rewrite(program, edits, at),
        EditKind::WithoutAttentionWeights => attention_weights::rewrite(program, edits, at),
        _ => Err(Refusal::not_understood("it does not fix a finding")),
    }
}

/// The lines to edit. Empty means all.
pub struct TargetLines<'a>(&'a [(&'a str, u32)]);

impl<'a> TargetLines<'a> {
    pub fn new(lines: &'a [(&'a str, u32)]) -> TargetLines<'a> {
        TargetLines(lines)
    }

    /// Whether no lines are specified.
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a node overlaps one of the lines.
    pub fn includes(&self, program: &Program<'_>, module: usize, node: Node<'_>) -> bool {
        let text = program.module(module);
        let lines = text.line(node.start_byte())..=text.line(node.end_byte().saturating_sub(1));
        self.is_empty()
            || text.parts.iter().any(|part| {
                let mut here = self.0.iter().filter(|(path, _)| *path == part.path);
                here.any(|(_, line)| lines.contains(&part.line_in_module(*line)))
            })
    }
}
