//! Using the newest recording again, where running the program would measure the same: same program,
//! arguments, configuration and Python, and nothing changed in the project since.

use std::ffi::OsStr;
use std::fs;
use std::hash::Hasher as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ridgeline_analysis::python::fingerprint;
use ridgeline_gpu::interpreter;
use serde::{Deserialize, Serialize};

use super::{Pipeline, Plan, blocking, measured};
use crate::documents::text_on_disk;
use crate::history;
use crate::profiler::Profiled;
use crate::store::write_atomic;

/// Beside a recording: what it is a recording of.
const FILE: &str = "reuse.json";
const VERSION: u32 = 1;
/// An older recording is not reused: drivers, data and the machine change.
const OLDEST: Duration = Duration::from_secs(60 * 60);
/// Files whose change may change what a program does; data sets have too many files to look at.
const TEXTS: [&str; 10] = ["py", "pyi", "yaml", "yml", "json", "toml", "cfg", "ini", "sh", "txt"];
/// Where a project has more files, or they take longer to look at, its program runs again.
const MOST_FILES: usize = 20_000;
const MOST_TIME: Duration = Duration::from_secs(1);
/// Variables of the person's own environment that change what PyTorch does.
const VARIABLES: [&str; 9] =
    ["CUDA_", "HIP_", "GOMP_", "KMP_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TORCH"];

#[derive(Deserialize, Serialize)]
struct Key {
    version: u32,
    /// A hash of everything that was asked for.
    request: String,
    /// When the run began, in milliseconds since 1970.
    began_unix_ms: u64,
}

/// Notes beside a finished recording what it is a recording of. Without the note it is not used again.
pub(super) fn note(folder: &Path, request: &str, began: SystemTime) {
    let began_unix_ms =
        began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let key = Key {
        version: VERSION,
        request: request.to_owned(),
        began_unix_ms: u64::try_from(began_unix_ms).unwrap_or(u64::MAX),
    };
    let json = serde_json::to_vec(&key).unwrap_or_default();
    if let Err(error) = write_atomic(&folder.join(FILE), &json) {
        tracing::debug!("a recording cannot be used again: {error}");
    }
}

impl Pipeline {
    /// The newest recording of a plan, with its age; nothing where the program has to run.
    pub(crate) async fn reusable(&self, plan: &Plan) -> Option<(Profiled, Duration)> {
        // A launcher may start processes on other machines, whose files are not looked at.
        if plan.launched_by.is_some() {
            return None;
        }
        let (store, root, wanted) = (self.store.clone(), plan.root.clone(), self.key_of(plan));
        let found = blocking(move || {
            let folder = store.newest_recording(&root)?;
            let key: Key = serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()?;
            let began = SystemTime::UNIX_EPOCH + Duration::from_millis(key.began_unix_ms);
            let age = began.elapsed().ok().filter(|age| *age <= OLDEST)?;
            if key.version != VERSION || key.request != wanted || changed_since(&root, began) {
                return None;
            }
            let profiled = measured(&root, &folder).ok()?;
            has_todays_texts(&profiled).then(|| (history::with_changes(&store, profiled), age))
        });
        found.await.ok().flatten()
    }

    /// A hash of everything that decides what a plan's run measures, but for the texts.
    pub(super) fn key_of(&self, plan: &Plan) -> String {
        let mut variables: Vec<_> =
            self.surroundings.variables.iter().filter(is_for_torch).collect();
        variables.sort_unstable();
        let candidates = interpreter::candidates(&plan.search, &self.surroundings);
        let request = plan.run_request(Default::default());
        let asked =
            format!("{} {request:?} {candidates:?} {variables:?}", env!("CARGO_PKG_VERSION"));
        let mut hasher = fnv::FnvHasher::default();
        hasher.write(asked.as_bytes());
        format!("{:016x}", hasher.finish())
    }
}

fn is_for_torch((name, _): &(&std::ffi::OsString, &std::ffi::OsString)) -> bool {
    let name = name.to_string_lossy();
    VARIABLES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a text of the project was written since, or nobody can tell.
fn changed_since(root: &Path, began: SystemTime) -> bool {
    let looking_since = Instant::now();
    let walk = ignore::WalkBuilder::new(root).follow_links(false).require_git(false).build();
    for (count, entry) in walk.flatten().enumerate() {
        if count >= MOST_FILES || looking_since.elapsed() > MOST_TIME {
            return true;
        }
        let extension = entry.path().extension().and_then(OsStr::to_str).unwrap_or_default();
        let is_text =
            entry.file_type().is_some_and(|kind| kind.is_file()) && TEXTS.contains(&extension);
        let written = || entry.metadata().ok().and_then(|it| it.modified().ok());
        if is_text && written().is_none_or(|written| written >= began) {
            return true;
        }
    }
    false
}

/// Whether every text that ran is the one on the disk, wherever it lies.
fn has_todays_texts(profiled: &Profiled) -> bool {
    let files = profiled.profile.files.iter().zip(&profiled.files);
    files.into_iter().all(|(file, path)| {
        // The key has the Python, and with it the files of its environment.
        let Some(path) = path else { return true };
        !file.fingerprint.is_empty()
            && text_on_disk(path).is_some_and(|text| fingerprint(&text) == file.fingerprint)
    })
}
