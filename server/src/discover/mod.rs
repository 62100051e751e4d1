//! Finds the training run of a project whose configuration does not name it.
//!
//! The project's Python files are read (never run) and assessed by `analysis::source`. Files with
//! commands are read as well: READMEs, Makefiles, shell scripts, `launch.json`, entry points. The
//! walk is limited in files, bytes, depth and time, respects `.gitignore`, and caches the facts of
//! unchanged files.

mod choose;
mod commands;
mod gpu_options;
mod import_path;
mod imports;
mod listing;
mod run;
mod standard_library;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use ridgeline_analysis::commands::{
    FoundCommand, InstalledCommands, MAX_COMMAND_FILE_BYTES, Program, installed,
};
use ridgeline_analysis::python::{
    ProgramOutline, SourceIndex, Subcommand, TrainingScript, cpu_option, training_subcommand,
};

use crate::config;
use crate::documents::SIZE_LIMIT;
use crate::notebook::{self, is_notebook};

pub(crate) use import_path::ImportPath;
pub(crate) use run::{Run, with_arguments};

use commands::{Described, Kind};
use listing::Listings;

/// The maximum number of Python files.
const MAX_FILES: usize = 2_000;
/// The maximum size of a file, in bytes. Larger files are not written by hand.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The maximum size of all files together, in bytes.
const MAX_TOTAL_BYTES: u64 = 32 << 20;
/// The maximum number of files with commands.
const MAX_COMMAND_FILES: usize = 200;
/// The maximum depth of files with commands.
const MAX_COMMAND_DEPTH: usize = 4;
/// The maximum number of commands of a program in a message.
const MAX_SHOWN_COMMANDS: usize = 2;
/// The maximum time for reading the Python files.
const MAX_TIME: Duration = Duration::from_secs(3);

/// The result of a search. Paths are relative to the project's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SearchResult {
    /// A training program.
    Run(Run),
    /// A Skyline or DeepView provider file.
    Provider(PathBuf),
    /// Several programs fit.
    Several {
        /// The candidates, likeliest first.
        candidates: Vec<Candidate>,
        /// Whether the first is likelier than the second.
        leads: bool,
        /// Whether they train. Otherwise they only run something with PyTorch.
        trains: bool,
    },
    /// No program looks like training.
    Nothing {
        /// The number of inspected Python files.
        looked_at: usize,
        /// Whether the walk reached a limit.
        cut_short: bool,
        /// Files that run something, likeliest first.
        likely: Vec<PathBuf>,
    },
}

/// A possible training program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub run: Run,
    /// The reasons why it looks like training, for display.
    pub reasons: Vec<String>,
}

/// Searches for training programs, with a cache of file facts by root.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    listings: Listings,
    facts: HashMap<PathBuf, (Version, Arc<Facts>)>,
    commands: HashMap<PathBuf, (Version, Arc<Vec<FoundCommand>>)>,
    /// The commands that the packages of the last searched project install.
    installed: InstalledCommands,
}

/// A file's size and modification time. If neither changed, the file is unchanged.
type Version = (u64, Option<SystemTime>);

/// The Python files of a project, by path relative to its root.
#[derive(Debug, Default)]
struct Files {
    facts: BTreeMap<PathBuf, Arc<Facts>>,
    /// The same by the bytes of the path. A search resolves millions of imports, and comparing paths
    /// component by component takes most of its time.
    by_name: HashMap<OsString, Arc<Facts>>,
    resolved: RefCell<imports::Resolved>,
    /// Folders below the root with a license of their own: copies of other projects.
    copies: BTreeSet<PathBuf>,
}

impl Files {
    fn new(facts: BTreeMap<PathBuf, Arc<Facts>>, copies: BTreeSet<PathBuf>) -> Self {
        let by_name = facts
            .iter()
            .map(|(path, facts)| (path.clone().into_os_string(), Arc::clone(facts)))
            .collect();
        Files { facts, by_name, resolved: RefCell::default(), copies }
    }

    /// The facts of a file. The path has no `.` and no repeated separators.
    fn get(&self, path: &Path) -> Option<&Arc<Facts>> {
        self.by_name.get(path.as_os_str())
    }

    fn contains_key(&self, path: &Path) -> bool {
        self.by_name.contains_key(path.as_os_str())
    }

    /// Whether a file belongs to a copy of another project.
    fn is_copied(&self, path: &Path) -> bool {
        path.ancestors().any(|folder| self.copies.contains(folder))
    }
}

impl Deref for Files {
    type Target = BTreeMap<PathBuf, Arc<Facts>>;

    fn deref(&self) -> &Self::Target {
        &self.facts
    }
}

/// The facts from one file.
#[derive(Clone, Debug, Default)]
struct Facts {
    training: TrainingScript,
    outline: ProgramOutline,
    /// Arguments that select the CPU, and the line that declares them. Only set if the program's
    /// default is a GPU and this machine has none.
    cpu_option: Option<(Vec<String>, u32)>,
    training_subcommand: Option<Subcommand>,
}

/// The result of a walk.
struct Scan {
    files: Files,
    described: Vec<Described>,
    cut_short: bool,
}

/// The root of the project that contains a file: the nearest folder above it, up to `limit`, with a
/// configuration or package metadata. Otherwise `limit`, or without one the file's folder.
pub(crate) fn project_root(file: &Path, limit: Option<&Path>) -> PathBuf {
    let own = file.parent().unwrap_or(file);
    marked_root(file, limit).unwrap_or_else(|| limit.unwrap_or(own).to_owned())
}

/// The nearest folder above a file, up to `limit`, with a configuration or package metadata.
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
    /// Finds the run of the project at `root`. `opened` is the file that the user saved, relative
    /// to the root. `remembered` is the user's previous choice, as [`Run::shown`] or as a path.
    pub(crate) fn find(
        &mut self,
        root: &Path,
        opened: Option<&Path>,
        remembered: Option<&str>,
    ) -> SearchResult {
        let opened = opened.and_then(normal);
        let Scan { files, described, cut_short } = self.scan(root, opened.as_deref());
        choose::choose(&files, &described, opened.as_deref(), remembered, cut_short)
    }

    /// The commands in the project's files that train with the Python file at `path`, relative to
    /// the root, for display.
    pub(crate) fn commands_of(&mut self, root: &Path, path: &Path) -> Vec<String> {
        let Some(path) = normal(path) else { return Vec::new() };
        let Scan { described, .. } = self.scan(root, Some(&path));
        let of_path = described.iter().filter(|one| {
            one.run.path == path && !one.doubts.is_other_task && !one.shown.is_empty()
        });
        of_path.map(|one| one.shown.clone()).take(MAX_SHOWN_COMMANDS).collect()
    }

    /// The commands that a shell script or Makefile of the project runs before the one that starts the Python file at
    /// `path`, relative to the root, with these arguments.
    pub(crate) fn commands_before(
        &mut self,
        root: &Path,
        path: &Path,
        arguments: &[String],
    ) -> Vec<String> {
        let Some(path) = normal(path) else { return Vec::new() };
        let Scan { described, .. } = self.scan(root, Some(&path));
        let is_script = |one: &&Described| matches!(one.kind, Kind::ShellScript | Kind::Makefile);
        let starts =
            |one: &Described| one.run.path == path && one.run.arguments.as_slice() == arguments;
        let Some(own) = described.iter().filter(is_script).find(|one| starts(one)) else {
            return Vec::new();
        };
        let in_file = described.iter().filter(|one| one.file == own.file && !one.shown.is_empty());
        let before = in_file.take_while(|one| !starts(one)).filter(|one| one.run.path != path);
        before.map(|one| one.shown.clone()).take(MAX_SHOWN_COMMANDS).collect()
    }

    /// How to start the Python file at `path`, relative to the root, so that its imports are found.
    pub(crate) fn import_path(&mut self, root: &Path, path: &Path) -> ImportPath {
        let Some(path) = normal(path) else { return ImportPath::default() };
        let Scan { files, .. } = self.scan(root, Some(&path));
        import_path::import_path(root, &files, &path)
    }

    /// The Python file of a module for `python -m` in `folder`, both relative to the root.
    pub(crate) fn module_file(
        &mut self,
        root: &Path,
        folder: &Path,
        name: &str,
    ) -> Option<PathBuf> {
        let Scan { files, .. } = self.scan(root, None);
        commands::module(&files, &normal(folder)?, name)
    }

    /// Whether a file is a provider, regardless of the rest of the project.
    pub(crate) fn is_provider(&mut self, file: &Path) -> bool {
        self.read(file).is_some_and(|facts| facts.training.provider)
    }

    /// The run of a script that was named without arguments: with the subcommand that trains, if it has
    /// subcommands, and its own option for the CPU, if it uses a GPU by default and this machine has none.
    /// `script` is relative to `root`.
    pub(crate) fn named_script(&mut self, root: &Path, script: &Path) -> Run {
        let run = Run::script(script);
        match self.read(&root.join(script)) {
            Some(facts) => choose::with_own_arguments(run, &facts),
            None => run,
        }
    }

    fn scan(&mut self, root: &Path, opened: Option<&Path>) -> Scan {
        let (mut files, mut notebooks) = (BTreeMap::new(), BTreeMap::new());
        // The walk omits hidden folders.
        let launch = Path::new(".vscode/launch.json");
        let mut with_commands = vec![(launch.to_owned(), Kind::LaunchJson)];
        let mut bytes = 0_u64;
        // The opened file is included even if git ignores it or the walk ends before it.
        if let Some(opened) = opened
            && let Some(facts) = self.read(&root.join(opened))
        {
            files.insert(opened.to_owned(), facts);
        }
        let listing = self.listings.of(root);
        let began = Instant::now();
        with_commands.extend(listing.with_commands.iter().take(MAX_COMMAND_FILES).cloned());
        let mut cut_short = listing.is_cut_short;
        for (path, size) in &listing.programs {
            if files.len() >= MAX_FILES || bytes > MAX_TOTAL_BYTES || began.elapsed() > MAX_TIME {
                cut_short = true;
                break;
            }
            if files.contains_key(path) {
                continue;
            }
            if let Some(facts) = self.read(&root.join(path)) {
                bytes = bytes.saturating_add(*size);
                let found = if is_notebook(path) { &mut notebooks } else { &mut files };
                found.insert(path.clone(), facts);
            }
        }
        // Scripts come first: beside one, a notebook shows its results or has copies of its code.
        let mut files = Files::new(files, listing.copies.clone());
        let limit = choose::MAX_FOLLOWED_FILES;
        let trains = |path: &PathBuf| is_named_train(path) || choose::trains(&files, path);
        if !notebooks.is_empty() && !files.keys().take(limit).any(trains) {
            let scripts = files.facts;
            let mut all = scripts.clone();
            all.extend(notebooks.clone());
            let all = Files::new(all, files.copies);
            let mut facts = scripts;
            let first = notebooks.into_iter().take(limit);
            facts.extend(first.filter(|(path, _)| choose::trains(&all, path)));
            files = Files::new(facts, all.copies);
        }
        // Forget the facts of deleted files.
        self.facts.retain(|path, _| {
            path.strip_prefix(root).map_or(true, |relative| files.contains_key(relative))
        });
        with_commands.sort_by(|a, b| {
            (a.1, a.0.components().count(), &a.0).cmp(&(b.1, b.0.components().count(), &b.0))
        });
        let has_gpu = has_gpu();
        let mut described = Vec::new();
        let scripts: Vec<&Path> = with_commands
            .iter()
            .filter(|(_, kind)| *kind == Kind::ShellScript)
            .map(|(path, _)| path.as_path())
            .collect();
        self.find_installed(root, &with_commands);
        for (file, kind) in &with_commands {
            for written in self.commands(&root.join(file), *kind).iter() {
                let started = started_by_script(root, &scripts, file, written, &self.installed);
                for written in started.as_deref().unwrap_or(std::slice::from_ref(written)) {
                    let one = commands::described(root, &files, file, *kind, written, has_gpu);
                    described.extend(one);
                }
            }
        }
        self.commands.retain(|path, _| {
            let relative = path.strip_prefix(root);
            relative.map_or(true, |it| with_commands.iter().any(|(path, _)| path == it))
        });
        Scan { files, described, cut_short }
    }

    /// Reads which commands the project's packages install. The other files may start them by name.
    fn find_installed(&mut self, root: &Path, with_commands: &[(PathBuf, Kind)]) {
        let mut entry_points = Vec::new();
        for (file, _) in with_commands.iter().filter(|(_, kind)| *kind == Kind::EntryPoints) {
            entry_points.extend_from_slice(&self.commands(&root.join(file), Kind::EntryPoints));
        }
        let installed = installed(entry_points);
        if installed != self.installed {
            self.installed = installed;
            self.commands.clear();
        }
    }

    fn commands(&mut self, full: &Path, kind: Kind) -> Arc<Vec<FoundCommand>> {
        let metadata = full.symlink_metadata().ok();
        let Some(metadata) = metadata.filter(is_readable) else { return Arc::default() };
        let version = (metadata.len(), metadata.modified().ok());
        if let Some((known, written)) = self.commands.get(full)
            && *known == version
        {
            return Arc::clone(written);
        }
        let Some(text) = read_text(full) else { return Arc::default() };
        let written = Arc::new(kind.read(&text, &self.installed));
        self.commands.insert(full.to_owned(), (version, Arc::clone(&written)));
        written
    }

    fn read(&mut self, full: &Path) -> Option<Arc<Facts>> {
        let metadata = full.metadata().ok()?;
        // Most of a notebook may be pictures.
        let limit = if is_notebook(full) { SIZE_LIMIT as u64 } else { MAX_FILE_BYTES };
        if !metadata.is_file() || metadata.len() > limit {
            return None;
        }
        let version = (metadata.len(), metadata.modified().ok());
        if let Some((known, facts)) = self.facts.get(full)
            && *known == version
        {
            return Some(Arc::clone(facts));
        }
        let index = SourceIndex::new(notebook::read(full, limit)?);
        let outline = ProgramOutline::of(&index);
        let cpu_option = if has_gpu() { None } else { cpu_option(&index) };
        let training_subcommand = training_subcommand(&index);
        let training = outline.judge();
        let facts = Arc::new(Facts { training, outline, cpu_option, training_subcommand });
        self.facts.insert(full.to_owned(), (version, Arc::clone(&facts)));
        Some(facts)
    }
}

/// The programs that a command of `file` starts through a shell script, with the command's own line,
/// and the script's as their name. Returns `None` for other commands.
fn started_by_script(
    root: &Path,
    scripts: &[&Path],
    file: &Path,
    written: &FoundCommand,
    installed: &InstalledCommands,
) -> Option<Vec<FoundCommand>> {
    let Program::Shell(script) = &written.command.program else { return None };
    let folder = written.command.folder.as_deref().unwrap_or_default();
    let own = file.parent().unwrap_or(Path::new(""));
    let place = |base: &Path| normal(&base.join(folder).join(script));
    let is_script = |path: &PathBuf| scripts.contains(&path.as_path());
    let mut written = written.clone();
    let found = place(own).filter(is_script).or_else(|| place(Path::new("")).filter(is_script));
    let found = found.or_else(|| {
        // A README may omit the folder.
        let script = normal(Path::new(script))?;
        let mut below = scripts.iter().filter(|path| path.ends_with(&script));
        let path = below.next().filter(|_| below.next().is_none())?;
        let base = path.ancestors().nth(script.components().count())?.strip_prefix(own).ok()?;
        written.command.folder = Some(format!("{}/", base.to_string_lossy().replace('\\', "/")));
        Some((*path).to_owned())
    });
    let text = found.as_deref().and_then(|path| read_text(&root.join(path)));
    let (Some(path), Some(text)) = (found, text) else { return Some(Vec::new()) };
    let mut started = ridgeline_analysis::commands::started_by_script(&text, &written, installed);
    for one in &mut started {
        let path = path.to_string_lossy().replace('\\', "/");
        one.name = Some(format!("{path}:{}", one.line));
        one.line = written.line;
    }
    Some(started)
}

/// The text of a file with commands.
fn read_text(full: &Path) -> Option<String> {
    full.symlink_metadata().ok().filter(is_readable)?;
    let mut bytes = Vec::new();
    let file = File::open(full).ok()?;
    file.take(MAX_COMMAND_FILE_BYTES as u64).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_readable(file: &std::fs::Metadata) -> bool {
    file.is_file() && file.len() <= MAX_COMMAND_FILE_BYTES as u64
}

/// Whether a file is called like a training script. Its loop may be in another file.
fn is_named_train(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "train") && !is_notebook(path)
}

fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "py")
}

/// The path without `.`. Returns `None` if it is absolute or leads out of the project.
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

/// Whether this machine appears to have a GPU that PyTorch can use, judged by device files. Without
/// one, commands for a GPU cannot be used. Cached, because it is queried for each of thousands of
/// files.
fn has_gpu() -> bool {
    static HAS_GPU: LazyLock<bool> = LazyLock::new(|| {
        !cfg!(target_os = "linux")
            || ["/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg"]
                .iter()
                .any(|device| Path::new(device).exists())
    });
    *HAS_GPU
}
