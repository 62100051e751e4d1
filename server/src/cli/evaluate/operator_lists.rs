//! Operator lists of models, created once and cached: `evaluate-lists/VERSIONS/HASH.json`, or
//! `HASH.why` if a model cannot be listed.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fnv::FnvHasher;
use futures_util::future::join_all;
use ridgeline_analysis::operators::op_list::{MAX_BYTES, OpList};
use ridgeline_evaluate::case::ListSource;
use ridgeline_evaluate::list_request::ListRequest;
use ridgeline_gpu::agent::model_lister::{ListError, ModelLister, Versions};

use crate::store::{StoreError, write_atomic};

/// The folder in the cache.
const FOLDER: &str = "evaluate-lists";
/// Incremented when the list for the same request changes.
const GENERATION: u32 = 2;
/// The number of folders of other versions that are kept.
const MAX_FOLDERS: usize = 2;
/// The time limit for one model.
const MODEL_LIMIT: Duration = Duration::from_secs(120);
/// The address space limit for one model. Weights are never written, so they use no physical
/// memory.
const MODEL_MEMORY_BYTES: u64 = 48 << 30;
/// The maximum number of processes. Each loads torch, so more may not fit into a small machine's
/// memory.
const MAX_LISTERS: usize = 8;
/// The maximum number of restarts of a lister that died.
const MAX_STARTS: usize = 20;

/// The created lists, and the reasons for missing ones.
pub(super) struct OperatorLists {
    folder: Option<PathBuf>,
    versions: Option<Versions>,
    /// Why a request has no list. Every other request has a file.
    failures: HashMap<ListRequest, String>,
    /// Why there are no lists at all.
    without: Option<String>,
}

impl ListSource for OperatorLists {
    fn list(&self, request: &ListRequest) -> Result<OpList, String> {
        if let Some(why) = self.without.as_ref().or_else(|| self.failures.get(request)) {
            return Err(why.clone());
        }
        let folder = self.folder.as_deref().ok_or("there is no list")?;
        let bytes = bounded(&folder.join(format!("{}.json", key(request))))?;
        OpList::parse(&bytes).map_err(|error| error.to_string())
    }
}

fn bounded(file: &Path) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", file.display());
    if fs::metadata(file).map_err(wrong)?.len() > MAX_BYTES as u64 {
        return Err("its list is too large".to_owned());
    }
    fs::read(file).map_err(wrong)
}

impl OperatorLists {
    /// Creates a source without lists, for this reason.
    pub(super) fn none(why: &str) -> OperatorLists {
        OperatorLists {
            folder: None,
            versions: None,
            failures: HashMap::new(),
            without: Some(why.to_owned()),
        }
    }

    /// Provides the lists of all these models. Those missing from the cache are created by as many
    /// processes as there are cores. `progress` receives the number of finished lists and the
    /// number of missing ones.
    pub(super) async fn make(
        python: &Path,
        cache: &Path,
        wanted: &[ListRequest],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> OperatorLists {
        let (first, versions) = match ModelLister::start(python, cache).await {
            Ok(started) => started,
            Err(error) => return OperatorLists::none(&error.to_string()),
        };
        let folder = cache.join(FOLDER).join(folder_name(&versions));
        if let Err(error) = fs::create_dir_all(&folder) {
            return OperatorLists::none(&format!("{}: {error}", folder.display()));
        }
        forget_others(&cache.join(FOLDER), &folder);
        let work = Work {
            python,
            cache,
            folder: &folder,
            missing: wanted.iter().filter(|request| !is_there(&folder, request)).collect(),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            failures: Mutex::default(),
            has_timm: versions.timm.is_some(),
            progress,
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let listers = cores.min(MAX_LISTERS).min(work.missing.len());
        let mut first = Some(first);
        join_all((0..listers).map(|_| work.take_turns(first.take()))).await;
        let mut failures = work.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        for request in wanted {
            if let Ok(why) = fs::read_to_string(folder.join(format!("{}.why", key(request)))) {
                failures.entry(request.clone()).or_insert(why);
            }
        }
        OperatorLists { folder: Some(folder), versions: Some(versions), failures, without: None }
    }

    /// Copies the lists into a folder of the user, with readable names.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn copy_to(
        &self,
        target: &Path,
        wanted: &[ListRequest],
    ) -> Result<usize, StoreError> {
        let Some(folder) = &self.folder else { return Ok(0) };
        let mut copied = 0;
        for request in wanted {
            let list = folder.join(format!("{}.json", key(request)));
            if !list.is_file() {
                continue;
            }
            let file = target.join(request.file_name());
            let parent = file.parent().unwrap_or(target);
            fs::create_dir_all(parent).map_err(|error| StoreError::at(parent, error))?;
            fs::copy(&list, &file).map_err(|error| StoreError::at(&file, error))?;
            copied += 1;
        }
        Ok(copied)
    }

    /// The package versions that created the lists, for the report.
    pub(super) fn versions(&self) -> Option<BTreeMap<String, Option<String>>> {
        let versions = self.versions.as_ref()?;
        Some(BTreeMap::from([
            ("torch".to_owned(), Some(versions.torch.clone())),
            ("timm".to_owned(), versions.timm.clone()),
        ]))
    }

    /// What to install, if a package needed by some cases is missing.
    pub(super) fn missing(&self) -> Option<String> {
        if let Some(why) = &self.without {
            return Some(format!(
                "no operators can be listed: {why}. `--python FILE` names a Python with torch and timm"
            ));
        }
        let needed_timm = self.failures.values().any(|why| why == WITHOUT_TIMM);
        needed_timm.then(|| {
            "the models of timm cannot be listed without it: `python -m pip install timm` in the \
             Python that `--python FILE` names"
                .to_owned()
        })
    }
}

const WITHOUT_TIMM: &str = "timm is not installed";

struct Work<'a> {
    python: &'a Path,
    cache: &'a Path,
    folder: &'a Path,
    missing: Vec<&'a ListRequest>,
    next: AtomicUsize,
    done: AtomicUsize,
    failures: Mutex<HashMap<ListRequest, String>>,
    has_timm: bool,
    progress: &'a (dyn Fn(usize, usize) + Sync),
}

impl Work<'_> {
    /// Lists models until none is left, with one lister.
    async fn take_turns(&self, mut lister: Option<ModelLister>) {
        let mut starts = 0;
        while let Some(request) = self.missing.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = self.one(request, &mut lister, &mut starts).await {
                let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.insert((*request).clone(), why);
            }
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            (self.progress)(done, self.missing.len());
        }
    }

    async fn one(
        &self,
        request: &ListRequest,
        lister: &mut Option<ModelLister>,
        starts: &mut usize,
    ) -> Result<(), String> {
        if request.needs_timm() && !self.has_timm {
            return Err(WITHOUT_TIMM.to_owned());
        }
        if lister.is_none() {
            *starts += 1;
            if *starts > MAX_STARTS {
                return Err("the lister of models ended too often".to_owned());
            }
            let started = ModelLister::start(self.python, self.cache).await;
            *lister = Some(started.map_err(|error| error.to_string())?.0);
        }
        let Some(running) = lister else { return Err(ListError::Ended.to_string()) };
        let message = serde_json::to_value(request).map_err(|error| error.to_string())?;
        let out = self.folder.join(format!("{}.json", key(request)));
        match running.list(&message, &out, MODEL_LIMIT, MODEL_MEMORY_BYTES).await {
            Ok(()) => Ok(()),
            Err(ListError::Model(why)) => {
                // The same versions would fail the same way again.
                let file = self.folder.join(format!("{}.why", key(request)));
                if let Err(error) = write_atomic(&file, why.as_bytes()) {
                    tracing::warn!("{error}");
                }
                Err(why)
            }
            Err(error) => {
                if !matches!(error, ListError::TooSlow(_)) {
                    *lister = None;
                }
                Err(error.to_string())
            }
        }
    }
}

fn is_there(folder: &Path, request: &ListRequest) -> bool {
    let key = key(request);
    ["json", "why"].iter().any(|ending| folder.join(format!("{key}.{ending}")).is_file())
}

/// The file name of a request. Hash collisions are practically impossible at this length.
fn key(request: &ListRequest) -> String {
    // Fields are in declaration order, so the same request always has the same text.
    let text = serde_json::to_vec(request).unwrap_or_default();
    let half = |salt: u8| {
        let mut hasher = FnvHasher::default();
        hasher.write_u8(salt);
        hasher.write(&text);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(0), half(1))
}

fn folder_name(versions: &Versions) -> String {
    let plain = |version: &str| -> String {
        version.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '.').collect()
    };
    let timm = versions.timm.as_deref().map_or_else(|| "none".to_owned(), plain);
    format!("{GENERATION}-torch{}-timm{timm}", plain(&versions.torch))
}

/// Removes all but the newest folders of other versions.
fn forget_others(parent: &Path, own: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let mut others: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path != own)
        .map(|path| (fs::metadata(&path).and_then(|found| found.modified()).ok(), path))
        .collect();
    others.sort();
    let extra = others.len().saturating_sub(MAX_FOLDERS);
    for (_, path) in others.into_iter().take(extra) {
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!("{}: {error}", path.display());
        }
    }
}
