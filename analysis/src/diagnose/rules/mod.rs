//! The rules, each in a file that says what it looks for and where the knowledge comes from.

mod blocking_copy;
mod graph_kept;
mod hidden_sync;
mod loader_no_workers;
mod loader_not_pinned;
mod loader_transform;
mod loader_workers_restarted;

use super::rule::Rule;

/// All of them.
pub(crate) const ALL: &[&dyn Rule] = &[
    &blocking_copy::BlockingCopy,
    &graph_kept::GraphKept,
    &hidden_sync::HiddenSync,
    &loader_no_workers::LoaderNoWorkers,
    &loader_not_pinned::LoaderNotPinned,
    &loader_transform::LoaderTransform,
    &loader_workers_restarted::LoaderWorkersRestarted,
];
