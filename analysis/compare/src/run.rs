//! [`Run`]: what is kept of a measurement so that a later one can be compared with it.
//!
//! It holds numbers, names of functions and modules, paths within the project, and checksums of lines;
//! no line of text, and nothing that says whose machine or which folder it was. It is bounded, so that
//! hundreds of them can be kept. `profile --json` and `check --write-baseline` write it under `run`.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use ridgeline_base::printable::name;
use ridgeline_profile::ranks::Ranks;
use ridgeline_profile::{
    FileFacts, LineCost, MOST_SAMPLES, ModuleCost, Phase, PhaseTimes, Profile, Sample,
};

/// The version of what is kept.
pub const VERSION: u32 = 1;

/// The costliest lines of a run that are kept.
pub const MOST_LINES: usize = 300;
/// The costliest modules.
pub const MOST_MODULES: usize = 200;
/// Lines of all texts that ran, of which checksums are kept.
const MOST_TEXT_LINES: usize = 20_000;
/// Iterations that were timed: a run has a thousand at the most.
const MOST_ITERATIONS: usize = 1000;
/// Nanoseconds of an iteration, which takes no three years.
const LONGEST_NS: f64 = 1e17;
/// Bytes of the texts' hash that are kept: two texts share them by accident alone.
const HASH_BYTES: usize = 8;

/// What is kept of a measurement. Times are whole nanoseconds of one iteration, sizes bytes at its peak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// As its maker calls it.
    pub device: String,
    /// Of torch.
    pub torch: String,
    /// Samples in a batch; of several ranks, of the first.
    pub batch_size: Option<u64>,
    /// How many ranks there were; nothing where that was not kept.
    pub world_size: Option<u32>,
    /// Samples of all ranks in an iteration; nothing of one rank, and where they are unknown.
    pub samples: Option<u64>,
    /// The median of [`Self::timed_ns`].
    pub time_ns: f64,
    /// Every unprofiled iteration, in order.
    pub timed_ns: Vec<f64>,
    /// The time by phase, in the order of [`Phase::ALL`].
    pub phases_ns: [u64; 5],
    /// The same by profiled iteration; nothing where that is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase_samples_ns: Vec<[u64; 5]>,
    /// Bytes alive at the peak; of several ranks, at the largest of theirs.
    pub peak_bytes: u64,
    /// Of several ranks, the one whose peak that is.
    pub peak_rank: Option<u32>,
    /// The hash of the texts that ran, in hexadecimal digits; nothing where they are unknown.
    pub text: Option<String>,
    /// The same texts, line by line; empty where they are unknown or too many.
    pub texts: Vec<RunText>,
    /// Paths that lines are in, relative to the project's root.
    pub files: Vec<String>,
    /// The costliest lines.
    pub lines: Vec<RunLine>,
    /// Lines and modules that cost less than this were left out; 0 where none was.
    pub left_out_below_ns: u64,
    /// The costliest modules.
    pub modules: Vec<RunModule>,
}

/// A text that ran, as checksums: whether a line that cost nothing was there, and whether a commit has
/// this text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunText {
    /// As [`FileFacts::path`] has it.
    pub path: String,
    /// Of every line, as `source::fingerprint` gives them; eight hexadecimal digits each when written.
    #[serde(with = "digits")]
    pub checksums: Vec<u32>,
}

/// What a line cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunLine {
    /// Index into [`Run::files`].
    pub file: u32,
    /// Counted from 1, in the text that ran.
    pub line: u32,
    /// The function or class around it.
    pub scope: String,
    /// As `source::fingerprint` gives it; 0 where it is unknown.
    pub checksum: u32,
    /// With everything that it calls.
    pub total_ns: u64,
    /// Its own.
    pub own_ns: u64,
    /// [`Self::total_ns`] by profiled iteration; nothing where that is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub total_samples_ns: Vec<u64>,
    /// [`Self::own_ns`] likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_samples_ns: Vec<u64>,
    /// Alive at the peak and made here.
    pub bytes: u64,
}

/// What a module cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunModule {
    /// `layer1.0.conv1`; the outermost module has the empty path.
    pub path: String,
    /// `Conv2d`.
    pub type_name: String,
    /// Its children included.
    pub total_ns: u64,
    /// The part that is no child's.
    pub own_ns: u64,
    /// [`Self::total_ns`] by profiled iteration; nothing where that is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub total_samples_ns: Vec<u64>,
    /// [`Self::own_ns`] likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_samples_ns: Vec<u64>,
    /// Alive at the peak and owned by or made in it.
    pub bytes: u64,
}

/// Why a text is no run: a sentence without a full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotARun {
    /// It is no JSON, or JSON of another form.
    #[error("not the output of `profile --json` or `check --write-baseline`: {0}")]
    Form(String),
    /// It has no `run`.
    #[error("no `run` section, as written by `profile --json` and `check --write-baseline`")]
    Missing,
    /// A newer Ridgeline wrote it.
    #[error("written by a newer Ridgeline (`run` version {0})")]
    Newer(u32),
}

impl Run {
    /// What is kept of a measurement.
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
        .put_right()
    }

    /// The run in what `profile --json` and `check --write-baseline` write. The text may be anything.
    ///
    /// # Errors
    /// Why there is none in it.
    pub fn read(json: &[u8]) -> Result<Run, NotARun> {
        #[derive(Deserialize)]
        struct Document {
            run: Option<Run>,
        }
        let document: Document =
            serde_json::from_slice(json).map_err(|error| NotARun::Form(error.to_string()))?;
        let run = document.run.ok_or(NotARun::Missing)?;
        match run.version {
            0 => Err(NotARun::Missing),
            VERSION => Ok(run.put_right()),
            newer => Err(NotARun::Newer(newer)),
        }
    }

    /// Samples of all ranks in an iteration, where they are known.
    pub fn all_samples(&self) -> Option<f64> {
        let is_alone = self.world_size.is_none_or(|ranks| ranks <= 1);
        let samples = self.samples.or(self.batch_size.filter(|_| is_alone))?;
        (samples > 0).then_some(samples as f64)
    }

    /// Samples of all ranks per second, where they are known.
    pub fn samples_per_second(&self) -> Option<f64> {
        let samples = self.all_samples()?;
        (self.time_ns > 0.0).then(|| samples / (self.time_ns / 1e9))
    }

    /// The path of a line's file.
    pub fn file(&self, line: &RunLine) -> &str {
        self.files.get(line.file as usize).map_or("", String::as_str)
    }

    /// Whoever wrote it: numbers are numbers, lists are bounded, names are fit to show, and every line
    /// has a file.
    #[must_use]
    pub fn put_right(mut self) -> Run {
        // No iteration takes less than a nanosecond, and a ratio to nothing is no number.
        let is_time = |time: &f64| (1.0..=LONGEST_NS).contains(time);
        self.time_ns = Some(self.time_ns).filter(is_time).unwrap_or_default();
        self.timed_ns.retain(is_time);
        self.timed_ns.truncate(MOST_ITERATIONS);
        if self.texts.iter().map(|text| 1 + text.checksums.len()).sum::<usize>() > MOST_TEXT_LINES {
            self.texts.clear();
        }
        self.files.truncate(MOST_LINES.max(self.lines.len()));
        let count = self.files.len();
        self.lines.retain(|line| (line.file as usize) < count && line.line > 0);
        self.lines.truncate(MOST_LINES);
        self.modules.truncate(MOST_MODULES);
        self.phase_samples_ns.truncate(MOST_SAMPLES);
        let lines = self.lines.iter_mut();
        let lines = lines.flat_map(|line| [&mut line.total_samples_ns, &mut line.own_samples_ns]);
        let modules = self.modules.iter_mut();
        let modules = modules.flat_map(|one| [&mut one.total_samples_ns, &mut one.own_samples_ns]);
        lines.chain(modules).for_each(|samples| samples.truncate(MOST_SAMPLES));
        let texts = [&mut self.device, &mut self.torch].into_iter();
        let texts = texts.chain(self.text.as_mut()).chain(&mut self.files);
        let texts = texts.chain(self.texts.iter_mut().map(|text| &mut text.path));
        let texts = texts.chain(self.lines.iter_mut().map(|line| &mut line.scope));
        let modules = self.modules.iter_mut();
        for text in texts.chain(modules.flat_map(|one| [&mut one.path, &mut one.type_name])) {
            *text = name(text);
        }
        self.keep_files_of_lines()
    }

    /// Files without a line are of no use.
    fn keep_files_of_lines(mut self) -> Run {
        let mut kept: Vec<String> = Vec::new();
        let mut places: HashMap<u32, u32> = HashMap::new();
        for line in &mut self.lines {
            let files = &self.files;
            line.file = *places.entry(line.file).or_insert_with_key(|at| {
                kept.push(files.get(*at as usize).cloned().unwrap_or_default());
                u32::try_from(kept.len() - 1).unwrap_or(u32::MAX)
            });
        }
        self.files = kept;
        self
    }
}

/// The costliest lines, in the order of their files, and what those that were left out cost at the most.
fn lines(profile: &Profile) -> (Vec<RunLine>, u64) {
    let mut found = Vec::new();
    for (at, costs) in (0_u32..).zip(&profile.lines) {
        let file = profile.files.get(at as usize);
        found.extend(costs.iter().map(|cost| run_line(at, file, cost)));
    }
    found.retain(|line| line.total_ns > 0 || line.bytes > 0);
    costliest(found, MOST_LINES, |line| line.total_ns, |line| line.bytes)
}

fn run_line(file: u32, facts: Option<&FileFacts>, cost: &LineCost) -> RunLine {
    let at = (cost.line as usize).checked_sub(1);
    let checksum = facts.zip(at).and_then(|(facts, at)| facts.fingerprint.get(at));
    RunLine {
        file,
        line: cost.line,
        scope: name(&cost.scope),
        checksum: checksum.copied().unwrap_or_default(),
        total_ns: time(&cost.total_time),
        own_ns: time(&cost.self_time),
        total_samples_ns: samples(&cost.samples, |sample| sample.total_ns),
        own_samples_ns: samples(&cost.samples, |sample| sample.own_ns),
        bytes: cost.self_memory.total(),
    }
}

fn modules(profile: &Profile) -> (Vec<RunModule>, u64) {
    let run_module = |module: &ModuleCost| RunModule {
        path: name(&module.path),
        type_name: name(&module.type_name),
        total_ns: time(&module.total_time),
        own_ns: time(&module.self_time),
        total_samples_ns: samples(&module.samples, |sample| sample.total_ns),
        own_samples_ns: samples(&module.samples, |sample| sample.own_ns),
        bytes: module.memory.total(),
    };
    let found: Vec<RunModule> = profile.modules.iter().map(run_module).collect();
    costliest(found, MOST_MODULES, |module| module.total_ns, |module| module.bytes)
}

/// At most so many, the longest and the largest, in the order in which they were.
fn costliest<T>(
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
    // A third of the room is for what holds memory and takes no time.
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
    // What was left out costs at most that much.
    (kept.map(|(one, _)| one).collect(), below.saturating_add(1))
}

fn are_known(files: &[FileFacts]) -> bool {
    !files.is_empty() && files.iter().all(|file| !file.fingerprint.is_empty())
}

fn texts(files: &[FileFacts]) -> Vec<RunText> {
    let lines = files.iter().map(|file| 1 + file.fingerprint.len()).sum::<usize>();
    if !are_known(files) || lines > MOST_TEXT_LINES {
        return Vec::new();
    }
    let text =
        |file: &FileFacts| RunText { path: name(&file.path), checksums: file.fingerprint.clone() };
    files.iter().map(text).collect()
}

/// A hash of all texts that ran, by path. Nothing where one is unknown, or there is none.
pub fn text_hash(files: &[FileFacts]) -> Option<String> {
    if !are_known(files) {
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

fn time(times: &PhaseTimes) -> u64 {
    whole(times.total())
}

fn by_phase(times: &PhaseTimes) -> [u64; 5] {
    Phase::ALL.map(|phase| whole(times.get(phase)))
}

fn samples(samples: &[Sample], part: impl Fn(&Sample) -> f64) -> Vec<u64> {
    samples.iter().map(|sample| whole(part(sample))).collect()
}

fn whole(time_ns: f64) -> u64 {
    // A cast saturates, and takes what is no number for 0.
    time_ns.round() as u64
}

/// Checksums as one text: a list of numbers would be a page long where the document is indented.
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
