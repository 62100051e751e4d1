//! From a recording to costs: every operator reaches the user's lines and modules.
//!
//! The way through it: `correlate` joins the trace to the line log by time, `backward` joins
//! autograd's nodes to their forward operators, and both together give every moment a
//! `contexts::Context`. `timeline` and `device` cut the profiled iterations into pieces of one
//! context each, `costs` adds them up, `scale` turns them into an iteration without a profiler,
//! and `lines`, `modules`, `operators` and `memory` say who bears them. `docs/numbers.md` says the
//! same for those who read the numbers.

mod backward;
mod contexts;
mod correlate;
mod costs;
mod device;
#[cfg(test)]
mod fixture;
mod lines;
mod modules;
mod scale;
mod steps;
#[cfg(test)]
mod tests;
mod timeline;

use contexts::Contexts;
use correlate::Places;
use costs::Costs;
use device::Launches;
use lines::{Lines, Sources};
use modules::Modules;
use scale::Scale;
use steps::Steps;

use crate::profile::{
    Coverage, Device, FileFacts, FileId, IterationCost, MemoryCost, Phase, PhaseTimes, Profile,
    Untracked,
};
use crate::recording::Recording;
use crate::recording::line_log::LineLog;
use crate::recording::manifest::Manifest;
use crate::recording::trace::{ThreadId, Trace};

/// Why a recording has no costs.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AttributionError {
    /// The run ended before an iteration was profiled.
    #[error("the recording holds no profiled iteration: the run ended before one was complete")]
    NoIteration,
}

/// What one iteration of a recording costs, by line, module and kernel.
///
/// # Errors
/// Where a run of the agent recorded no iteration. A trace that was recorded elsewhere always has a
/// profile, with as much in it as the trace says.
pub fn attribute(recording: &Recording) -> Result<Profile, AttributionError> {
    let trace = &recording.trace;
    let steps = Steps::new(recording);
    if recording.manifest.is_some() && steps.windows.is_empty() {
        return Err(AttributionError::NoIteration);
    }
    let empty_log = LineLog::default();
    let log = recording.lines.as_ref().unwrap_or(&empty_log);
    let sources = recording.manifest.as_ref().map(sources_of).unwrap_or_default();
    let places = Places::new(trace, log);
    let parents = correlate::parents(&trace.operators);
    let operator_places = correlate::places(&trace.operators, &places);
    let nodes = backward::nodes(trace, &parents, places.main);
    let main = places.main.or_else(|| busiest_thread(trace, &nodes));
    let mut contexts = Contexts::new(
        trace,
        &places,
        &nodes,
        &operator_places,
        &parents,
        recording.lines.is_none(),
    );
    let shown = shown_operators(&parents, &operator_places, &nodes);
    let pieces = main.map_or_else(Vec::new, |main| {
        timeline::pieces(trace, &places, &mut contexts, &shown, &steps.windows, main)
    });
    let launches = Launches::new(trace, &places, &mut contexts);
    let costs = Costs::new(trace, &contexts, &pieces, &launches, &steps.windows);
    drop(pieces);

    let rest_ns = costs.leaked_ns + costs.unexplained_ns;
    let iteration_ns = steps.iteration_ns();
    let scale = Scale::new(&costs.contexts, rest_ns, steps.windows.len(), Some(iteration_ns));
    let on_device = !trace.activities.is_empty();

    let mut lines = Lines::new(&sources, &log.stacks);
    let without_line = lines.add_times(&contexts, &places, &costs, &scale, on_device);
    lines.add_calls(&places, &steps.windows);
    let mut modules = Modules::new(recording.manifest.as_ref());
    modules.add_times(&contexts, &log.markers, &costs, &scale);
    modules.add_calls(&places, &steps.windows);

    let mut phases = PhaseTimes::default();
    for (((_, context), cost), factor) in contexts.iter().zip(&costs.contexts).zip(&scale.contexts)
    {
        *phases.get_mut(context.phase) += cost.time_ns * factor;
    }
    phases.other += rest_ns * scale.rest;

    let manifest = recording.manifest.as_ref();
    Ok(Profile {
        device: device_of(manifest, trace),
        iteration: IterationCost {
            time_ns: iteration_ns,
            timed_ns: steps.timed_ns.clone(),
            phases,
            batch_size: manifest.and_then(|manifest| manifest.batch.as_ref()?.size),
            loop_line: manifest
                .and_then(|manifest| manifest.training_loop)
                .map(|place| (FileId(place.file), place.line)),
            found_by: manifest
                .and_then(|manifest| manifest.iterations.found_by.clone())
                .unwrap_or_default(),
        },
        memory: MemoryCost::default(),
        coverage: Coverage::default(),
        lines: lines.finish(),
        files: sources.files,
        modules: modules.costs,
        kernels: Vec::new(),
        gpu: None,
        untracked: untracked(without_line, &costs, &scale),
        notes: Vec::new(),
        torch_version: manifest.map(|manifest| manifest.torch.clone()).unwrap_or_default(),
    })
}

fn sources_of(manifest: &Manifest) -> Sources {
    Sources {
        files: manifest
            .files
            .iter()
            .map(|file| FileFacts { path: file.path.clone(), fingerprint: file.line_crc.clone() })
            .collect(),
        codes: manifest.codes.iter().map(|code| (code.file, code.name.clone())).collect(),
    }
}

/// By operator: the one to show for it. The outermost one that the same place of the user's program
/// called says what a person wrote (`aten::linear`, not the `aten::addmm` within); of autograd's
/// work it is the node.
fn shown_operators(
    parents: &[Option<u32>],
    places: &[correlate::Place],
    nodes: &backward::Nodes,
) -> Vec<u32> {
    let mut shown: Vec<u32> = Vec::with_capacity(parents.len());
    for (index, parent) in (0_u32..).zip(parents) {
        let same_place = |parent: u32| {
            let of_node = |operator: u32| nodes.of_operator.get(operator as usize);
            places.get(parent as usize).map(|place| place.stack)
                == places.get(index as usize).map(|place| place.stack)
                && of_node(parent) == of_node(index)
        };
        let outer = parent
            .filter(|&parent| same_place(parent))
            .and_then(|parent| shown.get(parent as usize).copied());
        shown.push(outer.unwrap_or(index));
    }
    shown
}

/// Without a line log: the thread with most operators outside of autograd.
fn busiest_thread(trace: &Trace, nodes: &backward::Nodes) -> Option<ThreadId> {
    let mut counts = vec![0_u64; trace.threads.len()];
    for (operator, node) in trace.operators.iter().zip(&nodes.of_operator) {
        if let Some(count) = counts.get_mut(operator.thread.index())
            && node.is_none()
        {
            *count += 1;
        }
    }
    let (index, _) = counts
        .iter()
        .enumerate()
        .max_by_key(|&(index, count)| (count, std::cmp::Reverse(index)))?;
    Some(ThreadId(index as u32))
}

fn device_of(manifest: Option<&Manifest>, trace: &Trace) -> Device {
    let recorded = manifest.map(|manifest| manifest.device.clone()).unwrap_or_default();
    let used = trace.activities.first().and_then(|activity| activity.device);
    let in_trace = used.and_then(|number| trace.device(number));
    let kind = recorded.kind.unwrap_or_else(|| {
        let amd = trace.runtime_calls.iter().any(|call| trace.text(call.name).starts_with("hip"));
        match (trace.activities.is_empty(), amd) {
            (true, _) => "cpu",
            (false, true) => "rocm",
            (false, false) => "cuda",
        }
        .to_owned()
    });
    Device {
        name: recorded
            .name
            .or_else(|| in_trace.map(|device| device.name.clone()))
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "unknown".to_owned()),
        kind,
        capability: recorded.capability.or_else(|| in_trace?.capability),
        multiprocessors: recorded.multiprocessors.or_else(|| in_trace?.multiprocessors),
        roof: None,
    }
}

fn untracked(without_line: PhaseTimes, costs: &Costs, scale: &Scale) -> Vec<Untracked> {
    let by_phase = Phase::ALL.map(|phase| {
        let name = match phase {
            Phase::Other => "outside the project's code".to_owned(),
            phase => format!("outside the project's code ({})", phase.name()),
        };
        (name, without_line.get(phase))
    });
    by_phase
        .into_iter()
        .chain([
            ("kernels launched before the recording".to_owned(), costs.leaked_ns * scale.rest),
            ("no thread recorded".to_owned(), costs.unexplained_ns * scale.rest),
        ])
        .filter(|(_, time_ns)| *time_ns > 0.0)
        .map(|(name, time_ns)| Untracked { name, time_ns })
        .collect()
}
