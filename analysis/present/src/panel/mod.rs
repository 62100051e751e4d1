//! What the panel shows, as the document that `docs/panel.md` describes.
//!
//! Everything here is a plain value: whoever serves the page says what only it knows (is there an
//! editor, what runs, which runs there were), and the document says the rest. Every number in it
//! is finite, every list has a bound, and names are fit to show.

mod batch_size;
mod bottleneck;
mod breakdown;
mod changes;
mod code;
mod devices;
mod findings;
mod headline;
mod memory;
mod ranks;
#[cfg(test)]
mod tests;
mod tree;
mod what_ifs;

use serde::{Deserialize, Serialize};

use ridgeline_base::printable::{clean, name, shorten};
use ridgeline_compare::run::{Run, text_hash};
use ridgeline_predict::device_comparison::Comparison;
use ridgeline_profile::{FileId, Profile};

pub use batch_size::{BatchSizes, Site};
pub use changes::{Better, Change, Verdict};
pub use devices::Devices;
pub use findings::{Findings, Found};
pub use headline::Number;
pub use memory::{Holder, Memory};
pub use tree::{Breakdown, Node};
pub use what_ifs::WhatIfs;

/// The version of the document and of the timeline.
pub const SCHEMA: u32 = 1;

/// How many runs the document tells of; a longer history is for whoever keeps it.
const MOST_RUNS: usize = 500;
/// How many kernels.
const MOST_KERNELS: usize = 100;

/// What the document is made from.
#[derive(Clone, Debug, Default)]
pub struct PanelInput<'a> {
    /// Grows with each measurement.
    pub generation: u64,
    /// The project's name: its folder's.
    pub project: &'a str,
    /// Whether an editor is there that can go to a line.
    pub can_jump: bool,
    /// Whether it can mark one.
    pub can_highlight: bool,
    /// What goes on: `state`, `message` and `run` as in `ridgeline/status`.
    pub status: serde_json::Value,
    /// The newest measurement.
    pub profile: Option<&'a Profile>,
    /// When it was made, in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// The texts of its files, by the same index, where they are at hand: lines then show their
    /// code. A line whose text is not what ran shows none.
    pub texts: &'a [Option<&'a str>],
    /// The runs there were, newest first; the first is the one that `profile` is.
    pub history: &'a [RunRecord],
    /// What is kept of the run before that one.
    pub last: Option<&'a Run>,
    /// What is kept of the run that `profile.since` says has HEAD's text.
    pub head: Option<&'a Run>,
    /// The profile's comparison with other devices, with the prices that a person set.
    pub elsewhere: Option<&'a Comparison>,
    /// What is known of other batch sizes.
    pub batch_sizes: Option<&'a BatchSizes>,
    /// What is known of what-ifs.
    pub what_ifs: Option<&'a WhatIfs>,
    /// What was found to be slow or wasteful.
    pub findings: Option<&'a Findings>,
}

/// One run in the project's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// When it was, in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// Nanoseconds of one iteration.
    pub time_ns: f64,
    /// Samples per second, where the batch size is known.
    pub samples_per_second: Option<f64>,
    /// Bytes at the peak of memory.
    pub peak_bytes: u64,
    /// Samples in a batch.
    pub batch_size: Option<u64>,
    /// How many ranks there were; nothing where that was not kept.
    #[serde(default)]
    pub world_size: Option<u32>,
    /// As its maker calls it.
    pub device: String,
    /// git's HEAD when it ran.
    pub commit: Option<String>,
    /// Whether the text that ran was that commit's.
    pub clean: bool,
    /// The hash of the texts that ran, where they are known.
    pub text: Option<String>,
    /// Where the measurement is still at hand: its generation.
    pub generation: Option<u64>,
}

impl RunRecord {
    /// The record of a measurement; what only its maker knows stays open.
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

    /// What can be shown of it, whoever wrote it.
    fn shown(&self) -> RunRecord {
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

/// The document.
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
    what_ifs: Option<what_ifs::Shown>,
    findings: Option<findings::Shown>,
}

/// What the iteration would be otherwise or elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Predictions {
    batch_size: Option<batch_size::Shown>,
    devices: Option<Devices>,
}

impl Predictions {
    /// Nothing where nothing can be told.
    fn of(input: &PanelInput<'_>) -> Option<Predictions> {
        let sizes = input.batch_sizes;
        let batch_size = sizes.map(|sizes| batch_size::Shown::of(sizes, input.profile));
        let devices = input.elsewhere.map(Devices::of);
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
    ranks: Option<ranks::RanksShown>,
    bottleneck: Option<bottleneck::BottleneckShown>,
    utilization: Vec<bottleneck::PartShown>,
    breakdowns: Vec<Breakdown>,
    memory: Option<Memory>,
    kernels: Vec<Kernel>,
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
    /// Index into the document's files, which are the profile's.
    pub file: u32,
    /// From 1.
    pub line: u32,
}

impl Place {
    /// Nothing where the profile has no such file.
    fn of(profile: &Profile, file: FileId, line: u32) -> Option<Place> {
        let is_known = (file.0 as usize) < profile.files.len() && line > 0;
        is_known.then_some(Place { file: file.0, line })
    }
}

/// The document of what there is.
pub fn document(input: &PanelInput<'_>) -> PanelDocument {
    PanelDocument {
        schema: SCHEMA,
        generation: input.generation,
        project: name(input.project),
        can_jump: input.can_jump,
        can_highlight: input.can_highlight,
        status: input.status.clone(),
        recording: input.profile.map(|profile| measurement(profile, input)),
        history: input.history.iter().take(MOST_RUNS).map(RunRecord::shown).collect(),
        predictions: Predictions::of(input),
        what_ifs: input
            .profile
            .zip(input.what_ifs)
            .map(|(profile, known)| what_ifs::Shown::of(known, profile)),
        findings: input
            .profile
            .zip(input.findings)
            .map(|(profile, found)| findings::Shown::of(found, profile)),
    }
}

fn measurement(profile: &Profile, input: &PanelInput<'_>) -> Measurement {
    let against = changes::Against::of(input, profile);
    let (last, head) = (against.last.as_ref(), against.head.as_ref());
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
        headline: headline::numbers(profile, &against),
        changes_against: ChangesAgainst {
            last: last.map(|last| against.describe(last.record)),
            head: head.map(|head| against.describe_head(head.record)),
            head_unix_ms: head.map(|head| head.record.when_unix_ms),
        },
        ranks: ranks::shown(profile),
        bottleneck: bottleneck::shown(profile),
        utilization: bottleneck::parts(profile),
        breakdowns: breakdown::all(profile, input.texts),
        memory: memory::memory(profile),
        kernels: profile.kernels.iter().take(MOST_KERNELS).map(kernel).collect(),
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

/// Why memory is what it is at its peak, in sentences; nothing where no memory was recorded.
pub(super) fn memory_in_words(profile: &Profile) -> Option<String> {
    memory::memory(profile).map(|memory| memory.explanation)
}

/// Nanoseconds as a whole number: nothing measures less, and whole numbers add up exactly.
fn whole(time_ns: f64) -> u64 {
    // A cast saturates, and takes what is no number for 0.
    time_ns.round() as u64
}

/// A number that JSON has.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}
