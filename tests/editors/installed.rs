//! Finds installed editors and serializes the tests that use them.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An installed editor, held exclusively: an editor and a training run keep two cores busy, so
/// editor tests run one at a time.
pub(super) struct Installed {
    folder: PathBuf,
    /// The Python environment that runs the training scripts.
    pub environment: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Installed {
    /// Waits for exclusive use of these files of the editors' folder. Returns `None` if one is
    /// missing, after printing the reason. The test should then return.
    ///
    /// # Panics
    /// If a file is missing and RIDGELINE_EDITORS_REQUIRED is set.
    pub(super) fn with<T: AsRef<str>>(needed: &[T]) -> Option<Installed> {
        let found = find(needed);
        if let Err(reason) = &found {
            let required = env::var_os("RIDGELINE_EDITORS_REQUIRED").is_some();
            assert!(!required, "{reason}");
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            // Bypasses output capture, so that skipped tests are visible.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
        }
        let (folder, environment) = found.ok()?;
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Installed { folder, environment, _turn: turn })
    }

    /// Returns a file of the editors' folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn find<T: AsRef<str>>(needed: &[T]) -> Result<(PathBuf, PathBuf), String> {
    let folder = env::var_os("RIDGELINE_EDITORS").map(PathBuf::from);
    let folder = folder.ok_or("RIDGELINE_EDITORS names no folder made by tests/editors/setup")?;
    for name in needed.iter().map(AsRef::as_ref) {
        let whole = Path::new(name).iter().next().map(|part| folder.join(part).join(".whole"));
        if !whole.is_some_and(|mark| mark.exists()) || !folder.join(name).exists() {
            return Err(format!("there is no {}", folder.join(name).display()));
        }
    }
    let python = env::var_os("RIDGELINE_TEST_PYTHON").map(PathBuf::from);
    let python = python.ok_or("RIDGELINE_TEST_PYTHON names no Python with torch")?;
    let environment = python.parent().and_then(Path::parent);
    let environment = environment.filter(|folder| folder.join("pyvenv.cfg").exists());
    let environment = environment.ok_or("RIDGELINE_TEST_PYTHON is not in a virtual environment")?;
    Ok((folder, environment.to_owned()))
}
