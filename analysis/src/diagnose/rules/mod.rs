//! The rules, each in a file that says what it looks for and where the knowledge comes from.

mod anomaly_detection;
mod blocking_copy;
mod gpu_slowed;
mod gradients_in_validation;
mod graph_kept;
mod hidden_sync;
mod iteration_varies;
mod loader_no_workers;
mod loader_not_pinned;
mod loader_transform;
mod loader_workers_restarted;
mod profiler_left_on;
mod sync_each_accumulation_step;
mod train_mode_in_validation;

use super::rule::Rule;

/// All of them.
pub(crate) const ALL: &[&dyn Rule] = &[
    &anomaly_detection::AnomalyDetection,
    &blocking_copy::BlockingCopy,
    &gpu_slowed::GpuSlowed,
    &gradients_in_validation::GradientsInValidation,
    &graph_kept::GraphKept,
    &hidden_sync::HiddenSync,
    &iteration_varies::IterationVaries,
    &loader_no_workers::LoaderNoWorkers,
    &loader_not_pinned::LoaderNotPinned,
    &loader_transform::LoaderTransform,
    &loader_workers_restarted::LoaderWorkersRestarted,
    &profiler_left_on::ProfilerLeftOn,
    &sync_each_accumulation_step::SyncEachAccumulationStep,
    &train_mode_in_validation::TrainModeInValidation,
];
