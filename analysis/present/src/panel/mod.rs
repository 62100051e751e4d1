//! The document of the panel, described in `docs/panel.md`.
//!
//! Everything here is a plain value: the server supplies what only it knows (whether an editor is
//! connected, what is running, the history), and this module adds the rest. Every number is finite,
//! every list has a maximum length, and names are safe to display.

mod batch_size;
mod bottleneck;
mod breakdown;
mod changes;
mod code;
mod devices;
mod findings;
mod headline;
mod memory;
mod parts;
mod ranks;
mod roofline;
#[cfg(test)]
mod tests;
mod tree;
mod what_ifs;

use serde::{Deserialize, Serialize};

use ridgeline_base::printable::{clean, name, shorten};
use ridgeline_compare::run::{Run, text_hash};
use ridgeline_predict::device_comparison::Comparison;
use ridgeline_predict::gpu_batches::GpuBatches;
use ridgeline_profile::{FileId, Profile};

pub use batch_size::{BatchSizes, Site};
pub use changes::{Better, Change, Verdict};
pub use devices::Devices;
pub use findings::{Findings, PanelFinding};
pub use headline::Number;
pub use memory::{Holder, Memory};
pub use tree::{Breakdown, Node};
pub use what_ifs::WhatIfs;

/// The version of the document and of the timeline.
pub const SCHEMA: u32 = 1;

/// The maximum number of runs in the document. The server may keep a longer history.
const MAX_RUNS: usize = 500;
/// The maximum number of kernels in the document.
const MAX_KERNELS: usize = 100;

/// The input of the document.
#[derive(Clone, Debug, Default)]
pub struct PanelInput<'a> {
    /// Increases with each measurement.
    pub generation: u64,
    /// The name of the project folder.
    pub project: &'a str,
    /// Whether a connected editor can go to a line.
    pub can_jump: bool,
    /// Whether it can highlight a line.
    pub can_highlight: bool,
    /// The current activity: `state`, `message` and `run` as in `ridgeline/status`.
    pub status: serde_json::Value,
    /// The latest measurement.
    pub profile: Option<&'a Profile>,
    /// The time of the measurement, in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// The texts of its files, by the same index, if available: lines then show their code. A line
    /// whose text is not what ran shows none.
    pub texts: &'a [Option<&'a str>],
    /// The previous runs, newest first, starting with the run of `profile`.
    pub history: &'a [RunRecord],
    /// The stored costs of the previous run.
    pub last: Option<&'a Run>,
    /// The stored costs of the run that `profile.since` identifies as the text at HEAD.
    pub head: Option<&'a Run>,
    /// The comparison of the profile with other devices, with the user's prices.
    pub device_comparison: Option<&'a Comparison>,
    /// The batch sizes that those devices need.
    pub gpu_batches: Option<&'a GpuBatches>,
    /// The batch-size sweep.
    pub batch_sizes: Option<&'a BatchSizes>,
    /// The predictions of optimizations.
    pub what_ifs: Option<&'a WhatIfs>,
    pub findings: Option<&'a Findings>,
}

/// One run in the project's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The time of the run, in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// Iteration time in nanoseconds.
    pub time_ns: f64,
    /// Samples per second, if the batch size is known.
    pub samples_per_second: Option<f64>,
    /// Peak memory in bytes.
    pub peak_bytes: u64,
    /// Samples in a batch.
    pub batch_size: Option<u64>,
    /// The number of ranks. `None` in old records.
    #[serde(default)]
    pub world_size: Option<u32>,
    /// The device's product name.
    pub device: String,
    /// Git's HEAD at the time of the run.
    pub commit: Option<String>,
    /// Whether the source that ran was unmodified from that commit.
    pub clean: bool,
    /// The hash of the texts that ran, if known.
    pub text: Option<String>,
    /// The generation of the measurement, if it is still available.
    pub generation: Option<u64>,
}

impl RunRecord {
    /// Returns the record of a measurement. The fields that only the caller knows keep their
    /// defaults.
    pub fn of(profile: &Profile, when_unix_ms: u64) -> RunRecord {
        RunRecord {
            when_unix_ms,
            time_ns: finite(profile.iteration.time_ns),
            samples_per_second: profile.iteration.samples_per_second().filter(|r| r.is_finite()),
            peak_bytes: profile.memory.peak_bytes,
            batch_size: profile.iteration.batch_size,
            world_size: Some(profile.ranks.as_deref().map_or(1, |ranks| ranks.world_size)),
            device: name(&profile.device.display_name()),
            text: text_hash(&profile.files),
            ..RunRecord::default()
        }
    }

    /// Returns a copy that is safe to display, whatever the source of the record.
    fn sanitized(&self) -> RunRecord {
        RunRecord {
            time_ns: finite(self.time_ns),
            samples_per_second: self.samples_per_second.filter(|rate| rate.is_finite()),
            device: name(&self.device),
            commit: self.commit.as_deref().map(name),
            text: self.text.as_deref().map(name),
            ..self.clone()
        }
    }
}

/// The document of the panel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PanelDocument {
    schema: u32,
    generation: u64,
    project: String,
    can_jump: bool,
    can_highlight: bool,
    status: serde_json::Value,
    recording: Option<Measurement>,
    history: Vec<RunRecord>,
    predictions: Option<Predictions>,
    what_ifs: Option<what_ifs::WhatIfsEntry>,
    findings: Option<findings::FindingsEntry>,
}

/// Predictions for other batch sizes and devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Predictions {
    batch_size: Option<batch_size::BatchSizeEntry>,
    devices: Option<Devices>,
}

impl Predictions {
    /// Returns `None` if there are no predictions.
    fn of(input: &PanelInput<'_>) -> Option<Predictions> {
        let sizes = input.batch_sizes;
        let batch_size = sizes.map(|sizes| batch_size::BatchSizeEntry::of(sizes, input.profile));
        let devices = input.device_comparison;
        let devices = devices.map(|comparison| Devices::of(comparison, input.gpu_batches));
        let is_known = batch_size.is_some() || devices.is_some();
        is_known.then_some(Predictions { batch_size, devices })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Measurement {
    when_unix_ms: u64,
    device: DeviceFacts,
    torch: Option<String>,
    batch_size: Option<u64>,
    timed_iterations: usize,
    duration_ns: u64,
    headline: Vec<Number>,
    changes_against: ChangesAgainst,
    ranks: Option<ranks::RanksEntry>,
    bottleneck: Option<bottleneck::BottleneckEntry>,
    utilization: Vec<bottleneck::PartEntry>,
    breakdowns: Vec<Breakdown>,
    memory: Option<Memory>,
    kernels: Vec<Kernel>,
    roofline: roofline::RooflineEntry,
    untracked: Vec<Untracked>,
    files: Vec<File>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct DeviceFacts {
    name: String,
    kind: String,
    simulated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChangesAgainst {
    last: Option<String>,
    head: Option<String>,
    head_unix_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Kernel {
    name: String,
    calls: f64,
    time_ns: u64,
    occupancy: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Untracked {
    name: String,
    time_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct File {
    path: String,
}

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Index into the document's files, which are those of the profile.
    pub file: u32,
    /// Counted from 1.
    pub line: u32,
}

impl Place {
    /// Returns `None` if the profile has no such file.
    fn of(profile: &Profile, file: FileId, line: u32) -> Option<Place> {
        let is_known = (file.0 as usize) < profile.files.len() && line > 0;
        is_known.then_some(Place { file: file.0, line })
    }
}

/// Builds the document.
pub fn document(input: &PanelInput<'_>) -> PanelDocument {
    PanelDocument {
        schema: SCHEMA,
        generation: input.generation,
        project: name(input.project),
        can_jump: input.can_jump,
        can_highlight: input.can_highlight,
        status: input.status.clone(),
        recording: input.profile.map(|profile| measurement(profile, input)),
        history: input.history.iter().take(MAX_RUNS).map(RunRecord::sanitized).collect(),
        predictions: Predictions::of(input),
        what_ifs: input
            .profile
            .zip(input.what_ifs)
            .map(|(profile, what_ifs)| what_ifs::WhatIfsEntry::of(what_ifs, profile)),
        findings: input
            .profile
            .zip(input.findings)
            .map(|(profile, found)| findings::FindingsEntry::of(found, profile)),
    }
}

fn measurement(profile: &Profile, input: &PanelInput<'_>) -> Measurement {
    let baselines = changes::Baselines::of(input, profile);
    let (last, head) = (baselines.last.as_ref(), baselines.head.as_ref());
    Measurement {
        when_unix_ms: input.when_unix_ms,
        device: DeviceFacts {
            name: name(&profile.device.display_name()),
            kind: name(&profile.device.kind),
            simulated: profile.device.is_simulated,
        },
        torch: Some(name(&profile.torch_version)).filter(|version| !version.is_empty()),
        batch_size: profile.iteration.batch_size,
        timed_iterations: profile.iteration.timed_ns.len(),
        duration_ns: whole(profile.iteration.time_ns),
        headline: headline::numbers(profile, &baselines),
        changes_against: ChangesAgainst {
            last: last.map(|last| baselines.describe(last.record)),
            head: head.map(|head| baselines.describe_head(head.record)),
            head_unix_ms: head.map(|head| head.record.when_unix_ms),
        },
        ranks: ranks::ranks_entry(profile),
        bottleneck: bottleneck::bottleneck_entry(profile),
        utilization: bottleneck::parts(profile),
        breakdowns: breakdown::all(profile, input.texts),
        memory: memory::memory(profile),
        kernels: profile.kernels.iter().take(MAX_KERNELS).map(kernel).collect(),
        roofline: roofline::roofline_entry(profile),
        untracked: profile
            .untracked
            .iter()
            .map(|part| Untracked { name: name(&part.name), time_ns: whole(part.time_ns) })
            .collect(),
        files: profile.files.iter().map(|file| File { path: name(&file.path) }).collect(),
        notes: profile.notes.iter().map(|note| shorten(&clean(note), 1000)).collect(),
    }
}

fn kernel(kernel: &ridgeline_profile::KernelCost) -> Kernel {
    Kernel {
        name: name(&kernel.name),
        calls: finite(kernel.calls),
        time_ns: whole(kernel.time_ns),
        occupancy: kernel.occupancy.filter(|share| share.is_finite()),
    }
}

/// Explains the peak memory, in sentences. `None` if no memory was recorded.
pub(super) fn memory_explanation(profile: &Profile) -> Option<String> {
    memory::memory(profile).map(|memory| memory.explanation)
}

/// Rounds nanoseconds to a whole number: measurements are not finer, and whole numbers add up
/// exactly.
fn whole(time_ns: f64) -> u64 {
    // The cast saturates, and NaN becomes 0.
    time_ns.round() as u64
}

/// Replaces values that are not finite by 0, because JSON cannot represent them.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}
