//! From a recording's folder to a profile, and from the profile's paths to files on this machine.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ridgeline_analysis::attribution::{self, AttributionError};
use ridgeline_analysis::devices::device_spec::Ceilings;
use ridgeline_analysis::predict::device_comparison::{
    Comparison, ComparisonInput, compare_with_host,
};
use ridgeline_analysis::present::failure::run::{RunFacts, SignalCounts};
use ridgeline_analysis::present::failure::{FailureFrame, RunFailure};
use ridgeline_analysis::present::out_of_memory::OutOfMemory;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::{Options, TraceError};
use ridgeline_analysis::recording::line_log::{LineLog, LineLogError};
use ridgeline_analysis::recording::manifest::{Manifest, ManifestError, Status};
use ridgeline_analysis::recording::trace::Trace;
use ridgeline_gpu::agent::Signals;
use ridgeline_gpu::interpreter::Interpreter;

use super::few_iterations::SeenIterations;
use super::what_if::Iteration;
use crate::documents::real_path;
use crate::known_devices;
use crate::measured_rates;
use crate::notebook;
use crate::profiler::{PendingIteration, Profiled};

/// The maximum size of a manifest in bytes. The agent never writes a larger one.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;
/// The maximum size of a line log in bytes. The agent limits its number of events.
const MAX_LINE_LOG_BYTES: u64 = 512 << 20;

/// The result of reading a recording.
#[derive(Debug)]
pub(super) struct LoadedRecording {
    pub profile: Profile,
    /// The predicted cost on other devices, if available.
    pub device_comparison: Option<Arc<Comparison>>,
    /// The number of regions that `torch.compile` created. Their lines need an eager pass.
    pub compiled_regions: usize,
    /// The iteration itself, if one was recorded.
    pub iteration: PendingIteration,
}

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordingError {
    #[error("the recording's {file} cannot be read: {source}")]
    Io { file: String, source: io::Error },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("the recording's trace: {0}")]
    Trace(#[from] TraceError),
    #[error("the recording's line log: {0}")]
    LineLog(#[from] LineLogError),
    #[error(transparent)]
    Attribution(#[from] AttributionError),
}

/// Reads a recording of the project at `root`, attributes it, and predicts its cost on other
/// devices. `eager` is the folder of the eager pass of its compiled regions, if any. It reads files
/// and computes, which can take seconds.
///
/// # Errors
/// If a file is missing or broken.
pub(super) fn read(
    folder: &Path,
    eager: Option<&Path>,
    root: &Path,
) -> Result<LoadedRecording, RecordingError> {
    let recording = load(folder)?;
    let eager = eager.map(load).transpose()?;
    let (mut profile, graph) = attribution::attribute_with_graph(&recording, eager.as_ref())?;
    let step = attribution::recorded_step(&recording, &profile);
    let (mut table, left_out) = known_devices::of_project(root);
    measured_rates::add_to(&mut table, profile.device.is_simulated);
    let host = attribution::host_ns_per_operator(&recording, &profile);
    let comparison = compare_with_host(ComparisonInput::Recorded(&step), &table, host);
    let comparison = comparison.map(|mut comparison| {
        comparison.notes.extend(left_out);
        Arc::new(comparison)
    });
    let device = &profile.device.name;
    if step.ran_on_gpu() && table.find(device).is_none() {
        let note = format!(
            "{device} is not a known GPU: estimated speedups, and findings that need its peak \
            rates, are not available. Describe it in a file (docs/configuration.md)"
        );
        profile.notes.push(note);
    }
    add_ranks(folder, &recording, &mut profile);
    let compiled_regions =
        recording.manifest.as_ref().map_or(0, |manifest| manifest.compiled.len());
    let iteration = PendingIteration::new(Iteration::new(recording, graph));
    Ok(LoadedRecording { profile, device_comparison: comparison, compiled_regions, iteration })
}

/// Adds the recordings of other ranks to the profile of the first one.
pub(crate) fn add_ranks(folder: &Path, recording: &Recording, profile: &mut Profile) {
    let (ranks, notes) = super::ranks::read(folder, recording, profile);
    profile.ranks = ranks.map(Arc::new);
    profile.notes.extend(notes);
}

/// Returns whether a path is the folder of a finished recording, or another profiler's trace.
pub(crate) fn is_recording(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_trace = name.ends_with(".json") || name.ends_with(".json.gz");
    path.join(MANIFEST).is_file() || (is_trace && path.is_file())
}

/// Reads the files of a recording, or another profiler's trace.
///
/// # Errors
/// If one is missing or broken.
pub(crate) fn load(folder: &Path) -> Result<Recording, RecordingError> {
    if folder.is_file() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file =
            File::open(folder).map_err(|source| RecordingError::Io { file: name, source })?;
        let trace = Trace::read(file, &Options::default())?;
        return Ok(Recording { trace, ..Recording::default() });
    }
    let manifest = Manifest::parse(&read_bounded(folder, MANIFEST, MAX_MANIFEST_BYTES)?)?;
    // Both are read concurrently.
    let (trace, lines) = std::thread::scope(|scope| {
        let lines = scope.spawn(|| read_line_log(folder, &manifest));
        let trace = read_trace(folder);
        let lines = lines.join().unwrap_or_else(|_| {
            let source = io::Error::other("unexpected error while reading it");
            Err(RecordingError::Io { file: LINES.to_owned(), source })
        });
        (trace, lines)
    });
    let ceilings = ceilings_of(&manifest);
    Ok(Recording { trace: trace?, lines: Some(lines?), manifest: Some(manifest), ceilings })
}

/// Returns the measured rates of this machine's GPU of that name.
fn ceilings_of(manifest: &Manifest) -> Option<Ceilings> {
    let device = &manifest.device;
    let is_cuda = device.kind.as_deref() == Some("cuda");
    let name = device.name.as_deref().filter(|_| is_cuda)?;
    measured_rates::of_name(name, device.simulated)
}

fn read_trace(folder: &Path) -> Result<Trace, RecordingError> {
    let (file, name) = open(folder, TRACE)?;
    tracing::trace!("reading {name}");
    // Python frames come from the line log.
    let options = Options { python_frames: false, ..Options::default() };
    Ok(Trace::read(file, &options)?)
}

fn read_line_log(folder: &Path, manifest: &Manifest) -> Result<LineLog, RecordingError> {
    let bytes = read_bounded(folder, LINES, MAX_LINE_LOG_BYTES)?;
    Ok(LineLog::parse(&bytes, manifest)?)
}

const MANIFEST: &str = "manifest.json";
const TRACE: &str = "trace.json";
const LINES: &str = "lines.bin";

/// Returns the failure recorded in the manifest, if any.
pub(super) fn failure(folder: &Path) -> Option<RunFailure> {
    let bytes = read_bounded(folder, MANIFEST, MAX_MANIFEST_BYTES).ok()?;
    let manifest = Manifest::parse(&bytes).ok()?;
    let failure = manifest.failure?;
    let frames = failure.frames.iter().filter_map(|frame| {
        let file = manifest.files.get(usize::try_from(frame.file).ok()?)?;
        Some(FailureFrame { path: file.path.clone(), line: frame.line, name: frame.name.clone() })
    });
    let run = RunFacts { error: failure.facts, ..RunFacts::default() };
    Some(RunFailure {
        frames: frames.collect(),
        run: Box::new(run),
        memory: failure
            .memory
            .as_ref()
            .map(|held| Box::new(OutOfMemory::of(held, &manifest.files))),
        error_type: failure.type_name,
        message: failure.message,
        kind: failure.kind,
        requested_bytes: failure.requested_bytes,
    })
}

/// Returns the number of iterations that the program reached. If there are several ranks, the
/// lowest number.
pub(super) fn iteration_count(folder: &Path) -> Option<u32> {
    iterations_reached(folder).map(|seen| seen.count)
}

/// Returns the iterations that the program reached, and how they were found. If there are several
/// ranks, those of the rank with the fewest.
pub(super) fn iterations_reached(folder: &Path) -> Option<SeenIterations> {
    let others = super::ranks::folders(folder).into_iter().map(|(_, folder)| folder);
    let all = std::iter::once(folder.to_owned()).chain(others);
    all.filter_map(|folder| iterations_of(&folder)).min_by_key(|seen| seen.count)
}

/// Returns the number of training signals that were seen, or `None` if the recording cannot be
/// read.
pub(super) fn signal_count(folder: &Path) -> Option<SignalCounts> {
    let bytes = read_bounded(folder, MANIFEST, MAX_MANIFEST_BYTES).ok()?;
    let seen = Manifest::parse(&bytes).ok()?.iterations.signals;
    let count = |name: &str| seen.get(name).copied().unwrap_or_default();
    Some(SignalCounts {
        optimizer: count("optimizer"),
        backward: count("backward"),
        module: count("module"),
    })
}

fn iterations_of(folder: &Path) -> Option<SeenIterations> {
    let bytes = read_bounded(folder, MANIFEST, MAX_MANIFEST_BYTES).ok()?;
    let manifest = Manifest::parse(&bytes).ok()?;
    let iterations = manifest.iterations;
    let counted = iterations.timed_ns.len().saturating_add(iterations.profiled.len());
    let counted = u32::try_from(counted).ok()?.checked_add(iterations.warmup);
    // Only if the program ended early are these known to apply to the next run.
    let is_known = manifest.status == Status::Short && iterations.first_signals.is_some();
    let every = iterations.steps_per_iteration.unwrap_or(1).max(1);
    let signals = Signals { first: iterations.first_signals.unwrap_or_default(), every };
    Some(SeenIterations {
        count: iterations.seen.or(counted)?,
        found_by: iterations.found_by.filter(|_| is_known),
        signals: Some(signals).filter(|_| is_known),
    })
}

/// Returns the nanoseconds of each timed iteration, without those for which the program waited for
/// the CPU. Returns `None` if the recording cannot be read.
pub(super) fn undisturbed_ns(folder: &Path) -> Option<Vec<f64>> {
    let bytes = read_bounded(folder, MANIFEST, MAX_MANIFEST_BYTES).ok()?;
    let times_ns = Manifest::parse(&bytes).ok()?.iterations.undisturbed_ns();
    Some(times_ns.into_iter().map(|ns| ns as f64).collect())
}

/// Returns whether worker processes loaded the batches, or `None` if the recording cannot be read.
pub(super) fn has_loader_workers(folder: &Path) -> Option<bool> {
    let bytes = read_bounded(folder, MANIFEST, MAX_MANIFEST_BYTES).ok()?;
    let loaders = Manifest::parse(&bytes).ok()?.loaders;
    Some(loaders.iter().any(|loader| loader.workers.is_some_and(|workers| workers > 0)))
}

/// Finds the profile's files on this machine.
pub(super) fn locate(
    read: LoadedRecording,
    root: &Path,
    interpreter: Option<&Interpreter>,
    folder: &Path,
) -> Profiled {
    let files =
        read.profile.files.iter().map(|file| find_file(root, interpreter, &file.path)).collect();
    Profiled {
        profile: Arc::new(read.profile),
        device_comparison: read.device_comparison,
        root: root.to_owned(),
        real_root: real_path(root),
        files,
        log: Some(folder.join(super::outcome::LOG_FILE)).filter(|log| log.is_file()),
        recording: Some(folder.to_owned()),
        when_unix_ms: written_at(&folder.join(MANIFEST)).or(written_at(folder)),
        iteration: read.iteration,
    }
}

/// Returns when a file was last modified, in milliseconds since 1970.
fn written_at(file: &Path) -> Option<u64> {
    let when = file.metadata().ok()?.modified().ok()?;
    u64::try_from(when.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// Finds a file of the manifest. A program could write the manifest, so only files in the project
/// or in the interpreter's packages are accepted.
fn find_file(root: &Path, interpreter: Option<&Interpreter>, path: &str) -> Option<PathBuf> {
    let relative = Path::new(path);
    let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || path.contains('\0') {
        return None;
    }
    let in_project = root.join(relative);
    if notebook::is_file(&in_project) {
        return Some(in_project);
    }
    let interpreter = interpreter?;
    let within = relative.strip_prefix("site-packages").ok()?;
    let (major, minor, _) = interpreter.version;
    let places =
        [format!("lib/python{major}.{minor}/site-packages"), "Lib/site-packages".to_owned()];
    places
        .iter()
        .map(|place| interpreter.prefix.join(place).join(within))
        .find(|file| file.is_file())
}

/// Opens a file of the recording, or its compressed version.
fn open(folder: &Path, name: &str) -> Result<(File, String), RecordingError> {
    let compressed = format!("{name}.gz");
    let failed = |file: &str, source| RecordingError::Io { file: file.to_owned(), source };
    match File::open(folder.join(name)) {
        Ok(file) => Ok((file, name.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = File::open(folder.join(&compressed)).map_err(|_| failed(name, error))?;
            Ok((file, compressed))
        }
        Err(error) => Err(failed(name, error)),
    }
}

/// Reads a file, and decompresses it if necessary. Fails beyond `limit` bytes.
pub(super) fn read_bounded(
    folder: &Path,
    name: &str,
    limit: u64,
) -> Result<Vec<u8>, RecordingError> {
    let (file, found) = open(folder, name)?;
    let failed = |source| RecordingError::Io { file: found.clone(), source };
    let reader: Box<dyn io::Read> = if found.ends_with(".gz") {
        Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file)))
    } else {
        Box::new(file)
    };
    let mut bytes = Vec::new();
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        let limit = ridgeline_analysis::base::units::bytes(limit as f64);
        return Err(failed(io::Error::other(format!("it is larger than {limit}"))));
    }
    Ok(bytes)
}
