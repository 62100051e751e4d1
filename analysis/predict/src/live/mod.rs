//! The cost of text that has not run: the last measurement, scaled by the ratio of the operator
//! costs of both texts, by the model in [`op_cost`](ridgeline_operators::op_cost).
//!
//! Both texts ran on fake tensors, which gives an operator list of each
//! ([`op_list`](ridgeline_operators::op_list)). The model's error on a line is the same in both, so
//! the measured time of a line times the ratio of both estimates is better than either estimate.
//! Habitat and Daydream use measurements in the same way. Time without operators (Python, waiting)
//! is kept unchanged. If nothing was measured, the estimate is used directly.
//!
//! - [`costed`]: operators with their costs, by place.
//! - [`places`]: lines of the measured text in the current text, by statement.
//! - [`scale`]: self time of each statement, by phase.
//! - [`lines`]: lines of the estimated profile, with self and total times.
//! - [`memory`]: memory alive at the peak.
//! - [`modules`]: module instances.

pub mod costed;
mod lines;
mod memory;
mod modules;
mod operators;
mod places;
mod scale;
#[cfg(test)]
mod tests;

use std::ops::{Index, IndexMut};

use costed::CostedOperators;
use lines::Lines;
use places::Places;
use scale::ScaledUnits;

use super::other_device::{OperatorStep, Step};
use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec};
use ridgeline_operators::machine_costs::MachineCosts;
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::op_list::OpList;
use ridgeline_profile::{
    Baseline, Coverage, Device, Estimate, FileId, IterationCost, LineCost, Phase, PhaseTimes,
    Profile, Untracked,
};
use ridgeline_python::SourceIndex;

/// A file of the current text.
#[derive(Clone, Debug)]
pub struct Text<'a> {
    /// The path in profiles and operator lists.
    pub path: &'a str,
    pub index: &'a SourceIndex,
}

/// A measurement, and the estimate of the same text.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredText<'a> {
    /// The measurement.
    pub profile: &'a Profile,
    /// The operators of the measured text.
    pub operators: &'a OpList,
}

/// The input of an estimate.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The last measurement, if the estimate is for the device that it ran on.
    pub measured: Option<MeasuredText<'a>>,
    /// The operators of the current text.
    pub operators: &'a OpList,
    /// The texts of the files. In files without a text, each line counts as a statement.
    pub texts: &'a [Text<'a>],
    /// The device to estimate for.
    pub device: &'a DeviceSpec,
    /// Options of the cost model.
    pub options: Options,
    /// Measured times of operators in other types on the device.
    pub machine_costs: &'a MachineCosts,
    /// The device's name, if it is not the one that the program ran on.
    pub target: Option<String>,
    /// The reference for changes if nothing was measured on this device: the estimate of the saved
    /// text.
    pub before: Option<Baseline>,
}

/// Estimates the cost of the current text.
pub fn estimate(input: &Input<'_>) -> Profile {
    let empty_profile = Profile::default();
    let no_operators = OpList::default();
    let measured = input.measured;
    let old = measured.map_or(&empty_profile, |measured| measured.profile);
    let old_list = measured.map_or(&no_operators, |measured| measured.operators);
    let before = CostedOperators::new(old_list, input.device, &input.options, input.machine_costs);
    let now =
        CostedOperators::new(input.operators, input.device, &input.options, input.machine_costs);

    let mut places = Places::new(old, input.texts);
    let scaled = ScaledUnits::new(old, &before, &now, &mut places, input.texts);
    let mut lines = Lines::new(old, &before, &now, &scaled);
    // A partial list may end before the peak, so the measured peak is the better guess.
    let is_known = measured.is_none() || !scaled.is_partial;
    let peak = memory::add(&mut lines, old, old_list, is_known.then_some(input.operators));
    let modules = modules::modules(old, &before, &now, &scaled, &places);
    lines.renumber_modules(&modules.renumbered);
    let mut memory = lines.memory(old, &peak);
    if measured.is_none() {
        memory.capacity_bytes = Some(input.device.memory_bytes).filter(|bytes| *bytes > 0);
    }

    let mut untracked = scaled.untracked(old);
    if measured.is_none() {
        untracked.extend(wait_for_host(input));
    }
    let lines = lines.finish(places.count());
    let phases = phases(&lines, &untracked);
    let batch_size = input.operators.batch.as_ref().and_then(|batch| batch.size);
    let loop_line = loop_line(old, input.operators, &scaled, &places);
    let device = match measured {
        Some(measured) => measured.profile.device.clone(),
        None => device_of(input),
    };
    let iteration = IterationCost {
        time_ns: phases.total(),
        timed_ns: Vec::new(),
        slow: None,
        phases,
        phase_samples: Vec::new(),
        batch_size: batch_size.or(old.iteration.batch_size),
        batch_guessed_from: old.iteration.batch_guessed_from,
        loop_line,
        found_by: old.iteration.found_by.clone(),
        counts_tokens: old.iteration.counts_tokens,
        is_first: old.iteration.is_first,
        waited_share: 0.0,
    };
    Profile {
        device,
        iteration,
        memory,
        coverage: measured.map_or(Coverage::default(), |measured| measured.profile.coverage),
        files: places.into_facts(),
        lines,
        modules: modules.costs,
        untracked,
        notes: notes(old, input),
        torch_version: input.operators.torch.clone(),
        estimate: Some(Estimate {
            target: input.target.clone(),
            before: measured.map(|measured| Baseline::of(measured.profile)).or(input.before),
        }),
        ..Profile::default()
    }
}

/// The time that a GPU waits for a host that launches kernels more slowly than the GPU runs them.
/// The host was not measured, so this uses the assumptions of the comparison of GPUs.
fn wait_for_host(input: &Input<'_>) -> Option<Untracked> {
    if input.device.kind != DeviceKind::Gpu {
        return None;
    }
    let on_device = Step::Operators(OperatorStep::from(input.operators)).on(input.device);
    let time_ns = on_device.time_ns.value - on_device.busy_ns.value;
    let name = "GPU waiting for the CPU (assumed)".to_owned();
    (time_ns > 0.0).then_some(Untracked { name, phase: Phase::Other, time_ns })
}

/// Sums self times and untracked time, which add up to the iteration, as in a measurement.
fn phases(lines: &[Vec<LineCost>], untracked: &[Untracked]) -> PhaseTimes {
    let mut phases = PhaseTimes::default();
    for line in lines.iter().flatten() {
        phases += line.self_time;
    }
    for part in untracked {
        *phases.get_mut(part.phase) += part.time_ns;
    }
    phases
}

fn loop_line(
    old: &Profile,
    list: &OpList,
    scaled: &ScaledUnits,
    places: &Places<'_>,
) -> Option<(FileId, u32)> {
    let measured = old.iteration.loop_line.and_then(|place| places.place(place));
    let estimated = list
        .training_loop
        .and_then(|place| Some((FileId(*scaled.files_now.get(place.file as usize)?), place.line)));
    measured.or(estimated)
}

fn device_of(input: &Input<'_>) -> Device {
    Device {
        name: input.target.clone().unwrap_or_else(|| input.device.name.clone()),
        kind: input.operators.device.clone(),
        capability: input.device.capability(),
        multiprocessors: Some(input.device.multiprocessors),
        roof: Some(input.device.roof()),
        measured_roof: input.device.measured_roof(),
        is_simulated: input.measured.as_ref().is_some_and(|one| one.profile.device.is_simulated),
    }
}

fn notes(old: &Profile, input: &Input<'_>) -> Vec<String> {
    let list = input.operators;
    let guessed = list.guessed.iter().map(|guess| {
        let file = list.files.get(guess.file as usize).map_or("", String::as_str);
        format!("{file}:{}: {}", guess.line, guess.what)
    });
    let mut notes: Vec<String> = guessed.collect();
    notes.extend(list.notes.iter().cloned());
    if let Some(measured) = input.device.measured_roof() {
        notes.push(format!(
            "Estimates use the rates measured on this GPU on {}, not the datasheet values.",
            measured.on
        ));
    }
    notes.extend(old.notes.iter().cloned());
    notes.dedup();
    notes
}

/// One value for each phase.
#[derive(Clone, Copy, Debug, Default)]
struct ByPhase<T> {
    data: T,
    forward: T,
    backward: T,
    optimizer: T,
    other: T,
}

impl<T> Index<Phase> for ByPhase<T> {
    type Output = T;

    fn index(&self, phase: Phase) -> &T {
        match phase {
            Phase::Data => &self.data,
            Phase::Forward => &self.forward,
            Phase::Backward => &self.backward,
            Phase::Optimizer => &self.optimizer,
            Phase::Other => &self.other,
        }
    }
}

impl<T> IndexMut<Phase> for ByPhase<T> {
    fn index_mut(&mut self, phase: Phase) -> &mut T {
        match phase {
            Phase::Data => &mut self.data,
            Phase::Forward => &mut self.forward,
            Phase::Backward => &mut self.backward,
            Phase::Optimizer => &mut self.optimizer,
            Phase::Other => &mut self.other,
        }
    }
}
