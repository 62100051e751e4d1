//! The optimizations. Each file names the paper that it follows.

mod accumulate;
mod amp;
mod batch_norm;
mod blueconnect;
mod channels_last;
mod compile;
mod cuda_graphs;
mod data_parallel;
mod fp8;
mod fused_attention;
mod fused_optimizer;
mod gist;
mod gradient_compression;
mod horizontal_fusion;
mod layer_fusion;
mod loader_workers;
mod memory_facts;
mod offload;
mod p3;
pub mod pad_dimensions;
mod parallel_scan;
mod pinned_memory;
mod prefetch;
mod recompute;
pub mod shared;
mod tf32;
mod zero_grad;

use super::optimization::Optimization;

/// All optimizations in the order in which they are combined: changes of operators before their
/// removal, fusion before distribution.
pub const ALL: &[&dyn Optimization] = &[
    &zero_grad::ZeroGradToNone,
    &pad_dimensions::PadDimensions,
    &channels_last::ChannelsLast,
    &amp::BFLOAT16,
    &amp::FLOAT16,
    &tf32::Tf32,
    &fp8::Fp8,
    &fused_attention::FusedAttention,
    &batch_norm::BatchNorm,
    &layer_fusion::LayerFusion,
    &compile::Compile,
    &fused_optimizer::FOREACH,
    &fused_optimizer::FUSED,
    &cuda_graphs::CudaGraphs,
    &loader_workers::LoaderWorkers,
    &pinned_memory::PinnedMemory,
    &prefetch::Prefetch,
    &recompute::Recompute,
    &gist::Gist,
    &offload::Offload,
    &parallel_scan::ParallelScan,
    &horizontal_fusion::HorizontalFusion,
    &data_parallel::DataParallel,
    &accumulate::Accumulate,
    &p3::P3,
    &gradient_compression::GradientCompression,
    &blueconnect::BlueConnect,
];
