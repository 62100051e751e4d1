//! The cost of all operators of one step on a device, from an operator list.

use std::collections::HashMap;

use super::op_cost::{self, Options};
use super::op_list::OpList;
use crate::range::Range;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_profile::Phase;

/// The cost of a step on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCost {
    /// Time of its kernels run one after another, in nanoseconds.
    pub kernels_ns: Range,
    /// Number of kernel launches.
    pub launches: f64,
    /// Floating-point operations.
    pub flops: f64,
    /// Minimum bytes moved.
    pub bytes: f64,
}

impl StepCost {
    /// Adds up the operators of the given phases.
    pub fn of(list: &OpList, phases: &[Phase], device: &DeviceSpec, options: &Options) -> StepCost {
        let mut sum = StepCost::default();
        for (signature, count) in counts(list, phases) {
            let Some(operator) = list.signatures.get(signature as usize) else { continue };
            let cost = op_cost::cost(operator, device, options);
            let factor = op_cost::factor_in_step(cost.family);
            let time_ns = Range::within_factor(cost.time_ns.value * count, factor);
            sum.kernels_ns = sum.kernels_ns.plus(time_ns);
            sum.launches += cost.launches * count;
            sum.flops += cost.flops * count;
            sum.bytes += cost.bytes * count;
        }
        sum
    }
}

/// Counts the calls of each signature in the given phases, in order of first use.
pub fn counts(list: &OpList, phases: &[Phase]) -> Vec<(u32, f64)> {
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut counts: Vec<(u32, f64)> = Vec::new();
    for op in list.ops.iter().filter(|op| phases.contains(&op.phase)) {
        match places.get(&op.signature).and_then(|place| counts.get_mut(*place)) {
            Some((_, count)) => *count += 1.0,
            None => {
                places.insert(op.signature, counts.len());
                counts.push((op.signature, 1.0));
            }
        }
    }
    counts
}
