//! Scales a step measured on one device to another, by its operators.
//!
//! Both steps are modelled as the sum of their operators' kernels ([`kernel`]): the mix of GEMMs
//! and memory traffic decides which ratio of the two devices the step follows. The part of the
//! measurement beyond that sum follows a ratio between those of compute and of bandwidth. The sum
//! by itself would be an estimate without a measurement; its error is mostly the same on both
//! devices and cancels in the ratio.
//!
//! The efficiencies were fitted on `timm` models that ran on an RTX 3090 and an RTX 4090
//! (`efficiencies.json` describes the fit, `docs/accuracy.md` its accuracy).

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

/// A measured step and its operators.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredStep<'a> {
    pub milliseconds: f64,
    /// The operators of the step.
    pub list: &'a OpList,
    /// The device that it ran on.
    pub device: &'a DeviceSpec,
    /// Whether it was compiled, which fuses operators.
    pub compiled: bool,
}

/// The kernels of a step, independent of any device.
pub struct StepKernels {
    kernels: Vec<(Kernel, f64)>,
    /// Whether it was compiled, which fuses element-wise operators.
    compiled: bool,
}

impl StepKernels {
    /// Collects the kernels of these phases. A compiler fuses element-wise operators into kernels
    /// that an operator list does not show. Their time is the part of the measured step beyond its
    /// other kernels.
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

/// Predicts the step on another device, where its operators are `list` (different if the batch is).
/// `None` if none of them takes time, or a device's peak rates are unknown.
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
    // Predictions for devices outside the fit are less accurate.
    let fitted_on = efficiencies.fitted_on(measured.device) && efficiencies.fitted_on(device);
    let ranges = &efficiencies.ranges;
    let factor = match (fitted_on, measured.compiled) {
        (true, false) => ranges.fitted_pair,
        (false, _) | (_, true) => ranges.other_pair,
    };
    Some(Range::within_factor(value, factor))
}

/// Predicts the step with given efficiencies, in milliseconds. `from` and `to` are the kernels and
/// device before and after.
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
    // The rest grows with the batch like the kernels.
    let batch = to.milliseconds(from_limits, efficiencies) / before;
    let rest = (milliseconds - before) * batch;
    // Fused kernels stream their inputs and outputs, so they follow bandwidth.
    let arithmetic_share = if from.compiled { 0.0 } else { efficiencies.arithmetic_share };
    Some(after + rest * from_limits.between(to_limits, arithmetic_share))
}

#[cfg(test)]
mod tests;
