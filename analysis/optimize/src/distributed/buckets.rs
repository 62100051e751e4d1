//! Gradient buckets as in PyTorch's `DistributedDataParallel` (Li et al., VLDB 2020, section
//! 3.2.3), and when a GPU has their gradients.

use ridgeline_graph::graph::{Gradient, Graph, Resource, ResourceId, TaskId};

/// Size of the first bucket, which is small so that the exchange starts early
/// (`kDefaultFirstBucketBytes` in `c10d/reducer.hpp`).
const FIRST_BUCKET_BYTES: f64 = 1024.0 * 1024.0;
/// Size of the other buckets (`bucket_cap_mb`, 25 by default).
const BUCKET_BYTES: f64 = 25.0 * 1024.0 * 1024.0;

/// Gradients that are exchanged together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Indices into [`Graph::gradients`].
    pub gradients: Vec<usize>,
    /// Total size in bytes.
    pub bytes: f64,
}

/// Returns the buckets in the order in which the backward pass fills them, which is PyTorch's order
/// after the first iteration. A bucket is full with the gradient that reaches its size.
pub fn of(gradients: &[(usize, Gradient)]) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut open = Bucket::default();
    for (index, gradient) in gradients {
        open.gradients.push(*index);
        open.bytes += gradient.bytes;
        let limit = if buckets.is_empty() { FIRST_BUCKET_BYTES } else { BUCKET_BYTES };
        if open.bytes >= limit {
            buckets.push(std::mem::take(&mut open));
        }
    }
    if !open.gradients.is_empty() {
        buckets.push(open);
    }
    buckets
}

/// The positions of a graph's tasks in the order of the host's launches.
#[derive(Clone, Debug)]
pub struct HostOrder {
    /// By task: its position on the host, if it runs there.
    place: Vec<Option<u32>>,
    /// By GPU stream: its tasks in order, with the positions of their launches.
    streams: Vec<(ResourceId, Vec<(u32, TaskId)>)>,
}

impl HostOrder {
    /// Creates the order of a graph.
    pub fn new(graph: &Graph) -> HostOrder {
        let mut place = vec![None; graph.tasks.len()];
        if let Some(host) = graph.find(&Resource::Host) {
            for (at, id) in (0_u32..).zip(graph.on(host)) {
                if let Some(slot) = place.get_mut(id.index()) {
                    *slot = Some(at);
                }
            }
        }
        let is_stream = |resource: &Resource| matches!(resource, Resource::Stream(..));
        let ids = (0_u32..).map(ResourceId).zip(graph.resources());
        let streams = ids
            .filter(|(_, resource)| is_stream(resource))
            .map(|(id, _)| {
                let launched = graph.on(id).filter_map(|task| {
                    let call = graph.task(task)?.launched_by?;
                    Some(((*place.get(call.index())?)?, task))
                });
                let mut launched: Vec<(u32, TaskId)> = launched.collect();
                launched.sort_by_key(|(at, _)| *at);
                (id, launched)
            })
            .collect();
        HostOrder { place, streams }
    }

    /// Returns the position of a host task.
    pub fn place(&self, task: TaskId) -> Option<u32> {
        self.place.get(task.index()).copied().flatten()
    }

    /// Returns the last task on each stream that was launched at or before a position.
    pub fn launched_by(&self, place: u32) -> impl Iterator<Item = TaskId> + '_ {
        self.streams.iter().filter_map(move |(_, tasks)| {
            let count = tasks.partition_point(|(at, _)| *at <= place);
            Some(tasks.get(count.checked_sub(1)?)?.1)
        })
    }

    /// Returns the first task on each stream that was launched after a position.
    pub fn launched_after(&self, place: u32) -> impl Iterator<Item = TaskId> + '_ {
        self.streams.iter().filter_map(move |(_, tasks)| {
            Some(tasks.get(tasks.partition_point(|(at, _)| *at <= place))?.1)
        })
    }

    /// Returns the stream with the most tasks.
    pub fn main_stream(&self) -> Option<ResourceId> {
        self.streams.iter().max_by_key(|(_, tasks)| tasks.len()).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(megabytes: &[f64], expected: &[usize]) {
        let gradient = |megabytes: &f64| Gradient {
            bytes: megabytes * 1024.0 * 1024.0,
            ready: TaskId(0),
            module: None,
        };
        let gradients: Vec<_> = megabytes.iter().map(gradient).enumerate().collect();
        let found: Vec<usize> = of(&gradients).iter().map(|one| one.gradients.len()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_first_bucket_is_small_and_gradients_fill_buckets_in_order() {
        check(&[0.5, 0.5, 10.0, 10.0, 10.0, 1.0], &[2, 3, 1]);
        check(&[4.0, 100.0, 0.1], &[1, 1, 1]);
        check(&[0.1], &[1]);
        check(&[], &[]);
    }
}
