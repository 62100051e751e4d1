//! The history of a project's runs, one line each, oldest first. The panel compares the newest run
//! with it.
//!
//! It is in the state folder, because unlike a recording it cannot be created again. An entry has
//! numbers, the device and the commit, but nothing that identifies the machine, its owner or the
//! folder. The costs of a run by line and module are in a separate file for each run, so that two
//! runs can be compared.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::compare::run::Run;
use ridgeline_analysis::compare::since::changes_since;
use ridgeline_analysis::present::panel::RunRecord;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::profile::since::Since;
use serde::Serialize;

use crate::git;
use crate::profiler::Profiled;
use crate::store::{Store, StoreError, create_private, write_atomic};

/// The maximum number of runs shown, and the minimum number kept.
const SHOWN_LIMIT: usize = 200;

/// The number of runs beyond which the oldest are removed. This does not happen at every run,
/// because it rewrites the file.
const STORED_LIMIT: usize = 2 * SHOWN_LIMIT;

/// The maximum number of bytes read, from the end of the file, in case something else has written
/// into it.
const READ_LIMIT: u64 = 1 << 20;

/// The maximum size of the file with a run's costs, in bytes.
const COSTS_LIMIT: u64 = 1 << 20;

/// Adds a new measurement to its project's history, and the changes since earlier runs to the
/// measurement. A history that cannot be written is a note.
pub(crate) fn add(store: &Store, mut profiled: Profiled) -> Profiled {
    if let Err(error) = write_record(store, &profiled) {
        let note = format!("this run was not added to the project's history: {error}");
        Arc::make_mut(&mut profiled.profile).notes.push(note);
    }
    with_changes(store, profiled)
}

/// Appends a measurement to the file.
///
/// # Errors
/// If the state folder cannot be written.
fn write_record(store: &Store, profiled: &Profiled) -> Result<(), StoreError> {
    let folder = store.workspace_state(&profiled.root);
    create_private(&folder)?;
    let file = file_in(&folder);
    let line = serde_json::to_string(&record(profiled))
        .map_err(|error| StoreError::at(&file, error.into()))?;
    let text = tail(&file);
    append(&file, &line, text.is_empty() || text.ends_with('\n'))
        .map_err(|error| StoreError::at(&file, error))?;
    write_costs(&folder, profiled)?;
    let lines: Vec<&str> = text.lines().chain([line.as_str()]).collect();
    if lines.len() > STORED_LIMIT || text.len() as u64 >= READ_LIMIT {
        let mut remaining: Vec<&str> =
            lines.into_iter().filter(|line| parse(line).is_some()).collect();
        remaining.drain(..remaining.len().saturating_sub(SHOWN_LIMIT));
        write_atomic(&file, format!("{}\n", remaining.join("\n")).as_bytes())?;
        remove_runs(&folder, &remaining.into_iter().filter_map(parse).collect::<Vec<_>>());
    }
    Ok(())
}

/// Reads the costs of a run by line and module. Returns `None` if they are not stored or damaged.
pub(crate) fn run(store: &Store, root: &Path, when_unix_ms: u64) -> Option<Run> {
    let file = runs_in(&store.workspace_state(root)).join(format!("{when_unix_ms}.json"));
    if !file.metadata().is_ok_and(|facts| facts.is_file() && facts.len() <= COSTS_LIMIT) {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(&file).ok()?.take(COSTS_LIMIT).read_to_end(&mut bytes).ok()?;
    Run::read(&bytes).ok()
}

/// Returns the newest of `runs` whose files match a commit: it ran at that commit without changes,
/// or its files were committed unchanged later.
pub(crate) fn of_commit<'a>(
    store: &Store,
    root: &Path,
    mut runs: impl Iterator<Item = &'a RunRecord>,
    commit: &git::Commit,
) -> Option<&'a RunRecord> {
    let mut matches: HashMap<&str, bool> = HashMap::new();
    runs.find(|record| {
        if record.clean && record.commit.as_ref() == Some(&commit.digits) {
            return true;
        }
        let Some(text) = record.text.as_deref() else { return false };
        let read_run = || run(store, root, record.when_unix_ms);
        *matches
            .entry(text)
            .or_insert_with(|| read_run().is_some_and(|run| matches_commit(&run, root, commit)))
    })
}

/// Returns whether the files of a run match a commit. Libraries that count as user code are in no
/// commit.
fn matches_commit(run: &Run, root: &Path, commit: &git::Commit) -> bool {
    let files = run.texts.iter().filter(|text| !text.path.starts_with("site-packages/"));
    let files: Vec<(PathBuf, &[u32])> =
        files.map(|text| (root.join(&text.path), text.checksums.as_slice())).collect();
    commit.has_files(&files.iter().map(|(path, sums)| (path.as_path(), *sums)).collect::<Vec<_>>())
}

/// Computes the changes by line from earlier runs to a measurement.
fn since(store: &Store, root: &Path, profile: &Profile, when_unix_ms: u64) -> Since {
    let history = read(store, root);
    let record = history.iter().find(|run| run.when_unix_ms == when_unix_ms);
    let mut earlier = history.iter().filter(|run| run.when_unix_ms < when_unix_ms);
    let head = record.and_then(|record| git::Commit::named(root, record.commit.as_deref()?));
    let head = head.and_then(|head| of_commit(store, root, earlier.clone(), &head));
    let changes = |record: Option<&RunRecord>| {
        let before = run(store, root, record?.when_unix_ms)?;
        Some(changes_since(&before, profile))
    };
    Since {
        last: changes(earlier.next()),
        head_unix_ms: head.map(|head| head.when_unix_ms),
        head: changes(head),
    }
}

/// Adds the changes since earlier runs to a measurement.
pub(crate) fn with_changes(store: &Store, mut profiled: Profiled) -> Profiled {
    if let Some(when) = profiled.when_unix_ms {
        let since = since(store, &profiled.root, &profiled.profile, when);
        Arc::make_mut(&mut profiled.profile).since = Some(Arc::new(since));
    }
    profiled
}

/// Writes the costs of a measurement by line and module. A truncated file is ignored when read.
fn write_costs(folder: &Path, profiled: &Profiled) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct Document {
        run: Run,
    }
    let folder = runs_in(folder);
    create_private(&folder)?;
    let file = folder.join(format!("{}.json", profiled.when_unix_ms.unwrap_or_default()));
    let failed = |error: std::io::Error| StoreError::at(&file, error);
    let text = serde_json::to_vec(&Document { run: Run::of(&profiled.profile) })
        .map_err(|error| failed(error.into()))?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&file).and_then(|mut open| open.write_all(&text)).map_err(failed)
}

/// Removes the costs of runs that are no longer in the history.
fn remove_runs(folder: &Path, remaining: &[RunRecord]) {
    for entry in fs::read_dir(runs_in(folder)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let when = name.to_str().and_then(|name| name.strip_suffix(".json")?.parse::<u64>().ok());
        if when.is_some_and(|when| remaining.iter().all(|run| run.when_unix_ms != when)) {
            // If it fails, the next cleanup tries again.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn runs_in(folder: &Path) -> PathBuf {
    folder.join("runs")
}

/// Reads the runs of a project, newest first. Unreadable lines are skipped.
pub(crate) fn read(store: &Store, root: &Path) -> Vec<RunRecord> {
    let text = tail(&file_in(&store.workspace_state(root)));
    text.lines().rev().filter_map(parse).take(SHOWN_LIMIT).collect()
}

/// The part of the history that the panel shows with a measurement.
#[derive(Debug, Default)]
pub(crate) struct PanelHistory {
    /// Its own run, followed by the earlier ones. Measurements of traces, and those older than the
    /// history, are not in it; their entry is created from the profile.
    pub runs: Vec<RunRecord>,
    /// The costs of the run before it, if stored.
    pub last: Option<Run>,
    /// The costs of the run whose files match HEAD, if stored.
    pub head: Option<Run>,
}

impl PanelHistory {
    /// Reads the history from a store. Without one, there is only the measurement itself.
    pub(crate) fn of(store: Option<&Store>, profiled: &Profiled, generation: u64) -> PanelHistory {
        let history = store.map(|store| read(store, &profiled.root)).unwrap_or_default();
        let runs = up_to(history, profiled, generation);
        let stored = |when: Option<u64>| run(store?, &profiled.root, when?);
        let since = profiled.profile.since.as_ref();
        PanelHistory {
            last: stored(runs.get(1).map(|last| last.when_unix_ms)),
            head: stored(since.and_then(|since| since.head_unix_ms)),
            runs,
        }
    }
}

fn up_to(history: Vec<RunRecord>, profiled: &Profiled, generation: u64) -> Vec<RunRecord> {
    let when = profiled.when_unix_ms.unwrap_or_default();
    let record = history.iter().find(|run| run.when_unix_ms == when).cloned();
    let record = record.unwrap_or_else(|| RunRecord::of(&profiled.profile, when));
    let record = RunRecord { generation: Some(generation), ..record };
    let earlier = history.into_iter().filter(|run| run.when_unix_ms < when);
    std::iter::once(record).chain(earlier).collect()
}

fn record(profiled: &Profiled) -> RunRecord {
    let profile = &*profiled.profile;
    // Libraries that count as user code are in no commit of the project.
    let ran: Vec<git::RanFile<'_>> = profile
        .files
        .iter()
        .zip(&profiled.files)
        .filter_map(|(facts, path)| Some((path.as_deref()?, facts.fingerprint.as_slice())))
        .filter(|(path, _)| path.starts_with(&profiled.root))
        .collect();
    let head = git::head(&profiled.root, &ran);
    RunRecord {
        clean: head.as_ref().is_some_and(|head| head.clean),
        commit: head.map(|head| head.commit),
        ..RunRecord::of(profile, profiled.when_unix_ms.unwrap_or_default())
    }
}

fn file_in(folder: &Path) -> PathBuf {
    folder.join("history.jsonl")
}

/// Appends in a single write, so that two servers do not interleave their lines.
fn append(file: &Path, line: &str, at_line_start: bool) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // A killed process may have left half a line.
    let before = if at_line_start { "" } else { "\n" };
    options.open(file)?.write_all(format!("{before}{line}\n").as_bytes())
}

/// Reads the last bytes of a file, as text; empty if it is not a regular file.
fn tail(file: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if fs::metadata(file)?.is_file() {
            let mut file = File::open(file)?;
            let size = file.metadata()?.len();
            file.seek(SeekFrom::Start(size.saturating_sub(READ_LIMIT)))?;
            file.take(READ_LIMIT).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

fn parse(line: &str) -> Option<RunRecord> {
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use ridgeline_analysis::profile::{FileFacts, IterationCost};
    use ridgeline_analysis::python::fingerprint;

    use super::*;
    use crate::git::tests::{git, repository};
    use crate::profiler::PendingIteration;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        (folder, store)
    }

    /// Creates a measurement with this iteration time, taken at `when`.
    fn measured(milliseconds: f64, when: u64) -> Profiled {
        let iteration = IterationCost { time_ns: milliseconds * 1e6, ..IterationCost::default() };
        Profiled {
            profile: Arc::new(Profile { iteration, ..Profile::default() }),
            device_comparison: None,
            root: "/nowhere/project".into(),
            real_root: "/nowhere/project".into(),
            files: Vec::new(),
            log: None,
            recording: None,
            when_unix_ms: Some(when),
            iteration: PendingIteration::default(),
        }
    }

    fn times(runs: &[RunRecord]) -> Vec<f64> {
        runs.iter().map(|run| run.time_ns / 1e6).collect()
    }

    #[test]
    fn runs_are_read_newest_first_and_limited_in_number() {
        let (_folder, store) = store();
        for number in 0..1000_u32 {
            write_record(&store, &measured(f64::from(number), number.into())).expect("written");
        }
        let runs = read(&store, Path::new("/nowhere/project"));
        assert_eq!(runs.len(), SHOWN_LIMIT);
        assert_eq!(times(&runs)[..2], [999.0, 998.0]);
        let stored = |when| run(&store, Path::new("/nowhere/project"), when);
        assert_eq!(stored(998).map(|run| run.time_ns), Some(998e6));
        assert!(stored(1).is_none() && stored(1_000_000).is_none());
        let folder = runs_in(&store.workspace_state(Path::new("/nowhere/project")));
        assert!(fs::read_dir(&folder).expect("a folder").count() <= STORED_LIMIT);
        let file = file_in(&store.workspace_state(Path::new("/nowhere/project")));
        let text = fs::read_to_string(&file).expect("text");
        assert!(text.lines().count() <= STORED_LIMIT, "{}", text.lines().count());
        assert!(!text.contains("nowhere"), "{text}");
        assert_eq!(read(&store, Path::new("/another/project")), []);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o077, 0);
        }
    }

    #[test]
    fn lines_from_other_programs_are_skipped() {
        let (_folder, store) = store();
        let root = Path::new("/nowhere/project");
        write_record(&store, &measured(1.0, 1)).expect("written");
        let file = file_in(&store.workspace_state(root));
        let mut damaged = fs::read(&file).expect("bytes");
        damaged.extend_from_slice(b"{}\n[1]\n\xff\xfe\nnull\n{\"when_unix_ms\":-1}\n{\"half");
        fs::write(&file, &damaged).expect("written");
        write_record(&store, &measured(2.0, 2)).expect("written");
        assert_eq!(times(&read(&store, root)), [2.0, 1.0]);

        fs::write(&file, vec![b'x'; 3 << 20]).expect("written");
        write_record(&store, &measured(3.0, 3)).expect("written");
        assert_eq!(times(&read(&store, root)), [3.0]);
        assert!(fs::metadata(&file).expect("there").len() < 1000);
    }

    #[test]
    fn damaged_costs_are_ignored() {
        let (_folder, store) = store();
        let root = Path::new("/nowhere/project");
        write_record(&store, &measured(1.0, 1)).expect("written");
        let file = runs_in(&store.workspace_state(root)).join("1.json");
        let whole = fs::read(&file).expect("bytes");
        assert!(run(&store, root, 1).is_some());
        let half = whole.get(..whole.len() / 2).expect("half of it");
        let deep = "[".repeat(100_000);
        for text in [half, b"", b"\xff", b"{}", b"{\"run\": 3}", deep.as_bytes()] {
            fs::write(&file, text).expect("written");
            assert!(run(&store, root, 1).is_none());
        }
        fs::write(&file, vec![b' '; 2 << 20]).expect("written");
        assert!(run(&store, root, 1).is_none());
    }

    #[test]
    fn changes_since_the_previous_run() {
        let (_folder, store) = store();
        let root = Path::new("/nowhere/project");
        write_record(&store, &measured(1.0, 1)).expect("written");
        write_record(&store, &measured(2.0, 2)).expect("written");
        let changes = |when| since(&store, root, &measured(2.0, when).profile, when);
        assert!(changes(2).last.is_some() && changes(2).head.is_none());
        assert!(changes(1).last.is_none());
        let profiled = with_changes(&store, measured(2.0, 2));
        assert!(profiled.profile.since.as_ref().is_some_and(|since| since.last.is_some()));
    }

    /// Creates a measurement of a project's `train.py` with this text.
    fn measured_text(root: &Path, text: &str, when: u64) -> Profiled {
        let mut profiled = measured(when as f64, when);
        let facts = FileFacts { path: "train.py".to_owned(), fingerprint: fingerprint(text) };
        Arc::make_mut(&mut profiled.profile).files = vec![facts];
        profiled.files = vec![Some(root.join("train.py"))];
        profiled.root = root.to_owned();
        profiled
    }

    #[test]
    fn changes_since_the_run_that_matches_head() {
        let Some((folder, project)) = repository("a = 1\n") else { return };
        let (_store, store) = store();
        let head_of = |when| {
            let measured = measured_text(&project, "a = 4\n", when);
            let since = since(&store, &project, &measured.profile, when);
            assert_eq!(since.head.is_some(), since.head_unix_ms.is_some());
            (since.last.is_some(), since.head_unix_ms)
        };
        // A run of the text in HEAD.
        write_record(&store, &measured_text(&project, "a = 1\n", 1)).expect("written");
        write_record(&store, &measured_text(&project, "a = 3\n", 2)).expect("written");
        assert_eq!(head_of(2), (true, Some(1)));
        // The text in HEAD has not run yet.
        fs::write(project.join("train.py"), "a = 2\n").expect("written");
        assert!(git(folder.path(), &["commit", "-q", "-a", "-m", "y"]));
        write_record(&store, &measured_text(&project, "a = 4\n", 3)).expect("written");
        assert_eq!(head_of(3), (true, None));
        // A text that ran before it was committed matches the commit.
        fs::write(project.join("train.py"), "a = 3\n").expect("written");
        assert!(git(folder.path(), &["commit", "-q", "-a", "-m", "z"]));
        write_record(&store, &measured_text(&project, "a = 4\n", 4)).expect("written");
        assert_eq!(head_of(4), (true, Some(2)));
        let runs = read(&store, &project);
        let commit = git::Commit::named(&project, "HEAD").expect("a commit");
        let profiled = with_changes(&store, measured_text(&project, "a = 4\n", 4));
        let shown = PanelHistory::of(Some(&store), &profiled, 1);
        assert_eq!(shown.head.map(|run| run.time_ns), Some(2e6));
        let found = of_commit(&store, &project, runs.iter(), &commit);
        assert_eq!(found.map(|run| (run.when_unix_ms, run.clean)), Some((2, false)));
    }

    #[test]
    fn a_measurement_comes_before_earlier_runs() {
        let (_folder, store) = store();
        for number in 1..=3 {
            write_record(&store, &measured(number as f64, number)).expect("written");
        }
        let PanelHistory { runs, last, head } =
            PanelHistory::of(Some(&store), &measured(2.0, 2), 7);
        assert_eq!(times(&runs), [2.0, 1.0]);
        assert_eq!((runs[0].generation, runs[1].generation), (Some(7), None));
        assert_eq!((last.map(|run| run.time_ns), head), (Some(1e6), None));
        // A measurement that is not in the history gets its own entry.
        assert_eq!(
            times(&PanelHistory::of(Some(&store), &measured(9.0, 9), 8).runs),
            [9.0, 3.0, 2.0, 1.0]
        );
        assert_eq!(times(&PanelHistory::of(None, &measured(9.0, 9), 8).runs), [9.0]);
    }
}
