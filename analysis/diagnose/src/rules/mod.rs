//! The rules. Each file says what its rule looks for and cites its sources.

mod anomaly_detection;
mod attention_written_out;
mod bias_before_batch_norm;
mod blocking_copy;
mod channels_last_missed;
mod cudnn_benchmark_changing;
mod cudnn_benchmark_off;
mod exposed_communication;
mod float64;
mod fp32_without_tf32;
mod gpu_slowed;
mod gradients_in_validation;
mod graph_break;
mod graph_kept;
mod hidden_sync;
mod imbalance;
mod in_place_candidates;
mod iteration_varies;
mod layout_copies;
mod loader_no_workers;
mod loader_not_pinned;
mod loader_transform;
mod loader_workers_restarted;
mod padding_waste;
mod profiler_left_on;
mod python_loop;
mod recompilation;
mod recompute_candidates;
mod repeated_casts;
mod straggler;
mod sync_each_accumulation_step;
mod tensor_core_sizes;
mod tiny_kernels;
mod train_mode_in_validation;
mod unfused_optimizer;

use super::rule::Rule;

pub(crate) const ALL: &[&dyn Rule] = &[
    &anomaly_detection::AnomalyDetection,
    &attention_written_out::AttentionWrittenOut,
    &bias_before_batch_norm::BiasBeforeBatchNorm,
    &blocking_copy::BlockingCopy,
    &channels_last_missed::ChannelsLastMissed,
    &cudnn_benchmark_changing::CudnnBenchmarkChanging,
    &cudnn_benchmark_off::CudnnBenchmarkOff,
    &exposed_communication::ExposedCommunication,
    &float64::Float64,
    &fp32_without_tf32::Fp32WithoutTf32,
    &gpu_slowed::GpuSlowed,
    &gradients_in_validation::GradientsInValidation,
    &graph_break::GraphBreak,
    &graph_kept::GraphKept,
    &hidden_sync::HiddenSync,
    &imbalance::Imbalance,
    &in_place_candidates::InPlaceCandidates,
    &iteration_varies::IterationVaries,
    &layout_copies::LayoutCopies,
    &loader_no_workers::LoaderNoWorkers,
    &loader_not_pinned::LoaderNotPinned,
    &loader_transform::LoaderTransform,
    &loader_workers_restarted::LoaderWorkersRestarted,
    &padding_waste::PaddingWaste,
    &profiler_left_on::ProfilerLeftOn,
    &python_loop::PythonLoop,
    &recompilation::Recompilation,
    &recompute_candidates::RecomputeCandidates,
    &repeated_casts::RepeatedCasts,
    &straggler::Straggler,
    &sync_each_accumulation_step::SyncEachAccumulationStep,
    &tensor_core_sizes::TensorCoreSizes,
    &tiny_kernels::TinyKernels,
    &train_mode_in_validation::TrainModeInValidation,
    &unfused_optimizer::UnfusedOptimizer,
];
