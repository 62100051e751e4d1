//! Which program is the training run of a project, where its configuration does not say.
//!
//! The project's Python files are read (never run) and judged by `analysis::source`, and so are the files
//! that hold commands: READMEs, Makefiles, shell scripts, `launch.json`, entry points. The walk is
//! bounded in files, bytes, depth and time, respects `.gitignore`, and keeps what it learnt about
//! files that did not change.

mod choose;
mod commands;
mod import_path;
mod imports;
mod run;
mod standard_library;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use ridgeline_analysis::commands::{LONGEST_FILE, Written};
use ridgeline_analysis::python::{ProgramOutline, SourceIndex, TrainingScript, cpu_option};

use crate::config;

pub(crate) use import_path::ImportPath;
pub(crate) use run::{Run, with_arguments};

use commands::{Described, Kind};

/// At most so many Python files are looked at.
const MAX_FILES: usize = 2_000;
/// A larger file is no script that a person wrote, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// At most so much text is looked at, in bytes.
const MAX_TOTAL_BYTES: u64 = 32 << 20;
/// At most so many folders deep.
const MAX_DEPTH: usize = 12;
/// At most so many files that hold commands.
const MAX_COMMAND_FILES: usize = 200;
/// Those are not looked for deeper.
const MAX_COMMAND_DEPTH: usize = 4;
/// At most so long.
const MAX_TIME: Duration = Duration::from_secs(3);
/// Folders that hold other people's code, besides those that git ignores.
const FOREIGN_FOLDERS: [&str; 6] =
    ["site-packages", "node_modules", "__pycache__", "venv", "env", "build"];

/// What a project can be run by. Paths are relative to its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This training program.
    Run(Run),
    /// This Skyline or DeepView provider file.
    Provider(PathBuf),
    /// Several fit.
    Several {
        /// Likeliest first.
        candidates: Vec<Candidate>,
        /// The first one is likelier than the second.
        leads: bool,
    },
    /// Nothing looks like training.
    Nothing {
        /// How many Python files were looked at.
        looked_at: usize,
        /// Whether the walk came to one of its bounds.
        cut_short: bool,
        /// Files that run something, the likeliest first.
        likely: Vec<PathBuf>,
    },
}

/// A program that may be the one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// How it is started.
    pub run: Run,
    /// Why it looks like training, in a person's words.
    pub reasons: Vec<String>,
}

/// Looks for training programs and remembers what it learnt, by root.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    facts: HashMap<PathBuf, (Version, Arc<Facts>)>,
    written: HashMap<PathBuf, (Version, Arc<Vec<Written>>)>,
}

/// A file's size and time of change: when neither moved, it was not written.
type Version = (u64, Option<SystemTime>);

/// The Python files of a project, by their paths from its root.
#[derive(Debug, Default)]
struct Files(BTreeMap<PathBuf, Arc<Facts>>);

impl Deref for Files {
    type Target = BTreeMap<PathBuf, Arc<Facts>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What one file says.
#[derive(Clone, Debug, Default)]
struct Facts {
    judged: TrainingScript,
    outline: ProgramOutline,
    /// Arguments that have the program use the CPU, and the line that declares them, where its default is a
    /// GPU and this machine has none.
    cpu_option: Option<(Vec<String>, u32)>,
}

/// What a walk found.
struct Scan {
    files: Files,
    described: Vec<Described>,
    cut_short: bool,
}

/// The folder that a project's paths are relative to, for a file: the nearest one above it, not
/// above `limit`, that says so by a configuration or a package's metadata. Else `limit`, or without
/// one the file's own folder.
pub(crate) fn project_root(file: &Path, limit: Option<&Path>) -> PathBuf {
    let own = file.parent().unwrap_or(file);
    marked_root(file, limit).unwrap_or_else(|| limit.unwrap_or(own).to_owned())
}

/// The nearest folder above a file, not above `limit`, with a configuration or a package's metadata.
pub(crate) fn marked_root(file: &Path, limit: Option<&Path>) -> Option<PathBuf> {
    const MARKS: [&str; 4] = [config::FILE_NAME, config::PYPROJECT, "setup.py", "setup.cfg"];
    let own = file.parent().unwrap_or(file);
    for folder in own.ancestors() {
        if MARKS.iter().any(|mark| folder.join(mark).is_file()) {
            return Some(folder.to_owned());
        }
        if limit == Some(folder) {
            break;
        }
    }
    None
}

impl Discovery {
    /// Finds the run of the project at `root`. `opened` is the file that the person saved, relative
    /// to the root; `remembered` what they chose before, as [`Run::shown`] or as a path.
    pub(crate) fn find(
        &mut self,
        root: &Path,
        opened: Option<&Path>,
        remembered: Option<&str>,
    ) -> Found {
        let opened = opened.and_then(normal);
        let Scan { files, described, cut_short } = self.scan(root, opened.as_deref());
        choose::choose(&files, &described, opened.as_deref(), remembered, cut_short)
    }

    /// How the Python file at `path`, relative to the root, has to be started for its imports to be found.
    pub(crate) fn import_path(&mut self, root: &Path, path: &Path) -> ImportPath {
        let Some(path) = normal(path) else { return ImportPath::default() };
        let Scan { files, .. } = self.scan(root, Some(&path));
        import_path::import_path(root, &files, &path)
    }

    /// The Python file of a module, where `python -m` is typed in `folder`, both relative to the root.
    pub(crate) fn module_file(
        &mut self,
        root: &Path,
        folder: &Path,
        name: &str,
    ) -> Option<PathBuf> {
        let Scan { files, .. } = self.scan(root, None);
        commands::module(&files, &normal(folder)?, name)
    }

    /// Whether a file is a provider, whatever else the project has.
    pub(crate) fn is_provider(&mut self, file: &Path) -> bool {
        self.read(file).is_some_and(|facts| facts.judged.provider)
    }

    fn scan(&mut self, root: &Path, opened: Option<&Path>) -> Scan {
        let began = Instant::now();
        let mut files = BTreeMap::new();
        // A hidden folder, which the walk leaves out.
        let launch = Path::new(".vscode/launch.json");
        let mut with_commands = vec![(launch.to_owned(), Kind::LaunchJson)];
        let mut bytes = 0_u64;
        // The opened file counts even where git ignores it or the walk ends before it.
        if let Some(opened) = opened
            && let Some(facts) = self.read(&root.join(opened))
        {
            files.insert(opened.to_owned(), facts);
        }
        let walk = ignore::WalkBuilder::new(root)
            .max_depth(Some(MAX_DEPTH))
            .follow_links(false)
            .require_git(false)
            .filter_entry(|entry| !is_foreign(entry.path()))
            .build();
        let mut cut_short = false;
        for entry in walk.flatten() {
            if files.len() >= MAX_FILES || bytes > MAX_TOTAL_BYTES || began.elapsed() > MAX_TIME {
                cut_short = true;
                break;
            }
            if entry.depth() <= MAX_COMMAND_DEPTH
                && with_commands.len() < MAX_COMMAND_FILES
                && let Some(kind) = Kind::of(entry.path())
                && let Ok(path) = entry.path().strip_prefix(root)
            {
                with_commands.push((path.to_owned(), kind));
                continue;
            }
            let is_python = entry.path().extension().is_some_and(|extension| extension == "py");
            if !is_python || !entry.file_type().is_some_and(|kind| kind.is_file()) {
                continue;
            }
            let Ok(path) = entry.path().strip_prefix(root) else { continue };
            if files.contains_key(path) {
                continue;
            }
            if let Some(facts) = self.read(entry.path()) {
                bytes = bytes.saturating_add(entry.metadata().map_or(0, |metadata| metadata.len()));
                files.insert(path.to_owned(), facts);
            }
        }
        // What was learnt about files that are gone is of no use.
        self.facts.retain(|path, _| {
            path.strip_prefix(root).map_or(true, |relative| files.contains_key(relative))
        });
        let files = Files(files);
        with_commands.sort_by(|a, b| {
            (a.1, a.0.components().count(), &a.0).cmp(&(b.1, b.0.components().count(), &b.0))
        });
        let has_gpu = has_gpu();
        let mut described = Vec::new();
        for (file, kind) in &with_commands {
            for written in self.commands(&root.join(file), *kind).iter() {
                described.extend(commands::described(root, &files, file, *kind, written, has_gpu));
            }
        }
        self.written.retain(|path, _| {
            let relative = path.strip_prefix(root);
            relative.map_or(true, |it| with_commands.iter().any(|(path, _)| path == it))
        });
        Scan { files, described, cut_short }
    }

    fn commands(&mut self, full: &Path, kind: Kind) -> Arc<Vec<Written>> {
        let metadata = full.symlink_metadata().ok();
        let readable = |it: &std::fs::Metadata| it.is_file() && it.len() <= LONGEST_FILE as u64;
        let Some(metadata) = metadata.filter(readable) else { return Arc::default() };
        let version = (metadata.len(), metadata.modified().ok());
        if let Some((known, written)) = self.written.get(full)
            && *known == version
        {
            return Arc::clone(written);
        }
        let mut bytes = Vec::new();
        let read = File::open(full).map(|file| file.take(LONGEST_FILE as u64));
        if read.and_then(|mut file| file.read_to_end(&mut bytes)).is_err() {
            return Arc::default();
        }
        let written = Arc::new(kind.read(&String::from_utf8_lossy(&bytes)));
        self.written.insert(full.to_owned(), (version, Arc::clone(&written)));
        written
    }

    fn read(&mut self, full: &Path) -> Option<Arc<Facts>> {
        let metadata = full.metadata().ok()?;
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
            return None;
        }
        let version = (metadata.len(), metadata.modified().ok());
        if let Some((known, facts)) = self.facts.get(full)
            && *known == version
        {
            return Some(Arc::clone(facts));
        }
        let mut bytes = Vec::new();
        File::open(full).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        let index = SourceIndex::new(String::from_utf8_lossy(&bytes).as_ref());
        let outline = ProgramOutline::of(&index);
        let cpu_option = if has_gpu() { None } else { cpu_option(&index) };
        let facts = Arc::new(Facts { judged: outline.judge(), outline, cpu_option });
        self.facts.insert(full.to_owned(), (version, Arc::clone(&facts)));
        Some(facts)
    }
}

fn is_foreign(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    FOREIGN_FOLDERS.iter().any(|foreign| name == *foreign) || path.join("pyvenv.cfg").is_file()
}

/// The path without `.`, where it neither is absolute nor leads out.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => result.push(name),
            _ => return None,
        }
    }
    Some(result)
}

/// Whether this machine has a GPU that PyTorch may use, as far as files say. Commands that ask for one are
/// of no use without. It is looked up once, as each of thousands of files asks.
fn has_gpu() -> bool {
    static HAS_GPU: LazyLock<bool> = LazyLock::new(|| {
        !cfg!(target_os = "linux")
            || ["/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg"]
                .iter()
                .any(|device| Path::new(device).exists())
    });
    *HAS_GPU
}
