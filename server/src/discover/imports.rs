//! The imports between the files of a project.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ridgeline_analysis::python::{Import, ProgramOutline, ProjectFiles};

use super::Files;

/// Returns every file that imports `target`, directly or indirectly.
pub(super) fn importers(files: &Files, target: &Path) -> BTreeSet<PathBuf> {
    let mut imported_by: HashMap<PathBuf, Vec<&Path>> = HashMap::new();
    for (path, facts) in files.iter() {
        for import in facts.outline.imports() {
            for file in resolve(files, path, import) {
                imported_by.entry(file).or_default().push(path);
            }
        }
    }
    let mut reached = BTreeSet::new();
    let mut waiting = VecDeque::from([target.to_owned()]);
    while let Some(file) = waiting.pop_front() {
        for importer in imported_by.get(&file).into_iter().flatten() {
            if reached.insert((*importer).to_owned()) {
                waiting.push_back((*importer).to_owned());
            }
        }
    }
    reached
}

/// The project's files that an import may mean: relative to the importing file's folder, which
/// Python puts first on its path for a script, to the folders above it, and to `src`.
fn resolve(files: &Files, importer: &Path, import: &Import) -> Vec<PathBuf> {
    let folder = importer.parent().unwrap_or(Path::new(""));
    let starts: Vec<PathBuf> = match import.level {
        0 => folder.ancestors().flat_map(|above| [above.to_owned(), above.join("src")]).collect(),
        level => {
            let above = usize::try_from(level - 1).unwrap_or(usize::MAX);
            folder.ancestors().nth(above).map(Path::to_owned).into_iter().collect()
        }
    };
    for start in starts {
        let mut targets = Vec::new();
        let mut package = start;
        for part in import.module.split('.').filter(|part| !part.is_empty()) {
            package.push(part);
            // Importing `a.b.c` also runs the packages `a` and `a.b`.
            targets.extend(module_file(files, &package));
        }
        targets
            .extend(import.names.iter().filter_map(|name| module_file(files, &package.join(name))));
        if !targets.is_empty() {
            return targets;
        }
    }
    Vec::new()
}

/// `a/b.py` or `a/b/__init__.py`.
fn module_file(files: &Files, module: &Path) -> Option<PathBuf> {
    let mut file = module.as_os_str().to_owned();
    file.push(".py");
    let file = PathBuf::from(file);
    let package = module.join("__init__.py");
    [file, package].into_iter().find(|path| files.contains_key(path))
}

/// The folders in which a file's absolute imports are searched: its own folder, which Python puts
/// first on the path of a script, then the folders above it, each with its `src`.
pub(super) fn folders_above(file: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    let folder = file.parent().unwrap_or(Path::new(""));
    folder.ancestors().flat_map(|above| [above.to_owned(), above.join("src")])
}

/// The file of a dotted module name below a folder.
pub(super) fn module_below(files: &Files, folder: &Path, name: &str) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    path.extend(name.split('.').filter(|part| !part.is_empty()));
    module_file(files, &path)
}

/// The files that absolute imports mean, by the folder of the importing file and the module.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    by_folder: HashMap<OsString, HashMap<String, Option<PathBuf>>>,
    count: usize,
}

/// The maximum number of resolved imports that are kept. A large library has some ten thousand.
const MAX_RESOLVED: usize = 200_000;

impl Resolved {
    fn get_or_find(
        &mut self,
        folder: &OsStr,
        name: &str,
        find: impl FnOnce() -> Option<PathBuf>,
    ) -> Option<PathBuf> {
        if let Some(known) = self.by_folder.get(folder).and_then(|known| known.get(name)) {
            return known.clone();
        }
        let file = find();
        if self.count < MAX_RESOLVED {
            self.count += 1;
            let of_folder = self.by_folder.entry(folder.to_owned()).or_default();
            of_folder.insert(name.to_owned(), file.clone());
        }
        file
    }
}

impl ProjectFiles for Files {
    type File = PathBuf;

    fn outline(&self, file: &PathBuf) -> Option<&ProgramOutline> {
        self.get(file).map(|facts| &facts.outline)
    }

    fn module(&self, importer: &PathBuf, level: u32, name: &str) -> Option<PathBuf> {
        if level == 0 {
            let folder = importer.parent().unwrap_or(Path::new("")).as_os_str();
            let find =
                || folders_above(importer).find_map(|start| module_below(self, &start, name));
            return self.resolved.borrow_mut().get_or_find(folder, name, find);
        }
        let above = usize::try_from(level).unwrap_or(usize::MAX);
        module_below(self, importer.ancestors().nth(above)?, name)
    }
}
