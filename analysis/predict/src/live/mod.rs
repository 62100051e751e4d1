//! What a text costs that has not run: the last measurement, scaled by what the operators of both
//! texts cost by the model of [`op_cost`](ridgeline_operators::op_cost).
//!
//! Both texts ran under fake tensors, which leaves a list of operators of each
//! ([`op_list`](ridgeline_operators::op_list)). What the model gets wrong about a line, it gets wrong in
//! both, so a line's measured time times the ratio of both estimates is better than either
//! estimate; that is how Habitat and Daydream use what was measured, too. Time in which no operator
//! runs (Python, waiting) is kept. Where nothing was measured, the estimate is all there is.
//!
//! - [`costed`]: operators with their costs, by place.
//! - [`places`]: lines of the measured text in today's, by statement.
//! - [`scale`]: time that each statement takes itself, by phase.
//! - [`lines`]: lines of the estimated profile, with what runs below them.
//! - [`memory`]: what is alive at the peak.
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

use costed::Costed;
use lines::Lines;
use places::Places;
use scale::Scaled;

use super::other_device::{OperatorStep, Step};
use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec};
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::op_list::OpList;
use ridgeline_profile::{
    Before, Coverage, Device, Estimate, FileId, IterationCost, LineCost, Phase, PhaseTimes,
    Profile, Untracked,
};
use ridgeline_python::SourceIndex;

/// A file of today's text.
#[derive(Clone, Debug)]
pub struct Text<'a> {
    /// As profiles and lists of operators name it.
    pub path: &'a str,
    /// The text.
    pub index: &'a SourceIndex,
}

/// What was measured, and the estimate of the very text that was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The measurement.
    pub profile: &'a Profile,
    /// The operators of the text that was measured.
    pub operators: &'a OpList,
}

/// What to estimate from.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The last measurement, where the estimate is for the device that it ran on.
    pub measured: Option<Measured<'a>>,
    /// The operators of today's text.
    pub operators: &'a OpList,
    /// The texts of the files; of a file that is not here, lines stand for statements.
    pub texts: &'a [Text<'a>],
    /// What runs the operators.
    pub device: &'a DeviceSpec,
    /// How.
    pub options: Options,
    /// The device's name, where it is not the one that the program ran on.
    pub target: Option<String>,
    /// What the change is counted from where nothing was measured on this device: the estimate of
    /// the saved text.
    pub before: Option<Before>,
}

/// Estimates what a text costs.
pub fn estimate(input: &Input<'_>) -> Profile {
    let nothing = Profile::default();
    let no_operators = OpList::default();
    let measured = input.measured;
    let old = measured.map_or(&nothing, |measured| measured.profile);
    let old_list = measured.map_or(&no_operators, |measured| measured.operators);
    let before = Costed::new(old_list, input.device, &input.options);
    let now = Costed::new(input.operators, input.device, &input.options);

    let mut places = Places::new(old, input.texts);
    let scaled = Scaled::new(old, &before, &now, &mut places, input.texts);
    let mut lines = Lines::new(old, &before, &now, &scaled);
    // A list that ends early may end before the peak: what was measured is the better guess.
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
            before: measured.map(|measured| Before::of(measured.profile)).or(input.before),
        }),
        ..Profile::default()
    }
}

/// A GPU waits for a host that launches its kernels more slowly than it runs them. Nothing was measured
/// of that host, so this is what the table of other GPUs assumes of one.
fn wait_for_host(input: &Input<'_>) -> Option<Untracked> {
    if input.device.kind != DeviceKind::Gpu {
        return None;
    }
    let on_device = Step::Operators(OperatorStep::from(input.operators)).on(input.device);
    let time_ns = on_device.time_ns.value - on_device.busy_ns;
    let name = "GPU waiting for the CPU (assumed)".to_owned();
    (time_ns > 0.0).then_some(Untracked { name, phase: Phase::Other, time_ns })
}

/// Self times and what belongs to no line add up to the iteration, as they do where it was measured.
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
    scaled: &Scaled,
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
