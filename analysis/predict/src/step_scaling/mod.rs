//! From a step that was measured on one device to the same step on another, by its operators.
//!
//! Both steps are put together from their operators' kernels ([`kernel`]): how much of a step is
//! products, and how much is streams, decides which ratio of the two devices it follows. What the
//! measurement has beyond the sum of its kernels is not lost: it follows a ratio between that of
//! arithmetic and that of bandwidth. The sum alone would be an estimate without a measurement; its
//! error is mostly the same on both devices and goes out of the ratio.
//!
//! The efficiencies were fitted on models of `timm` that ran on an RTX 3090 and an RTX 4090
//! (`efficiencies.json`, which says how; `docs/accuracy.md` says how well it does).

mod efficiencies;
mod kernel;
mod limits;

use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::range::Range;
use ridgeline_operators::step_cost::counts;
use ridgeline_profile::Phase;

pub use efficiencies::Efficiencies;
use kernel::Kernel;
use limits::Limits;

/// A measured step and what ran in it.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredStep<'a> {
    /// The time of one step.
    pub milliseconds: f64,
    /// Its operators.
    pub list: &'a OpList,
    /// Where it ran.
    pub device: &'a DeviceSpec,
    /// Whether a compiler had fused its operators.
    pub compiled: bool,
}

/// The kernels of a step, apart from any device.
pub struct StepKernels {
    kernels: Vec<(Kernel, f64)>,
    /// Whether a compiler had fused its element-wise operators.
    compiled: bool,
}

impl StepKernels {
    /// Of the operators of these phases. A compiler fuses element-wise operators into kernels that an
    /// operator list does not show. Their time is what the measured step has beyond its other kernels.
    pub fn of(list: &OpList, phases: &[Phase], compiled: bool) -> StepKernels {
        let kernels = counts(list, phases).into_iter().filter_map(|(signature, count)| {
            let kernel = Kernel::of(list.signatures.get(signature as usize)?)?;
            (!compiled || !kernel.is_fused_away()).then_some((kernel, count))
        });
        StepKernels { kernels: kernels.collect(), compiled }
    }

    fn milliseconds(&self, limits: &Limits, efficiencies: &Efficiencies) -> f64 {
        let kernels = self.kernels.iter();
        kernels.map(|(kernel, count)| count * kernel.seconds(limits, efficiencies)).sum::<f64>()
            * 1e3
    }
}

/// The step on another device, where its operators are `list` (they differ where the batch does).
/// `None` where nothing of it costs time, or a device's peak rates are not known.
pub fn scale_step(
    measured: &MeasuredStep<'_>,
    list: &OpList,
    device: &DeviceSpec,
    phases: &[Phase],
) -> Option<Range> {
    let from = StepKernels::of(measured.list, phases, measured.compiled);
    let to = StepKernels::of(list, phases, measured.compiled);
    let efficiencies = Efficiencies::shipped();
    let value = scale_kernels(
        measured.milliseconds,
        (&from, measured.device),
        (&to, device),
        efficiencies,
    )?;
    // What nothing was fitted on is known less well.
    let fitted_on = efficiencies.fitted_on(measured.device) && efficiencies.fitted_on(device);
    let ranges = &efficiencies.ranges;
    let factor = match (fitted_on, measured.compiled) {
        (true, false) => ranges.fitted_pair,
        (false, _) | (_, true) => ranges.other_pair,
    };
    Some(Range::within_factor(value, factor))
}

/// The step by given efficiencies, in milliseconds: kernels and device before, and after.
pub fn scale_kernels(
    milliseconds: f64,
    (from, from_device): (&StepKernels, &DeviceSpec),
    (to, to_device): (&StepKernels, &DeviceSpec),
    efficiencies: &Efficiencies,
) -> Option<f64> {
    let from_limits = &Limits::of(from_device, efficiencies)?;
    let to_limits = &Limits::of(to_device, efficiencies)?;
    let before = from.milliseconds(from_limits, efficiencies);
    let after = to.milliseconds(to_limits, efficiencies);
    if !(before.is_finite() && before > 0.0 && after.is_finite() && after > 0.0) {
        return None;
    }
    if before >= milliseconds {
        return Some(milliseconds * after / before);
    }
    // Other work grows with the batch as the kernels do.
    let batch = to.milliseconds(from_limits, efficiencies) / before;
    let rest = (milliseconds - before) * batch;
    // Fused kernels stream their inputs and outputs, so they follow bandwidth.
    let arithmetic_share = if from.compiled { 0.0 } else { efficiencies.arithmetic_share };
    Some(after + rest * from_limits.between(to_limits, arithmetic_share))
}

#[cfg(test)]
mod tests;
