//! [`Run`]: the part of a measurement that is stored so that later runs can be compared with it.
//!
//! It has numbers, names of functions and modules, paths within the project, and checksums of
//! lines; no source text, and nothing that identifies the machine or the folder. Its size is
//! bounded, so hundreds of runs can be stored. `profile --json` and `check --write-baseline` write
//! it as `run`.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use ridgeline_base::printable::name;
use ridgeline_profile::ranks::Ranks;
use ridgeline_profile::{
    FileFacts, LineCost, MAX_SAMPLES, ModuleCost, Phase, PhaseTimes, Profile, Sample,
};

/// The version of the format.
pub const VERSION: u32 = 1;

/// The maximum number of lines stored, the most expensive ones.
pub const MAX_LINES: usize = 300;
/// The maximum number of modules stored, the most expensive ones.
pub const MAX_MODULES: usize = 200;
/// The maximum number of source lines, over all texts, whose checksums are stored.
const MAX_TEXT_LINES: usize = 20_000;
/// The maximum number of timed iterations; a run has at most a thousand.
const MAX_ITERATIONS: usize = 1000;
/// The maximum iteration time in nanoseconds, about three years.
const MAX_ITERATION_NS: f64 = 1e17;
/// Bytes of the text hash that are stored, enough to make collisions unlikely.
const HASH_BYTES: usize = 8;

/// The stored part of a measurement. Times are integer nanoseconds per iteration, sizes are bytes
/// at the peak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// Display name of the device.
    pub device: String,
    /// PyTorch version.
    pub torch: String,
    /// Samples in a batch; that of the first of several ranks.
    pub batch_size: Option<u64>,
    /// The number of ranks; `None` if it was not stored.
    pub world_size: Option<u32>,
    /// Samples of all ranks per iteration; `None` for one rank, or if unknown.
    pub samples: Option<u64>,
    /// The median of [`Self::timed_ns`].
    pub time_ns: f64,
    /// The time of every unprofiled iteration, in order.
    pub timed_ns: Vec<f64>,
    /// The share of that time for which the program waited for the CPU; 0 if unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub waited_share: f64,
    /// The time by phase, in the order of [`Phase::ALL`].
    pub phases_ns: [u64; 5],
    /// The time by phase of each profiled iteration; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase_samples_ns: Vec<[u64; 5]>,
    /// Peak memory in bytes; the highest peak of several ranks.
    pub peak_bytes: u64,
    /// The rank with the highest peak; `None` for one rank.
    pub peak_rank: Option<u32>,
    /// Hash of the source texts that ran, in hexadecimal; `None` if unknown.
    pub text: Option<String>,
    /// Checksums of the same texts; empty if unknown or too long.
    pub texts: Vec<RunText>,
    /// Paths of the lines' files, relative to the project's root.
    pub files: Vec<String>,
    /// The most expensive lines.
    pub lines: Vec<RunLine>,
    /// Lines and modules that cost less than this were omitted; 0 if none were.
    pub left_out_below_ns: u64,
    /// The most expensive modules.
    pub modules: Vec<RunModule>,
}

/// The checksums of a source text that ran. They show whether the text contains a line without a
/// cost, and whether a commit has this text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunText {
    /// Path as in [`FileFacts::path`].
    pub path: String,
    /// Checksum of every line from `python::fingerprint`, serialized as eight hexadecimal digits
    /// each.
    #[serde(with = "digits")]
    pub checksums: Vec<u32>,
}

/// The cost of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunLine {
    /// Index into [`Run::files`].
    pub file: u32,
    /// Line number, counted from 1, in the text that ran.
    pub line: u32,
    /// The enclosing function or class.
    pub scope: String,
    /// Checksum from `python::fingerprint`; 0 if unknown.
    pub checksum: u32,
    /// Total nanoseconds, calls included.
    pub total_ns: u64,
    /// Self nanoseconds.
    pub own_ns: u64,
    /// [`Self::total_ns`] by profiled iteration; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub total_samples_ns: Vec<u64>,
    /// [`Self::own_ns`] by profiled iteration; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_samples_ns: Vec<u64>,
    /// Bytes at the peak that were allocated here.
    pub bytes: u64,
}

/// The cost of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunModule {
    /// Module path such as `layer1.0.conv1`; empty for the outermost module.
    pub path: String,
    /// Class name such as `Conv2d`.
    pub type_name: String,
    /// Total nanoseconds, children included.
    pub total_ns: u64,
    /// Self nanoseconds, without children.
    pub own_ns: u64,
    /// [`Self::total_ns`] by profiled iteration; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub total_samples_ns: Vec<u64>,
    /// [`Self::own_ns`] by profiled iteration; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_samples_ns: Vec<u64>,
    /// Bytes at the peak that the module owns or allocated.
    pub bytes: u64,
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

/// The reason why JSON is not a run, as a sentence without a full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRun {
    /// It is not JSON, or has another structure.
    #[error("not the output of `profile --json` or `check --write-baseline`: {0}")]
    Form(String),
    /// It has no `run` section.
    #[error("no `run` section, as written by `profile --json` and `check --write-baseline`")]
    Missing,
    /// A newer Ridgeline wrote it.
    #[error("written by a newer Ridgeline (`run` version {0})")]
    Newer(u32),
}

impl Run {
    /// Creates the run of a measurement.
    pub fn of(profile: &Profile) -> Run {
        let (lines, lines_below) = lines(profile);
        let (modules, modules_below) = modules(profile);
        let iteration = &profile.iteration;
        let ranks = profile.ranks.as_deref();
        let peak = ranks.and_then(Ranks::peak);
        Run {
            version: VERSION,
            device: name(&profile.device.display_name()),
            torch: name(&profile.torch_version),
            batch_size: iteration.batch_size,
            world_size: Some(ranks.map_or(1, |ranks| ranks.world_size)),
            samples: ranks.and_then(Ranks::samples),
            time_ns: iteration.time_ns,
            timed_ns: iteration.comparable_times(),
            waited_share: iteration.waited_share,
            phases_ns: by_phase(&iteration.phases),
            phase_samples_ns: iteration.phase_samples.iter().map(by_phase).collect(),
            peak_bytes: peak.map_or(profile.memory.peak_bytes, |(_, bytes)| bytes),
            peak_rank: peak.map(|(rank, _)| rank),
            text: text_hash(&profile.files),
            texts: texts(&profile.files),
            files: profile.files.iter().map(|file| name(&file.path)).collect(),
            lines,
            left_out_below_ns: lines_below.max(modules_below),
            modules,
        }
        .sanitized()
    }

    /// Reads the run from the output of `profile --json` or `check --write-baseline`. The input is
    /// not trusted.
    ///
    /// # Errors
    /// The reason why there is no run in it.
    pub fn read(json: &[u8]) -> Result<Run, InvalidRun> {
        #[derive(Deserialize)]
        struct Document {
            run: Option<Run>,
        }
        let document: Document =
            serde_json::from_slice(json).map_err(|error| InvalidRun::Form(error.to_string()))?;
        let run = document.run.ok_or(InvalidRun::Missing)?;
        match run.version {
            0 => Err(InvalidRun::Missing),
            VERSION => Ok(run.sanitized()),
            newer => Err(InvalidRun::Newer(newer)),
        }
    }

    /// Returns the samples of all ranks per iteration, if known.
    pub fn samples_per_iteration(&self) -> Option<f64> {
        let has_one_rank = self.world_size.is_none_or(|ranks| ranks <= 1);
        let samples = self.samples.or(self.batch_size.filter(|_| has_one_rank))?;
        (samples > 0).then_some(samples as f64)
    }

    /// Returns the samples per second of all ranks, if known.
    pub fn samples_per_second(&self) -> Option<f64> {
        let samples = self.samples_per_iteration()?;
        (self.time_ns > 0.0).then(|| samples / (self.time_ns / 1e9))
    }

    /// Returns the path of a line's file.
    pub fn file(&self, line: &RunLine) -> &str {
        self.files.get(line.file as usize).map_or("", String::as_str)
    }

    /// Returns the run with untrusted input sanitized: numbers are finite, lists are bounded, names
    /// are printable, and every line has a file.
    #[must_use]
    pub fn sanitized(mut self) -> Run {
        // No iteration takes less than a nanosecond, and ratios to almost 0 would overflow.
        let is_time = |time_ns: &f64| (1.0..=MAX_ITERATION_NS).contains(time_ns);
        self.time_ns = Some(self.time_ns).filter(is_time).unwrap_or_default();
        self.timed_ns.retain(is_time);
        self.timed_ns.truncate(MAX_ITERATIONS);
        self.waited_share =
            Some(self.waited_share).filter(|it| (0.0..=1.0).contains(it)).unwrap_or_default();
        if self.texts.iter().map(|text| 1 + text.checksums.len()).sum::<usize>() > MAX_TEXT_LINES {
            self.texts.clear();
        }
        self.files.truncate(MAX_LINES.max(self.lines.len()));
        let count = self.files.len();
        self.lines.retain(|line| (line.file as usize) < count && line.line > 0);
        self.lines.truncate(MAX_LINES);
        self.modules.truncate(MAX_MODULES);
        self.phase_samples_ns.truncate(MAX_SAMPLES);
        let lines = self.lines.iter_mut();
        let lines = lines.flat_map(|line| [&mut line.total_samples_ns, &mut line.own_samples_ns]);
        let modules = self.modules.iter_mut();
        let modules = modules.flat_map(|one| [&mut one.total_samples_ns, &mut one.own_samples_ns]);
        lines.chain(modules).for_each(|samples| samples.truncate(MAX_SAMPLES));
        let texts = [&mut self.device, &mut self.torch].into_iter();
        let texts = texts.chain(self.text.as_mut()).chain(&mut self.files);
        let texts = texts.chain(self.texts.iter_mut().map(|text| &mut text.path));
        let texts = texts.chain(self.lines.iter_mut().map(|line| &mut line.scope));
        let modules = self.modules.iter_mut();
        for text in texts.chain(modules.flat_map(|one| [&mut one.path, &mut one.type_name])) {
            *text = name(text);
        }
        self.without_unused_files()
    }

    /// Removes files without lines.
    fn without_unused_files(mut self) -> Run {
        let mut used: Vec<String> = Vec::new();
        let mut places: HashMap<u32, u32> = HashMap::new();
        for line in &mut self.lines {
            let files = &self.files;
            line.file = *places.entry(line.file).or_insert_with_key(|at| {
                used.push(files.get(*at as usize).cloned().unwrap_or_default());
                u32::try_from(used.len() - 1).unwrap_or(u32::MAX)
            });
        }
        self.files = used;
        self
    }
}

/// Returns the most expensive lines in the order of their files, and an upper bound on the cost of
/// omitted lines.
fn lines(profile: &Profile) -> (Vec<RunLine>, u64) {
    let mut found = Vec::new();
    for (at, costs) in (0_u32..).zip(&profile.lines) {
        let file = profile.files.get(at as usize);
        found.extend(costs.iter().map(|cost| run_line(at, file, cost)));
    }
    found.retain(|line| line.total_ns > 0 || line.bytes > 0);
    most_expensive(found, MAX_LINES, |line| line.total_ns, |line| line.bytes)
}

fn run_line(file: u32, facts: Option<&FileFacts>, cost: &LineCost) -> RunLine {
    let at = (cost.line as usize).checked_sub(1);
    let checksum = facts.zip(at).and_then(|(facts, at)| facts.fingerprint.get(at));
    RunLine {
        file,
        line: cost.line,
        scope: name(&cost.scope),
        checksum: checksum.copied().unwrap_or_default(),
        total_ns: total_ns(&cost.total_time),
        own_ns: total_ns(&cost.self_time),
        total_samples_ns: samples(&cost.samples, |sample| sample.total_ns),
        own_samples_ns: samples(&cost.samples, |sample| sample.own_ns),
        bytes: cost.self_memory.total(),
    }
}

fn modules(profile: &Profile) -> (Vec<RunModule>, u64) {
    let run_module = |module: &ModuleCost| RunModule {
        path: name(&module.path),
        type_name: name(&module.type_name),
        total_ns: total_ns(&module.total_time),
        own_ns: total_ns(&module.self_time),
        total_samples_ns: samples(&module.samples, |sample| sample.total_ns),
        own_samples_ns: samples(&module.samples, |sample| sample.own_ns),
        bytes: module.memory.total(),
    };
    let found: Vec<RunModule> = profile.modules.iter().map(run_module).collect();
    most_expensive(found, MAX_MODULES, |module| module.total_ns, |module| module.bytes)
}

/// Returns at most `most` items, the longest and the largest, in their original order, and an upper
/// bound on the time of omitted items.
fn most_expensive<T>(
    all: Vec<T>,
    most: usize,
    time_ns: impl Fn(&T) -> u64,
    bytes: impl Fn(&T) -> u64,
) -> (Vec<T>, u64) {
    if all.len() <= most {
        return (all, 0);
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    let key = |at: &usize, by: &dyn Fn(&T) -> u64| all.get(*at).map(by).unwrap_or_default();
    order.sort_by_key(|at| std::cmp::Reverse(key(at, &time_ns)));
    // A third is reserved for items with much memory and little time.
    let (longest, rest) = order.split_at(most - most / 3);
    let below = rest.first().map(|at| key(at, &time_ns)).unwrap_or_default();
    let mut rest = rest.to_vec();
    rest.sort_by_key(|at| std::cmp::Reverse(key(at, &bytes)));
    let mut is_kept = vec![false; all.len()];
    for at in longest.iter().chain(rest.iter().take(most / 3)) {
        if let Some(kept) = is_kept.get_mut(*at) {
            *kept = true;
        }
    }
    let kept = all.into_iter().zip(is_kept).filter(|(_, is_kept)| *is_kept);
    // Omitted items take at most this long.
    (kept.map(|(one, _)| one).collect(), below.saturating_add(1))
}

fn have_fingerprints(files: &[FileFacts]) -> bool {
    !files.is_empty() && files.iter().all(|file| !file.fingerprint.is_empty())
}

fn texts(files: &[FileFacts]) -> Vec<RunText> {
    let lines = files.iter().map(|file| 1 + file.fingerprint.len()).sum::<usize>();
    if !have_fingerprints(files) || lines > MAX_TEXT_LINES {
        return Vec::new();
    }
    let text =
        |file: &FileFacts| RunText { path: name(&file.path), checksums: file.fingerprint.clone() };
    files.iter().map(text).collect()
}

/// Returns a hash of all source texts, independent of their order. Returns `None` if one is
/// unknown, or there are none.
pub fn text_hash(files: &[FileFacts]) -> Option<String> {
    if !have_fingerprints(files) {
        return None;
    }
    let mut sorted: Vec<&FileFacts> = files.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut hash = Sha256::new();
    for file in sorted {
        hash.update((file.path.len() as u64).to_le_bytes());
        hash.update(file.path.as_bytes());
        hash.update((file.fingerprint.len() as u64).to_le_bytes());
        for checksum in &file.fingerprint {
            hash.update(checksum.to_le_bytes());
        }
    }
    let digits = hash.finalize().into_iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}"));
    Some(digits.collect())
}

fn total_ns(times: &PhaseTimes) -> u64 {
    rounded(times.total())
}

fn by_phase(times: &PhaseTimes) -> [u64; 5] {
    Phase::ALL.map(|phase| rounded(times.get(phase)))
}

fn samples(samples: &[Sample], part: impl Fn(&Sample) -> f64) -> Vec<u64> {
    samples.iter().map(|sample| rounded(part(sample))).collect()
}

fn rounded(time_ns: f64) -> u64 {
    // The cast saturates, and converts NaN to 0.
    time_ns.round() as u64
}

/// Serializes checksums as one string: a list of numbers would fill a page in indented JSON.
mod digits {
    use serde::de::Error;
    use serde::{Deserialize as _, Deserializer, Serializer};

    const DIGITS: usize = 8;

    pub(super) fn serialize<S: Serializer>(checksums: &[u32], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&checksums.iter().map(|one| format!("{one:08x}")).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
        let text = String::deserialize(from)?;
        let one = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok().filter(|text| text.len() == DIGITS)?;
            u32::from_str_radix(digits, 16).ok()
        };
        let all = text.as_bytes().chunks(DIGITS).map(one);
        all.collect::<Option<_>>().ok_or_else(|| D::Error::custom("checksums must be hexadecimal"))
    }
}
