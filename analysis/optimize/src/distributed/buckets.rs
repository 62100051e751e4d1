//! Gradients put together as PyTorch's `DistributedDataParallel` does it (Li et al., VLDB 2020,
//! section 3.2.3), and when a GPU has them.

use ridgeline_graph::graph::{Gradient, Graph, Resource, ResourceId, TaskId};

/// The first bucket is small, so that the exchange begins early (`kDefaultFirstBucketBytes` of
/// `c10d/reducer.hpp`).
const FIRST_BYTES: f64 = 1024.0 * 1024.0;
/// The others (`bucket_cap_mb`, 25 where a program does not say otherwise).
const BYTES: f64 = 25.0 * 1024.0 * 1024.0;

/// Gradients that are exchanged together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Indices into [`Graph::gradients`].
    pub gradients: Vec<usize>,
    /// Their sizes together.
    pub bytes: f64,
}

/// Buckets in the order in which the backward pass fills them, which is that to which PyTorch
/// arranges them after the first iteration. A bucket is full with the gradient that takes it to its
/// size.
pub fn of(gradients: &[(usize, Gradient)]) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut open = Bucket::default();
    for (index, gradient) in gradients {
        open.gradients.push(*index);
        open.bytes += gradient.bytes;
        let limit = if buckets.is_empty() { FIRST_BYTES } else { BYTES };
        if open.bytes >= limit {
            buckets.push(std::mem::take(&mut open));
        }
    }
    if !open.gradients.is_empty() {
        buckets.push(open);
    }
    buckets
}

/// The places of a graph's tasks in the order in which the host asked for them.
#[derive(Clone, Debug)]
pub struct HostOrder {
    /// By task: its place on the host, where it is there.
    place: Vec<Option<u32>>,
    /// By stream of a GPU: its tasks with the places of the calls that launched them, in order.
    streams: Vec<(ResourceId, Vec<(u32, TaskId)>)>,
}

impl HostOrder {
    /// Of a graph as it is now.
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

    /// Where a task of the host stands.
    pub fn place(&self, task: TaskId) -> Option<u32> {
        self.place.get(task.index()).copied().flatten()
    }

    /// On each stream, the last task that was launched by then.
    pub fn launched_by(&self, place: u32) -> impl Iterator<Item = TaskId> + '_ {
        self.streams.iter().filter_map(move |(_, tasks)| {
            let count = tasks.partition_point(|(at, _)| *at <= place);
            Some(tasks.get(count.checked_sub(1)?)?.1)
        })
    }

    /// On each stream, the first task that was launched later.
    pub fn launched_after(&self, place: u32) -> impl Iterator<Item = TaskId> + '_ {
        self.streams.iter().filter_map(move |(_, tasks)| {
            Some(tasks.get(tasks.partition_point(|(at, _)| *at <= place))?.1)
        })
    }

    /// The stream with the most tasks.
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
    fn the_first_bucket_is_small_and_each_is_full_with_what_fills_it() {
        check(&[0.5, 0.5, 10.0, 10.0, 10.0, 1.0], &[2, 3, 1]);
        check(&[4.0, 100.0, 0.1], &[1, 1, 1]);
        check(&[0.1], &[1]);
        check(&[], &[]);
    }
}
