//! Copies from the host to a GPU.

use ridgeline_recording::copies::{Direction, direction};

use crate::graph::{Graph, Task, TaskKind};

/// Whether a task copies from the host to a GPU.
pub fn is_upload(graph: &Graph, task: &Task) -> bool {
    task.kind == TaskKind::HostCopy
        && !task.is_removed
        && direction(graph.name_of(task)) == Some(Direction::ToDevice)
}
