//! The JSON document of a profile, written by `--json`. `docs/schema/profile.schema.json` describes
//! it, and a test checks the one against the other.
//!
//! Within a schema version, keys may be added, but never removed or changed in meaning. Unknown
//! values are `null`. Times are milliseconds with six decimals, that is, whole nanoseconds.

mod lines;

use serde::Serialize;

use self::lines::{Line, lines_of_file};
use super::bottleneck::{self, BottleneckEntry};
use super::explained::{UtilizationEntry, utilization_entry};
use super::findings::Entry;
use super::ranks::{self, RanksEntry};
use ridgeline_compare::run::Run;
use ridgeline_diagnose::finding::Finding;
use ridgeline_profile::side_effects::{Change, SideEffects};
use ridgeline_profile::slow_iterations::SlowIterations;
use ridgeline_profile::utilization::Utilization;
use ridgeline_profile::{
    BatchSource, FileId, GpuActivity, MemoryByAge, MemoryByKind, ModuleCost, Phase, Profile,
};
use ridgeline_python::{SourceIndex, fingerprint};

/// The version of the document.
pub const SCHEMA: u32 = 1;

/// The document of a profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    schema: u32,
    device: DeviceFacts,
    iteration: Iteration,
    memory: Memory,
    coverage: Shares,
    lines: Vec<Line>,
    modules: Vec<Module>,
    untracked: Vec<Untracked>,
    torch: Option<String>,
    findings: Option<Vec<Entry>>,
    notes: Vec<String>,
    run: Run,
    bottleneck: Option<BottleneckEntry>,
    utilization: Option<Parts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<Gpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<RanksEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernels: Option<Vec<KernelTotal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    side_effects: Option<SideEffectsEntry>,
}

/// The writes of a run that were redirected. Those outside the project are only counted, because
/// their paths reveal something about the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct SideEffectsEntry {
    mode: String,
    held_by: String,
    count: u64,
    bytes: u64,
    outside: usize,
    changes: Vec<Change>,
}

fn side_effects_entry(effects: &SideEffects) -> SideEffectsEntry {
    let (outside, inside): (Vec<_>, Vec<_>) =
        effects.changes.iter().cloned().partition(|change| change.outside);
    SideEffectsEntry {
        mode: effects.mode.clone(),
        held_by: effects.held_by.clone(),
        count: effects.count,
        bytes: effects.bytes,
        outside: outside.len(),
        changes: inside,
    }
}

/// The utilization of the iteration and its phases.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Parts {
    iteration: UtilizationEntry,
    data: UtilizationEntry,
    forward: UtilizationEntry,
    backward: UtilizationEntry,
    optimizer: UtilizationEntry,
    other: UtilizationEntry,
}

impl Parts {
    fn of(profile: &Profile) -> Option<Parts> {
        let metrics = profile.metrics.as_ref()?;
        let [data, forward, backward, optimizer, other] = &metrics.phases;
        let times = &profile.iteration.phases;
        let entry =
            |part: &Utilization, phase: Phase| utilization_entry(part, times.get(phase), profile);
        Some(Parts {
            iteration: utilization_entry(&metrics.whole, times.total(), profile),
            data: entry(data, Phase::Data),
            forward: entry(forward, Phase::Forward),
            backward: entry(backward, Phase::Backward),
            optimizer: entry(optimizer, Phase::Optimizer),
            other: entry(other, Phase::Other),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct DeviceFacts {
    name: String,
    kind: String,
    capability: Option<(u32, u32)>,
    multiprocessors: Option<u32>,
    simulated: bool,
    rates_from: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Iteration {
    time_ms: f64,
    forward_ms: f64,
    backward_ms: f64,
    optimizer_ms: f64,
    data_ms: f64,
    other_ms: f64,
    samples_per_s: Option<f64>,
    /// Replaces `samples_per_s` for programs that generate text.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_s: Option<f64>,
    batch_size: Option<u64>,
    timed_ms: Vec<f64>,
    slow: Option<SlowEntry>,
    batch_size_guessed_from: Option<&'static str>,
    found_by: Option<String>,
    r#loop: Option<Location>,
}

/// Slow iterations.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct SlowEntry {
    period: Option<u32>,
    count: u32,
    of: u32,
    typical_ms: f64,
    slow_ms: f64,
    mean_ms: f64,
    lines: Vec<Location>,
    are_in_lines: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Location {
    file: String,
    line: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Memory {
    peak_bytes: Option<u64>,
    capacity_bytes: Option<u64>,
    at_peak: Kinds,
    made: BytesByAge,
    peak_at_ms: f64,
}

/// Bytes alive at the peak, by the time of their allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct BytesByAge {
    before: u64,
    data: u64,
    forward: u64,
    backward: u64,
    optimizer: u64,
    other: u64,
}

/// Bytes by kind of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Kinds {
    weights: u64,
    gradients: u64,
    optimizer_state: u64,
    activations: u64,
    batch: u64,
    temporaries: u64,
    other: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Shares {
    time: f64,
    memory: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Module {
    path: String,
    r#type: String,
    file: Option<String>,
    line: Option<u32>,
    total_ms: f64,
    forward_ms: f64,
    backward_ms: f64,
    optimizer_ms: f64,
    calls: f64,
    parameters: u64,
    memory: Kinds,
    utilization: Option<UtilizationEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Untracked {
    name: String,
    time_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Gpu {
    span_ns: u64,
    busy_ns: u64,
    idle_ns: u64,
    kernel_ns: u64,
    leaked_ns: u64,
}

/// All launches of one kernel in a trace, in exact nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelTotal {
    /// The name in the profiler.
    pub name: String,
    /// Launches.
    pub calls: u64,
    /// Total time in nanoseconds.
    pub total_ns: u64,
}

/// Returns the document of a profile. `texts` are the sources that ran, by file, if known. They
/// give the last line of each statement, and lines of one statement become one entry.
pub fn document(profile: &Profile, texts: &[Option<&str>]) -> Document {
    let mut lines = Vec::new();
    for (index, (file, costs)) in profile.files.iter().zip(&profile.lines).enumerate() {
        let text =
            texts.get(index).copied().flatten().filter(|text| {
                file.fingerprint.is_empty() || fingerprint(text) == file.fingerprint
            });
        let source = text.map(SourceIndex::new);
        lines.extend(lines_of_file(profile, &file.path, costs, source.as_ref()));
    }
    let iteration = &profile.iteration;
    let rate = iteration.samples_per_second().map(|rate| rounded(rate, 1e3));
    Document {
        schema: SCHEMA,
        device: DeviceFacts {
            name: profile.device.name.clone(),
            kind: profile.device.kind.clone(),
            capability: profile.device.capability,
            multiprocessors: profile.device.multiprocessors,
            simulated: profile.device.is_simulated,
            rates_from: profile.device.rates_from(),
        },
        iteration: Iteration {
            time_ms: milliseconds(iteration.time_ns),
            forward_ms: milliseconds(iteration.phases.forward),
            backward_ms: milliseconds(iteration.phases.backward),
            optimizer_ms: milliseconds(iteration.phases.optimizer),
            data_ms: milliseconds(iteration.phases.data),
            other_ms: milliseconds(iteration.phases.other),
            samples_per_s: rate.filter(|_| !iteration.counts_tokens),
            tokens_per_s: rate.filter(|_| iteration.counts_tokens),
            batch_size: iteration.batch_size,
            timed_ms: iteration.timed_ns.iter().map(|&time_ns| milliseconds(time_ns)).collect(),
            slow: iteration.slow.as_ref().map(|slow| slow_entry(slow, profile)),
            batch_size_guessed_from: iteration.batch_guessed_from.map(BatchSource::name),
            found_by: Some(iteration.found_by.clone()).filter(|how| !how.is_empty()),
            r#loop: iteration.loop_line.and_then(|at| location(at, profile)),
        },
        memory: Memory {
            peak_bytes: Some(profile.memory.peak_bytes).filter(|&bytes| bytes > 0),
            capacity_bytes: profile.memory.capacity_bytes,
            at_peak: kinds(&profile.memory.at_peak),
            made: bytes_by_age(&profile.memory.by_age),
            peak_at_ms: milliseconds(profile.memory.peak_at_ns as f64),
        },
        coverage: Shares {
            time: rounded(profile.coverage.time, 1e6),
            memory: rounded(profile.coverage.memory, 1e6),
        },
        lines,
        modules: profile.modules.iter().map(|module| module_entry(profile, module)).collect(),
        untracked: profile
            .untracked
            .iter()
            .map(|part| Untracked { name: part.name.clone(), time_ms: milliseconds(part.time_ns) })
            .collect(),
        torch: Some(profile.torch_version.clone()).filter(|version| !version.is_empty()),
        findings: None,
        notes: profile.notes.clone(),
        run: Run::of(profile),
        bottleneck: profile.bottleneck.as_ref().map(|found| bottleneck::entry(found, profile)),
        utilization: Parts::of(profile),
        gpu: profile.gpu.map(|gpu| gpu_entry(&gpu)),
        ranks: profile.ranks.as_deref().map(ranks::entry),
        kernels: None,
        side_effects: profile.side_effects.as_deref().map(side_effects_entry),
    }
}

/// Returns the document of a trace recorded elsewhere, with all its kernels, most expensive first,
/// and the GPU activity, which is zero if there was none.
pub fn analysis_document(
    profile: &Profile,
    texts: &[Option<&str>],
    kernels: Vec<KernelTotal>,
) -> Document {
    let mut document = document(profile, texts);
    document.gpu = Some(gpu_entry(&profile.gpu.unwrap_or_default()));
    document.kernels = Some(kernels);
    document
}

impl Document {
    /// Adds findings, most expensive first, or the reason why there are none: a sentence without a
    /// full stop.
    pub fn with_findings(
        mut self,
        findings: Result<&[Finding], &str>,
        profile: &Profile,
    ) -> Document {
        match findings {
            Ok(findings) => self.findings = Some(Entry::all(findings, profile)),
            Err(why) => self.notes.push(format!("Findings are not available: {why}")),
        }
        self
    }
}

fn module_entry(profile: &Profile, module: &ModuleCost) -> Module {
    let place = module.definition.first();
    let file = place.and_then(|(file, _)| Some(profile.files.get(file.0 as usize)?.path.clone()));
    Module {
        path: module.path.clone(),
        r#type: module.type_name.clone(),
        line: place.map(|(_, line)| *line).filter(|_| file.is_some()),
        file,
        total_ms: milliseconds(module.total_time.total()),
        forward_ms: milliseconds(module.total_time.forward),
        backward_ms: milliseconds(module.total_time.backward),
        optimizer_ms: milliseconds(module.total_time.optimizer),
        calls: rounded(module.calls, 1e3),
        parameters: module.parameters,
        memory: kinds(&module.memory),
        utilization: module
            .utilization
            .map(|part| utilization_entry(&part, module.passes_ns(), profile)),
    }
}

fn gpu_entry(gpu: &GpuActivity) -> Gpu {
    Gpu {
        span_ns: gpu.span_ns,
        busy_ns: gpu.busy_ns,
        idle_ns: gpu.idle_ns,
        kernel_ns: gpu.kernel_ns,
        leaked_ns: gpu.leaked_ns,
    }
}

fn kinds(memory: &MemoryByKind) -> Kinds {
    Kinds {
        weights: memory.weights,
        gradients: memory.gradients,
        optimizer_state: memory.optimizer_state,
        activations: memory.activations,
        batch: memory.batch,
        temporaries: memory.temporaries,
        other: memory.other,
    }
}

fn bytes_by_age(memory: &MemoryByAge) -> BytesByAge {
    let [data, forward, backward, optimizer, other] = memory.phases;
    BytesByAge { before: memory.before, data, forward, backward, optimizer, other }
}

fn sum(a: Kinds, b: Kinds) -> Kinds {
    Kinds {
        weights: a.weights.saturating_add(b.weights),
        gradients: a.gradients.saturating_add(b.gradients),
        optimizer_state: a.optimizer_state.saturating_add(b.optimizer_state),
        activations: a.activations.saturating_add(b.activations),
        batch: a.batch.saturating_add(b.batch),
        temporaries: a.temporaries.saturating_add(b.temporaries),
        other: a.other.saturating_add(b.other),
    }
}

fn milliseconds(nanoseconds: f64) -> f64 {
    rounded(nanoseconds / 1e6, 1e6)
}

/// Rounds to as many decimals as `per_unit` has zeros. Values that are not finite become 0, because
/// JSON cannot represent them.
fn rounded(value: f64, per_unit: f64) -> f64 {
    if value.is_finite() { (value * per_unit).round() / per_unit } else { 0.0 }
}

fn location((file, line): (FileId, u32), profile: &Profile) -> Option<Location> {
    let file = profile.files.get(file.0 as usize)?.path.clone();
    Some(Location { file, line })
}

fn slow_entry(slow: &SlowIterations, profile: &Profile) -> SlowEntry {
    SlowEntry {
        period: slow.period,
        count: slow.count,
        of: slow.of,
        typical_ms: milliseconds(slow.typical_ns),
        slow_ms: milliseconds(slow.slow_ns),
        mean_ms: milliseconds(slow.mean_ns),
        lines: slow
            .lines
            .iter()
            .filter_map(|one| location((one.file, one.line), profile))
            .collect(),
        are_in_lines: slow.are_whole_periods,
    }
}

#[cfg(test)]
mod tests;
