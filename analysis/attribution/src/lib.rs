//! Turns a recording into costs: attributes every operator to the user's lines and modules.
//!
//! The steps: `correlate` joins the trace to the line log by time, `backward` joins autograd nodes
//! to their forward operators, and together they give every moment a `contexts::Context`.
//! `timeline` and `device` cut the profiled iterations into pieces of one context each, `costs`
//! adds them up, `scale` converts them to an iteration without the profiler, and `lines`,
//! `modules`, `operators` and `memory` distribute them. `docs/numbers.md` explains the same to
//! users.

mod backward;
pub mod bottleneck;
mod callers;
mod communication;
mod compiled;
mod contexts;
mod correlate;
mod costs;
mod coverage;
mod device;
mod exchange;
mod expressions;
mod fast_lines;
#[cfg(test)]
mod fixture;
mod gradients;
mod graph_entries;
mod host_overhead;
mod join;
mod kernel_bound;
mod kernels;
mod lines;
mod memory;
mod memory_kinds;
pub mod metrics;
mod modules;
mod notes;
mod operators;
mod optimizer;
pub mod part;
pub mod ranks;
mod recorded_step;
mod replays;
mod scale;
mod slow_iterations;
pub mod spans;
mod step_graph;
mod steps;
#[cfg(test)]
mod tests;
mod timeline;

pub use host_overhead::{host_ns_per_operator, unknown_cost_share};
pub use recorded_step::recorded_step;
pub use step_graph::step_graph;

pub use metrics::tensor_cores::runs_fp8;

use std::sync::Arc;

use communication::Communication;
use compiled::EagerShares;
use contexts::{Context, ContextId, Contexts};
use costs::{Cost, Costs};
use device::Launches;
use join::Join;
use lines::{Lines, Sources};
use memory_kinds::Classifier;
use modules::Modules;
use notes::RecordedLine;
use scale::Scale;
use step_graph::AttributionResults;
use steps::Steps;

use crate::bottleneck::bottleneck;
use crate::metrics::utilization::{UtilizationMetrics, measure};
use ridgeline_base::intervals;
use ridgeline_graph::recorded::{NoGraph, Recorded};
use ridgeline_profile::{
    BatchSource, Coverage, Device, FileFacts, FileId, IterationCost, MAX_SAMPLES, Phase,
    PhaseTimes, Profile, Sample, Untracked,
};
use ridgeline_recording::Recording;
use ridgeline_recording::line_log::LineLog;
use ridgeline_recording::manifest::{Batch, Manifest, Region};
use ridgeline_recording::trace::Trace;

/// The reason why a recording has no costs.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AttributionError {
    /// The run ended before an iteration was profiled.
    #[error("the recording has no profiled iteration: the run ended before one completed")]
    NoIteration,
    /// The profiler recorded nothing of a GPU that ran operators: CUPTI did not start.
    #[error("the GPU ran operators, but the profiler recorded no kernels. {why}")]
    NoKernels {
        /// The cause, and what to do.
        why: String,
    },
    /// A trace recorded elsewhere lacks the activities of the accelerator that ran operators.
    #[error("the trace has no GPU activities: {why}")]
    NoActivities {
        /// The cause, as a clause.
        why: String,
    },
}

/// Computes the cost of one iteration of a recording, by line, module and kernel.
///
/// # Errors
/// If a run of the agent recorded no iteration, or a GPU ran operators and its activities are
/// missing. Any other trace that was recorded elsewhere has a profile, with as much information as
/// the trace contains.
pub fn attribute(recording: &Recording) -> Result<Profile, AttributionError> {
    Ok(attribute_with(recording, None, &[])?.profile)
}

/// Like [`attribute`], but also returns the graph of the iteration, which is faster than a separate
/// [`step_graph()`]. For `eager`, see [`attribute_compiled`].
///
/// # Errors
/// Those of [`attribute`], for either recording.
pub fn attribute_with_graph(
    recording: &Recording,
    eager: Option<&Recording>,
) -> Result<(Profile, Result<Recorded, NoGraph>), AttributionError> {
    let shares = eager.map(|eager| eager_shares(recording, eager)).transpose()?;
    let Attributed { profile, graph, .. } = attribute_with(recording, shares.as_ref(), &[])?;
    Ok((profile, graph))
}

/// Computes the cost of one iteration of a program compiled with `torch.compile`. `eager` is a
/// recording of the same program without compilation, whose shares divide the time of compiled
/// functions among their lines. Those lines are marked as estimated; everything else is measured by
/// `compiled`.
///
/// # Errors
/// Those of [`attribute`], for either recording.
pub fn attribute_compiled(
    compiled: &Recording,
    eager: &Recording,
) -> Result<Profile, AttributionError> {
    Ok(attribute_with_graph(compiled, Some(eager))?.0)
}

/// Computes how the time of compiled functions divides among their lines.
fn eager_shares(compiled: &Recording, eager: &Recording) -> Result<EagerShares, AttributionError> {
    let regions: Vec<(String, Region)> = compiled
        .manifest
        .iter()
        .flat_map(|manifest| manifest.compiled.iter().map(move |region| (manifest, region)))
        .filter_map(|(manifest, region)| {
            Some((manifest.files.get(region.file as usize)?.path.clone(), region.clone()))
        })
        .collect();
    Ok(attribute_with(eager, None, &regions)?.shares)
}

/// Returns the reason why a recording of a GPU that ran operators has no kernels; `None` for every
/// other recording.
fn missing_kernels(trace: &Trace, manifest: &Manifest) -> Option<String> {
    let on_gpu = matches!(manifest.device.kind.as_deref(), Some("cuda" | "rocm"));
    if !on_gpu || !trace.activities.is_empty() {
        return None;
    }
    // PyTorch's device type for CUDA and ROCm.
    let allocated_memory = trace.memory.iter().any(|event| event.device_type == Some(1));
    let unknown = || allocated_memory.then(|| "Another profiler may be using CUPTI.".to_owned());
    manifest.kernels_missing.clone().or_else(unknown)
}

/// The results for a recording.
struct Attributed {
    profile: Profile,
    /// Shares of lines, for an eager recording.
    shares: EagerShares,
    graph: Result<Recorded, NoGraph>,
}

/// Computes the profile and the graph of a recording. If `regions` is not empty, the recording is
/// an eager one: computes the shares of lines below calls of the regions, and no graph.
fn attribute_with(
    recording: &Recording,
    eager: Option<&EagerShares>,
    regions: &[(String, Region)],
) -> Result<Attributed, AttributionError> {
    let trace = &recording.trace;
    let steps = Steps::new(recording);
    if recording.manifest.is_some() && steps.windows.is_empty() {
        return Err(AttributionError::NoIteration);
    }
    if let Some(why) = recording.manifest.as_ref().and_then(|it| missing_kernels(trace, it)) {
        return Err(AttributionError::NoKernels { why });
    }
    if recording.manifest.is_none()
        && let Some(why) = trace.missing_activities()
    {
        return Err(AttributionError::NoActivities { why });
    }
    let manifest = recording.manifest.as_ref();
    let empty_log = LineLog::default();
    let log = recording.lines.as_ref().unwrap_or(&empty_log);
    let join = Join::new(trace, log, &steps.windows);
    let mut contexts = Contexts::new(&join, manifest, recording.lines.is_none());

    let pieces = timeline::pieces(&join, &mut contexts);
    let launches = Launches::new(&join, &mut contexts, manifest);
    let mut replay = memory::replay(trace, manifest, steps.measured);
    let classifier = Classifier::new(&join, &mut contexts, manifest, &replay);
    let shown_contexts =
        operators::contexts_of_shown_operators(&join, &mut contexts, &launches.replays);

    let communication = Communication::new(&join, &pieces, &launches);
    let waits = communication.host_waits();
    let are_whole_periods = steps.are_whole_periods();
    let costs = Costs::new(&join, &contexts, &pieces, &launches, &waits, are_whole_periods);
    let scale = steps.scale(recording, &costs, &contexts);
    let device = device::facts(manifest, trace, recording.ceilings.as_ref());
    let sums = Sums { costs, scale, launches, device };

    let mut sources = manifest.map(sources_of).unwrap_or_default();
    if let Some(eager) = eager {
        eager.add_files(&mut sources);
    }
    let mut lines = Lines::new(&sources, &log.stacks);
    let mut modules = Modules::new(manifest);
    let without_line = lines.add_times(&join, &contexts, &sums);
    lines.add_calls(&join);
    modules.add_times(&join, &contexts, &sums);
    modules.add_calls(&join);
    if let Some(manifest) = manifest {
        optimizer::add_times(&join, &contexts, &shown_contexts, &sums, manifest, &mut modules);
    }
    let mut shares = EagerShares::default();
    if let Some(manifest) = manifest.filter(|_| !regions.is_empty()) {
        shares = EagerShares::new(&join, &contexts, &sums, manifest, &sources, regions);
    }
    if let Some(eager) = eager {
        eager.resolve(&sources, &modules).split(
            &join,
            &contexts,
            &shown_contexts,
            &sums,
            &mut lines,
            &mut modules,
        );
    }
    if let Some(manifest) = manifest {
        expressions::add_expressions(&join, &contexts, &sums, manifest, &mut lines);
        callers::add_callers(&join, &contexts, &sums, manifest, &mut lines);
    }
    let at_peak = classifier.add_to(&mut lines, &mut modules);
    let tensors = classifier.tensors(&lines, &modules);
    operators::add_operators(&join, &contexts, &shown_contexts, &sums, &mut lines);

    let mut slow = steps.slow.clone();
    if let Some(slow) = slow.as_mut() {
        slow.lines = match slow.period {
            Some(period) if slow.are_whole_periods => {
                let line = slow_iterations::line(period, &join, &contexts, &sums, &mut lines);
                line.into_iter().collect()
            }
            // What is slow was timed only.
            _ => manifest.map_or_else(Vec::new, |manifest| {
                slow_iterations::lines_of_stacks(&manifest.iterations.slow_stacks)
            }),
        };
    }

    let time = coverage::time(&join, &contexts, &shown_contexts, &sums, &lines);
    let coverage = Coverage { time, memory: at_peak.activations_with_line() };
    replay.cost.at_peak = at_peak.by_kind;
    replay.cost.by_age = at_peak.made;
    replay.cost.tensors = tensors;
    replay.cost.peak_phase = steps.measured.and_then(|(start_ns, _)| {
        let peak_ns = start_ns.saturating_add_unsigned(replay.cost.peak_at_ns);
        let piece = timeline::at(&pieces, peak_ns)?;
        Some(contexts.get(piece.context)?.phase)
    });
    let exchange =
        exchange::exchange(&communication, &join, &contexts, &sums.scale, &steps, manifest);
    let mut profile = Profile {
        exchange: exchange.map(Arc::new),
        graph_entries: graph_entries::graph_entries(&join, &pieces, &sums.scale),
        ranks: None,
        iteration: IterationCost {
            phases: phases(&contexts, &sums),
            phase_samples: phase_samples(&contexts, &sums),
            slow,
            ..iteration(&steps, manifest)
        },
        memory: replay.cost,
        coverage,
        lines: lines.finish(),
        files: sources.files,
        modules: modules.costs,
        kernels: kernels::all(&join, &sums),
        gpu: device::activity(trace, &sums.launches),
        untracked: untracked(without_line, &sums),
        notes: notes::of(recording, eager.is_some(), &sums.launches.replays),
        torch_version: manifest.map(|manifest| manifest.torch.clone()).unwrap_or_default(),
        device: sums.device.clone(),
        estimate: None,
        since: None,
        metrics: None,
        bottleneck: None,
        side_effects: None,
    };
    let recorded_lines = sums.by_context(&contexts).filter_map(|(id, context, cost, factor)| {
        let is_known = sums.scale.is_known_together.get(id.0 as usize).copied().unwrap_or(false);
        // Something else than events took longer, such as compiled code.
        let is_slow = cost.typical_ns > cost.line_events * MAX_NS_OF_FAST_LINE;
        if is_known || is_slow {
            return None;
        }
        let frame = log.stacks.top(context.line)?;
        let file = FileId(manifest?.codes.get(frame.code as usize)?.file);
        Some(RecordedLine {
            place: (file, frame.line),
            recorded_ns: cost.typical_ns * sums.scale.per_iteration,
            own_ns: cost.time_ns * factor,
        })
    });
    let note = notes::of_fast_lines(recorded_lines, &profile);
    profile.notes.extend(note);
    if let Some(library) = manifest.and_then(|manifest| manifest.library.as_deref()) {
        let note = notes::of_library(library, &profile);
        profile.notes.extend(note);
    }
    let mut graph = Err(NoGraph::NoIteration);
    if regions.is_empty() {
        let joined = AttributionResults {
            recording,
            steps: &steps,
            join: &join,
            pieces: &pieces,
            launches: &sums.launches,
            waits: &waits,
        };
        graph = joined.graph(&mut contexts, &profile);
    }
    // An iteration that cannot be replayed, or may lack kernels, is shown without utilization and
    // bottleneck.
    if let Ok(recorded) = &graph
        && trace.truncated_at.is_none()
    {
        explain(&mut profile, recorded, recorded_busy_share(recording, &steps));
    }
    Ok(Attributed { profile, shares, graph })
}

/// Returns the share of the iteration, 0 to 1, in which the trace has GPU activity. `None` for our
/// own recordings, whose profiled iterations take longer than others, and without a GPU.
fn recorded_busy_share(recording: &Recording, steps: &Steps) -> Option<f64> {
    let activities = &recording.trace.activities;
    let window = steps.median_window().filter(|_| recording.manifest.is_none())?;
    let within = activities
        .iter()
        .flat_map(|activity| intervals::clipped((activity.start_ns, activity.end_ns()), &[window]));
    let busy_ns = intervals::union_ns(within.collect()) as f64;
    (!activities.is_empty()).then(|| (busy_ns / window.0.abs_diff(window.1).max(1) as f64).min(1.0))
}

/// Adds the results of the iteration's graph: device utilization and the bottleneck. `busy_share`
/// is the GPU's busy share if it was recorded. In the graph, an iteration has the work that it
/// launched, which may run later, and more than that of other iterations.
fn explain(profile: &mut Profile, recorded: &Recorded, busy_share: Option<f64>) {
    let UtilizationMetrics { mut metrics, lines, modules } = measure(recorded, profile);
    for ((file, line), found) in lines {
        let of_file = profile.lines.get_mut(file.0 as usize);
        let at = of_file.and_then(|costs| {
            let at = costs.binary_search_by_key(&line, |cost| cost.line).ok()?;
            costs.get_mut(at)
        });
        if let Some(cost) = at {
            cost.utilization = Some(found);
        }
    }
    for (module, found) in profile.modules.iter_mut().zip(modules) {
        module.utilization = Some(found);
    }
    let mut found = bottleneck(recorded, profile.device.attainable_roof().as_ref());
    if let Some(share) = busy_share.filter(|_| metrics.on_gpu) {
        metrics.whole.busy_ns = share * metrics.iteration_ns;
        if let Some(busy) = found.as_mut().and_then(|found| found.gpu_busy.as_mut()) {
            *busy = share;
        }
    }
    profile.bottleneck = found.map(Arc::new);
    profile.metrics = Some(Arc::new(metrics));
}

/// The maximum recorded time per line event, in nanoseconds, of a line that takes less time than
/// recording it.
const MAX_NS_OF_FAST_LINE: f64 = 5_000.0;

/// The totals of the iterations, before they are attributed to lines.
struct Sums {
    costs: Costs,
    scale: Scale,
    launches: Launches,
    device: Device,
}

fn iteration(steps: &Steps, manifest: Option<&Manifest>) -> IterationCost {
    let training_loop = manifest.and_then(|manifest| manifest.training_loop);
    let batch = manifest.and_then(|manifest| manifest.batch.as_ref());
    IterationCost {
        time_ns: steps.iteration_ns(),
        timed_ns: steps.timed_ns.clone(),
        batch_size: batch.and_then(|batch| batch.size),
        batch_guessed_from: batch.and_then(batch_source),
        counts_tokens: batch
            .and_then(|batch| batch.unit.as_deref())
            .is_some_and(|unit| unit == "token"),
        is_first: manifest.is_some_and(|manifest| manifest.iterations.seen == Some(1)),
        loop_line: training_loop.map(|place| (FileId(place.file), place.line)),
        found_by: manifest
            .and_then(|manifest| manifest.iterations.found_by.clone())
            .unwrap_or_default(),
        waited_share: manifest.map_or(0.0, |manifest| manifest.iterations.waited_share()),
        ..IterationCost::default()
    }
}

fn batch_source(batch: &Batch) -> Option<BatchSource> {
    let is_guessed = batch.certain == Some(false) && batch.size.is_some();
    is_guessed.then_some(match batch.from.as_deref() {
        Some("loader") => BatchSource::Loader,
        Some("loaders") => BatchSource::Loaders,
        _ => BatchSource::Input,
    })
}

fn phases(contexts: &Contexts<'_>, sums: &Sums) -> PhaseTimes {
    let mut phases = PhaseTimes::default();
    for (_, context, cost, factor) in sums.by_context(contexts) {
        *phases.get_mut(context.phase) += cost.time_ns * factor;
    }
    phases.other += (sums.costs.leaked_ns + sums.costs.unexplained_ns) * sums.scale.rest;
    phases
}

/// Computes the time of phases by profiled iteration.
fn phase_samples(contexts: &Contexts<'_>, sums: &Sums) -> Vec<PhaseTimes> {
    let mut phases = vec![PhaseTimes::default(); sums.samples().len()];
    for (id, context, ..) in sums.by_context(contexts) {
        for (sum, time_ns) in phases.iter_mut().zip(sums.samples_of(id)) {
            *sum.get_mut(context.phase) += time_ns;
        }
    }
    phases
}

impl Sums {
    /// Returns empty samples, as many as are stored per line.
    fn samples(&self) -> Vec<Sample> {
        vec![Sample::default(); self.costs.by_iteration.iterations().min(MAX_SAMPLES)]
    }

    /// Returns the time of a context by profiled iteration, scaled so that the typical iteration
    /// has the displayed cost.
    fn samples_of(&self, id: ContextId) -> impl Iterator<Item = f64> + '_ {
        let index = id.0 as usize;
        let cost = self.costs.contexts.get(index).copied().unwrap_or_default();
        let factor = self.scale.contexts.get(index).copied().unwrap_or(0.0);
        let times = self.costs.by_iteration.of(index);
        let typical_ns = cost.typical_ns / times.len() as f64;
        let per_ns = if typical_ns > 0.0 { cost.time_ns * factor / typical_ns } else { 0.0 };
        times.iter().take(MAX_SAMPLES).map(move |time_ns| time_ns * per_ns)
    }

    /// Returns the nanoseconds per iteration of a shown operator, on the host and the GPU.
    fn shown_operator_ns(&self, operator: usize, context: ContextId) -> f64 {
        let factor = self.scale.contexts.get(context.0 as usize).copied().unwrap_or(0.0);
        let of = |times: &[f64]| times.get(operator).copied().unwrap_or(0.0);
        (of(&self.costs.operators) + of(&self.costs.device_of_operators)) * factor
    }

    /// Iterates over the contexts with their costs over the profiled iterations, and the factor to
    /// one iteration without the profiler.
    fn by_context<'a>(
        &'a self,
        contexts: &'a Contexts<'_>,
    ) -> impl Iterator<Item = (ContextId, &'a Context, &'a Cost, f64)> {
        contexts
            .iter()
            .zip(&self.costs.contexts)
            .zip(&self.scale.contexts)
            .map(|(((id, context), cost), factor)| (id, context, cost, *factor))
    }
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

fn untracked(without_line: PhaseTimes, sums: &Sums) -> Vec<Untracked> {
    let by_phase = Phase::ALL.map(|phase| {
        let name = match phase {
            Phase::Other => "outside the project's code".to_owned(),
            phase => format!("outside the project's code ({})", phase.name()),
        };
        (name, phase, without_line.get(phase))
    });
    by_phase
        .into_iter()
        .chain([
            (
                "kernels launched before the recording".to_owned(),
                Phase::Other,
                sums.costs.leaked_ns * sums.scale.rest,
            ),
            (
                "no thread was recorded".to_owned(),
                Phase::Other,
                sums.costs.unexplained_ns * sums.scale.rest,
            ),
        ])
        .filter(|(_, _, time_ns)| *time_ns > 0.0)
        .map(|(name, phase, time_ns)| Untracked { name, phase, time_ns })
        .collect()
}
