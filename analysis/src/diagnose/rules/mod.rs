//! The rules, each in a file that says what it looks for and where the knowledge comes from.

mod attention_written_out;
mod bias_before_batch_norm;
mod channels_last_missed;
mod cudnn_benchmark_changing;
mod cudnn_benchmark_off;
mod float64;
mod fp32_without_tf32;
mod graph_break;
mod in_place_candidates;
mod layout_copies;
mod padding_waste;
mod python_loop;
mod recompilation;
mod recompute_candidates;
mod repeated_casts;
mod tensor_core_sizes;
mod tiny_kernels;
mod unfused_optimizer;

use super::rule::Rule;

/// All of them.
pub(crate) const ALL: &[&dyn Rule] = &[
    &attention_written_out::AttentionWrittenOut,
    &bias_before_batch_norm::BiasBeforeBatchNorm,
    &channels_last_missed::ChannelsLastMissed,
    &cudnn_benchmark_changing::CudnnBenchmarkChanging,
    &cudnn_benchmark_off::CudnnBenchmarkOff,
    &float64::Float64,
    &fp32_without_tf32::Fp32WithoutTf32,
    &graph_break::GraphBreak,
    &in_place_candidates::InPlaceCandidates,
    &layout_copies::LayoutCopies,
    &padding_waste::PaddingWaste,
    &python_loop::PythonLoop,
    &recompilation::Recompilation,
    &recompute_candidates::RecomputeCandidates,
    &repeated_casts::RepeatedCasts,
    &tensor_core_sizes::TensorCoreSizes,
    &tiny_kernels::TinyKernels,
    &unfused_optimizer::UnfusedOptimizer,
];
