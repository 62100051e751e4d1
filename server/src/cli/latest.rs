//! The latest run of a project, for commands and tools that run nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::profile::FileId;
use ridgeline_analysis::python::{SourceIndex, fingerprint};

use super::compare::format_age;
use super::exit::{self, Failure};
use super::profile::{absolute, project_of};
use crate::documents::texts_on_disk;
use crate::notebook;
use crate::pipeline;
use crate::profiler::Profiled;
use crate::store::Store;

/// What a path names.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The project's folder, by the path that its runs are stored under.
    pub root: PathBuf,
    /// The Python file, if the path names one.
    pub file: Option<PathBuf>,
}

impl Target {
    /// A project folder or a Python file in it. Without a path it is the working directory.
    pub(super) fn of(path: Option<&Path>) -> Result<Target, Failure> {
        let named = path.unwrap_or(Path::new("."));
        let unreadable = |why: String| Failure {
            code: exit::NOTHING_TO_RUN,
            what: format!("{} cannot be read: {why}", named.display()),
            next: "Pass a project folder or a Python file".to_owned(),
        };
        let path = absolute(named)?;
        let metadata = path.metadata().map_err(|error| unreadable(error.to_string()))?;
        let root = project_of(&path);
        if metadata.is_dir() {
            return Ok(Target { root, file: None });
        }
        if path.extension().is_none_or(|ending| ending != "py") && !notebook::is_notebook(&path) {
            return Err(unreadable("it is neither a folder nor a Python file".to_owned()));
        }
        Ok(Target { root, file: Some(path) })
    }
}

/// The latest run of a project, and its files as they are now.
pub(super) struct Latest {
    pub profiled: Profiled,
    /// By the index of `profiled.profile.files`; `None` if the file is gone.
    pub texts: Vec<Option<String>>,
}

impl Latest {
    /// Reads and attributes the recording, which can take seconds.
    pub(super) fn read(store: &Store, target: &Target) -> Result<Latest, Failure> {
        let profiled = pipeline::newest(store, &target.root).map_err(|why| Failure {
            code: exit::NOTHING_TO_RUN,
            what: why,
            next: format!("Run `ridgeline profile {}` first", target.root.display()),
        })?;
        Ok(Latest::of(profiled))
    }

    pub(super) fn of(profiled: Profiled) -> Latest {
        let texts = texts_on_disk(&profiled.files);
        Latest { profiled, texts }
    }

    /// A file that has costs, and its text today. Relative paths start at the project's root.
    pub(super) fn source(&self, named: &str) -> Result<(FileId, SourceIndex), Failure> {
        let at = self.file(named)?;
        let text = self.texts.get(at).and_then(Option::as_deref);
        let text = text
            .ok_or_else(|| Failure::failed(format!("{} cannot be read", printable(named)), ""))?;
        Ok((FileId(u32::try_from(at).unwrap_or(u32::MAX)), SourceIndex::new(text)))
    }

    /// The cells of a notebook that have costs, in order, with their texts today.
    pub(super) fn cells(&self, path: &Path) -> Vec<(usize, FileId, SourceIndex)> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let notebook = real(path);
        let files = self.profiled.files.iter().zip(&self.texts).zip(0..);
        let cell = |((file, text), at): ((&Option<PathBuf>, &Option<String>), u32)| {
            let (of, number) = notebook::cell_of(file.as_deref()?)?;
            let source = SourceIndex::new(text.as_deref()?);
            (real(&of) == notebook).then_some((number, FileId(at), source))
        };
        let mut cells: Vec<_> = files.filter_map(cell).collect();
        cells.sort_by_key(|(number, ..)| *number);
        cells
    }

    /// The index of a file in the profile.
    fn file(&self, named: &str) -> Result<usize, Failure> {
        let files = &self.profiled.profile.files;
        let path = absolute(&self.profiled.root.join(named))?;
        let path = path.canonicalize().unwrap_or(path);
        let is_it = |at: &usize| {
            let real = self.profiled.files.get(*at).and_then(Option::as_ref);
            real.is_some_and(|real| {
                *real == path || real.canonicalize().is_ok_and(|real| real == path)
            })
        };
        (0..files.len()).find(is_it).ok_or_else(|| {
            let known: Vec<&str> = files.iter().map(|file| file.path.as_str()).take(20).collect();
            Failure::failed(
                format!("{} has no costs in the latest run", printable(named)),
                format!("Files with costs: {}", printable(&known.join(", "))),
            )
        })
    }

    /// What was run, when and where, and if the source has changed since.
    pub(super) fn heading(&self) -> String {
        let profile = &self.profiled.profile;
        let mut heading = "Run".to_owned();
        if let Some(when) = self.profiled.when_unix_ms {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let ago = u64::try_from(now).unwrap_or(u64::MAX).saturating_sub(when);
            let _ = write!(heading, " {when} ({} ago)", format_age(ago));
        }
        if let Some((file, line)) = profile.iteration.loop_line
            && let Some(file) = profile.files.get(file.0 as usize)
        {
            let _ = write!(heading, " of the loop at {}:{line}", printable(&file.path));
        }
        let _ = write!(heading, " on {}", printable(&profile.device.display_name()));
        let changed: Vec<&str> = profile
            .files
            .iter()
            .zip(&self.texts)
            .filter(|(file, text)| {
                let same = text.as_ref().is_some_and(|text| fingerprint(text) == file.fingerprint);
                !same && !file.fingerprint.is_empty()
            })
            .map(|(file, _)| file.path.as_str())
            .collect();
        match changed.as_slice() {
            [] => heading += "; source unchanged since",
            some => {
                let names = printable(&some.join(", ")).into_owned();
                let _ = write!(heading, "; changed since: {names}");
            }
        }
        heading + "\n"
    }
}
