//! Kernels by name: launches, time and occupancy.

use std::collections::HashMap;

use super::Sums;
use super::costs::is_within;
use super::device::Launches;
use super::join::Join;
use ridgeline_devices::occupancy::occupancy;
use ridgeline_profile::{Device, KernelCost};
use ridgeline_recording::StringId;
use ridgeline_recording::trace::{Activity, ActivityKind, Trace};

/// Sums over kernels of one name.
#[derive(Debug, Default)]
pub(super) struct KernelSums(HashMap<StringId, Sum>);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: f64,
    time_ns: f64,
    /// Sums of occupancy times duration, and of duration, over the kernels whose occupancy is
    /// known.
    occupied_ns: f64,
    known_ns: f64,
}

impl KernelSums {
    /// Adds one launch.
    pub(crate) fn add(&mut self, trace: &Trace, activity: &Activity, device: &Device) {
        let sum = self.0.entry(activity.name).or_default();
        let duration_ns = activity.duration_ns as f64;
        sum.calls += 1.0;
        sum.time_ns += duration_ns;
        let known = device
            .capability
            .zip(device.multiprocessors)
            .filter(|_| activity.kind == ActivityKind::Kernel && device.kind == "cuda");
        let occupied = known.and_then(|(capability, multiprocessors)| {
            occupancy(&trace.details(activity).launch, capability, multiprocessors)
        });
        if let Some(occupied) = occupied {
            sum.occupied_ns += occupied.achieved * duration_ns;
            sum.known_ns += duration_ns;
        }
    }

    /// Adds other sums.
    pub(crate) fn merge(&mut self, other: &KernelSums) {
        for (name, other) in &other.0 {
            let sum = self.0.entry(*name).or_default();
            sum.calls += other.calls;
            sum.time_ns += other.time_ns;
            sum.occupied_ns += other.occupied_ns;
            sum.known_ns += other.known_ns;
        }
    }

    /// Returns the total nanoseconds.
    pub(crate) fn time_ns(&self) -> f64 {
        self.0.values().map(|sum| sum.time_ns).sum()
    }

    /// Returns the costs per iteration, most expensive first.
    pub(crate) fn finish(&self, trace: &Trace, per_iteration: f64) -> Vec<KernelCost> {
        let mut kernels: Vec<KernelCost> = self
            .0
            .iter()
            .map(|(name, sum)| KernelCost {
                name: trace.text(*name).to_owned(),
                calls: sum.calls * per_iteration,
                time_ns: sum.time_ns * per_iteration,
                occupancy: (sum.known_ns > 0.0).then(|| sum.occupied_ns / sum.known_ns),
            })
            .collect();
        kernels.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns).then_with(|| a.name.cmp(&b.name)));
        kernels
    }
}

/// Iterates over the activities launched within the windows, with their indices.
pub(super) fn launched_within<'a>(
    join: &'a Join<'_>,
    launches: &'a Launches,
) -> impl Iterator<Item = (usize, &'a Activity)> {
    join.trace.activities.iter().enumerate().filter(|(index, _)| {
        launches
            .call(*index)
            .and_then(|call| join.trace.runtime_calls.get(call))
            .is_some_and(|call| is_within(join.windows, call.start_ns))
    })
}

/// Returns all kernels of an iteration, most expensive first.
pub(super) fn all(join: &Join<'_>, sums: &Sums) -> Vec<KernelCost> {
    let mut kernels = KernelSums::default();
    for (_, activity) in launched_within(join, &sums.launches) {
        kernels.add(join.trace, activity, &sums.device);
    }
    kernels.finish(join.trace, sums.scale.per_iteration)
}
