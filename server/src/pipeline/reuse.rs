//! Reuses the newest recording if running the program would measure the same: same program,
//! arguments, configuration and Python, and no change in the project since.

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
use crate::walk;

/// The file in a recording's folder that says what was recorded.
const FILE: &str = "reuse.json";
const VERSION: u32 = 1;
/// Older recordings are not reused, because drivers, data and the machine change.
const AGE_LIMIT: Duration = Duration::from_secs(60 * 60);
/// Extensions of files that may change what a program does. Data sets have too many files to check.
const TEXTS: [&str; 10] = ["py", "pyi", "yaml", "yml", "json", "toml", "cfg", "ini", "sh", "txt"];
/// If a project has more files, or checking them takes longer, its program runs again.
const FILE_LIMIT: usize = 20_000;
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// Variables of the user's environment that change how PyTorch runs.
const VARIABLES: [&str; 9] =
    ["CUDA_", "HIP_", "GOMP_", "KMP_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TORCH"];

#[derive(Deserialize, Serialize)]
struct Key {
    version: u32,
    /// A hash of the request.
    request: String,
    /// When the run started, in milliseconds since 1970.
    began_unix_ms: u64,
}

/// Stores what was recorded. Without this file, a recording is not reused.
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
    /// Returns the newest recording of a plan, with its age, or `None` if the program has to run.
    pub(crate) async fn reusable(&self, plan: &Plan) -> Option<(Profiled, Duration)> {
        // A launcher may start processes on other machines, whose files cannot be checked.
        if plan.launched_by.is_some() {
            return None;
        }
        let (store, root, wanted) = (self.store.clone(), plan.root.clone(), self.key_of(plan));
        let found = blocking(move || {
            let folder = store.newest_recording(&root)?;
            let key: Key = serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()?;
            let started_at = SystemTime::UNIX_EPOCH + Duration::from_millis(key.began_unix_ms);
            let age = started_at.elapsed().ok().filter(|age| *age <= AGE_LIMIT)?;
            if key.version != VERSION || key.request != wanted || changed_since(&root, started_at) {
                return None;
            }
            let profiled = measured(&root, &folder).ok()?;
            is_text_unchanged(&profiled).then(|| (history::with_changes(&store, profiled), age))
        });
        found.await.ok().flatten()
    }

    /// Returns a hash of everything that determines the result of a plan's run, except the texts.
    pub(super) fn key_of(&self, plan: &Plan) -> String {
        let mut variables: Vec<_> = self.system.variables.iter().filter(is_for_torch).collect();
        variables.sort_unstable();
        let candidates = interpreter::candidates(&plan.search, &self.system);
        let request = plan.run_request(Default::default());
        let described =
            format!("{} {request:?} {candidates:?} {variables:?}", env!("CARGO_PKG_VERSION"));
        let mut hasher = fnv::FnvHasher::default();
        hasher.write(described.as_bytes());
        format!("{:016x}", hasher.finish())
    }
}

fn is_for_torch((name, _): &(&std::ffi::OsString, &std::ffi::OsString)) -> bool {
    let name = name.to_string_lossy();
    VARIABLES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether a text of the project was written since `began`. Returns true if that cannot be
/// determined.
fn changed_since(root: &Path, began: SystemTime) -> bool {
    let started = Instant::now();
    let walk = walk::walk(root, |_| true).build();
    for (count, entry) in walk.flatten().enumerate() {
        if count >= FILE_LIMIT || started.elapsed() > TIME_LIMIT {
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

/// Returns whether every text that ran is unchanged on disk, inside or outside the project.
fn is_text_unchanged(profiled: &Profiled) -> bool {
    let files = profiled.profile.files.iter().zip(&profiled.files);
    files.into_iter().all(|(file, path)| {
        // The key covers the Python, and with it the files of its environment.
        let Some(path) = path else { return true };
        !file.fingerprint.is_empty()
            && text_on_disk(path).is_some_and(|text| fingerprint(&text) == file.fingerprint)
    })
}
