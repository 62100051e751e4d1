//! How to start a file so that Python finds its imports from the project: as a script or as a
//! module.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

use ridgeline_analysis::python::{Import, ProjectFiles as _};

use super::Files;
use super::imports::{folders_above, module_below};
use super::standard_library::is_in_standard_library;

/// How to start a file so that its imports are found. Paths are absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImportPath {
    /// If it cannot run as a script: its module name and the folder that contains its top-level
    /// package.
    pub module: Option<(String, PathBuf)>,
    /// Additional folders for Python's path.
    pub more: Vec<PathBuf>,
}

/// Commonly installed packages. A project folder of the same name is not the imported package.
const INSTALLED: [&str; 14] = [
    "torch",
    "torchvision",
    "numpy",
    "datasets",
    "transformers",
    "evaluate",
    "accelerate",
    "wandb",
    "tqdm",
    "yaml",
    "tests",
    "test",
    "triton",
    "tensorboard",
];
/// The maximum number of files whose imports are followed.
const MAX_FILES: usize = 500;
/// The maximum number of folders above the project.
const MAX_FOLDERS_ABOVE: usize = 4;

/// How to start the file at `path`, relative to `root`.
pub(super) fn import_path(root: &Path, files: &Files, path: &Path) -> ImportPath {
    let Some(facts) = files.get(path) else { return ImportPath::default() };
    let imports = facts.outline.imports();
    let levels = imports.iter().map(|import| import.level).max().unwrap_or(0);
    let own = path.parent().unwrap_or(Path::new(""));
    let base = if levels > 0 {
        above_package(root, own, levels)
    } else {
        imports
            .iter()
            .find_map(|import| above_own_package(files, own, import))
            .map(|base| root.join(base))
    };
    let module = base.and_then(|base| {
        let inside = root.join(path).strip_prefix(&base).ok()?.with_extension("");
        let parts: Option<Vec<&str>> = inside.iter().map(|part| part.to_str()).collect();
        let mut parts = parts?;
        if parts.last() == Some(&"__main__") {
            parts.pop();
        }
        let is_name = |part: &&str| {
            !part.is_empty()
                && !part.starts_with(|c: char| c.is_numeric())
                && part.chars().all(|c| c == '_' || c.is_alphanumeric())
        };
        (!parts.is_empty() && parts.iter().all(is_name)).then(|| (parts.join("."), base))
    });
    let first = match &module {
        Some((_, base)) => base.strip_prefix(root).ok().map(Path::to_owned),
        None => Some(own.to_owned()),
    };
    let more = additional_folders(files, path, first);
    ImportPath { module, more: more.into_iter().map(|folder| root.join(folder)).collect() }
}

/// The folder above the top-level package of a file with relative imports: above every folder with
/// an `__init__.py`, and at least as far up as the dots lead.
fn above_package(root: &Path, own: &Path, levels: u32) -> Option<PathBuf> {
    let mut package = root.join(own);
    let limit = root.ancestors().nth(MAX_FOLDERS_ABOVE).unwrap_or(root).to_owned();
    let mut depth = 1;
    loop {
        let above = package.parent()?.to_owned();
        let goes_on = depth < levels
            || package.join("__init__.py").is_file() && above.join("__init__.py").is_file();
        if !goes_on || above == limit {
            return Some(above);
        }
        package = above;
        depth += 1;
    }
}

/// The folder above a file's package, if the file imports that package by its full name and Python
/// would not find it from the file's folder. A folder without an `__init__.py` is that package only
/// if the import names one of its files: `import quiver` in `examples/quiver` is an installed one.
fn above_own_package(files: &Files, own: &Path, import: &Import) -> Option<PathBuf> {
    let name = &import.module;
    let top = name.split('.').next().filter(|top| !top.is_empty())?;
    if module_below(files, own, name).is_some() || is_folder_of(files, &own.join(top)) {
        return None;
    }
    let package = own.ancestors().find(|folder| folder.file_name().is_some_and(|it| it == top))?;
    let base = package.parent()?;
    let is_there = module_below(files, base, name).is_some()
        || import
            .names
            .iter()
            .any(|inner| module_below(files, base, &format!("{name}.{inner}")).is_some());
    is_there.then(|| base.to_owned())
}

/// Whether a folder is a package. Python finds its modules only through the package name. With the
/// folder on the path they would hide installed modules of the same names, such as `typing` or
/// `numpy`.
fn is_package(files: &Files, folder: &Path) -> bool {
    files.contains_key(&folder.join("__init__.py"))
}

/// Whether a folder contains Python files: a package without an `__init__.py`.
fn is_folder_of(files: &Files, folder: &Path) -> bool {
    let mut from = files.range(folder.to_owned()..);
    from.next().is_some_and(|(path, _)| path.starts_with(folder) && path != folder)
}

/// The folders that contain the program's imports and are not on Python's path.
fn additional_folders(files: &Files, start: &Path, first: Option<PathBuf>) -> Vec<PathBuf> {
    let mut more: Vec<PathBuf> = Vec::new();
    let mut seen = HashSet::from([start.to_owned()]);
    let mut waiting = VecDeque::from([start.to_owned()]);
    while let Some(file) = waiting.pop_front() {
        let Some(facts) = files.get(&file) else { continue };
        for import in facts.outline.imports() {
            let top = import.module.split('.').next().unwrap_or_default();
            let known = || first.iter().chain(&more);
            let found = if import.level > 0 {
                files.module(&file, import.level, &import.module)
            } else if INSTALLED.contains(&top) || is_in_standard_library(top) {
                None
            } else if let Some(found) =
                known().find_map(|folder| module_below(files, folder, &import.module))
            {
                Some(found)
            } else if known().any(|folder| is_folder_of(files, &folder.join(top))) {
                None
            } else {
                let mut folders = folders_above(&file).filter(|folder| !is_package(files, folder));
                let at = folders.find_map(|folder| {
                    Some((module_below(files, &folder, &import.module)?, folder))
                });
                at.map(|(found, folder)| {
                    more.push(folder);
                    found
                })
            };
            let names = import.names.iter().filter_map(|name| {
                let folder = found.as_ref()?.parent()?;
                found.as_ref()?.ends_with("__init__.py").then(|| folder.join(format!("{name}.py")))
            });
            for file in found.iter().cloned().chain(names) {
                if files.contains_key(&file) && seen.len() < MAX_FILES && seen.insert(file.clone())
                {
                    waiting.push_back(file);
                }
            }
        }
    }
    more
}
