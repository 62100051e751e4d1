//! Finds a module or file in the project that its program looked for in another place, or a script
//! that may create it. The search is bounded, and may find nothing.

use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ignore::DirEntry;
use ridgeline_analysis::present::failure::RunFailure;
use ridgeline_analysis::present::failure::advice::missing_module;

use crate::walk::{Limits, visit_all_nearest_first};

const LIMITS: Limits = Limits { entries: 20_000, depth: 8, time: Duration::from_secs(1) };
const RESULT_LIMIT: usize = 3;
/// Folders with third-party code.
const THIRD_PARTY: [&str; 6] =
    ["site-packages", "node_modules", "__pycache__", "venv", "env", "build"];
/// Words in the names of scripts that create data.
const PREPARING: [&str; 10] = [
    "prepare",
    "preprocess",
    "prep_",
    "download",
    "fetch",
    "generate",
    "create_",
    "get_data",
    "getdata",
    "make_data",
];

/// Returns the paths relative to the root, the ones nearest to it first.
pub(super) fn find(failure: &RunFailure, root: &Path) -> Vec<String> {
    let wanted = if let Some(module) = missing_module(&failure.error_type, &failure.message) {
        let path = module.replace('.', "/");
        vec![format!("{path}.py"), path]
    } else if let Some(file) = failure.run.error.file.as_deref() {
        // Shortened, absolute, or outside the project.
        if file.is_empty() || file.starts_with(['…', '/', '~']) || file.starts_with("..") {
            return Vec::new();
        }
        vec![file.trim_start_matches("./").to_owned()]
    } else {
        return Vec::new();
    };
    let wanted_folder = |entry: &DirEntry| {
        let name = entry.file_name().to_str().unwrap_or_default();
        // An environment may have any name.
        !THIRD_PARTY.contains(&name) && !entry.path().join("pyvenv.cfg").is_file()
    };
    let mut found = Vec::new();
    // Git usually ignores data.
    visit_all_nearest_first(root, wanted_folder, LIMITS, |entry| {
        found.extend(path_of_wanted(&entry, root, &wanted));
        ControlFlow::Continue(())
    });
    found.sort_by_key(|path| (path.matches('/').count(), path.clone()));
    found.truncate(RESULT_LIMIT);
    found
}

/// The path of an entry if it is one of the wanted, relative to the root.
fn path_of_wanted(entry: &DirEntry, root: &Path, wanted: &[String]) -> Option<String> {
    let path = entry.path().strip_prefix(root).ok()?.to_str()?.replace('\\', "/");
    let is_folder = entry.file_type()?.is_dir();
    let is_wanted = wanted.iter().any(|wanted| {
        let prefix = path.strip_suffix(wanted.as_str());
        prefix.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    });
    // A folder is a Python package if it contains a module.
    let is_module = !is_folder || wanted.len() == 1 || has_python(entry.path());
    (is_wanted && is_module).then_some(path)
}

/// What is in the folder of a missing data file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FolderContents {
    /// Scripts that may create it, relative to the root: `data/openwebtext/prepare.py`.
    pub(super) scripts: Vec<String>,
    /// The names of files with the same ending: `Video.txt`.
    pub(super) files: Vec<String>,
}

/// Returns what is in the folder of a missing data file of the project.
pub(super) fn folder_contents(failure: &RunFailure, root: &Path) -> FolderContents {
    let file = Path::new(failure.run.error.file.as_deref().unwrap_or_default());
    let mut found = beside(file, failure, root);
    if found.scripts.is_empty() && !file.as_os_str().is_empty() {
        // In the project's own folder, a script has to name data.
        found.scripts = preparing_scripts(root, Path::new(""));
        found.scripts.retain(|name| name.to_lowercase().contains("data"));
        found.scripts.truncate(RESULT_LIMIT);
    }
    found
}

/// Returns what is in the folder of a file, unless that is the project's own one.
fn beside(file: &Path, failure: &RunFailure, root: &Path) -> FolderContents {
    let below = file.parent().unwrap_or(Path::new(""));
    // The project's own folder has other purposes.
    if below.components().all(|part| part == Component::CurDir) {
        return FolderContents::default();
    }
    let folder = Path::new(&failure.run.working_directory).join(below);
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !folder.components().all(is_inside) {
        return FolderContents::default();
    }
    let mut scripts = preparing_scripts(root, &folder);
    let is_similar = |name: &String| {
        name.rsplit_once('.').is_some_and(|(stem, ending)| {
            let is_data = !stem.is_empty() && !matches!(ending, "py" | "sh");
            is_data && file.extension().is_some_and(|wanted| wanted == ending)
        })
    };
    let mut files: Vec<String> =
        names_of_files(&root.join(&folder)).into_iter().filter(is_similar).collect();
    for names in [&mut scripts, &mut files] {
        names.truncate(RESULT_LIMIT);
    }
    FolderContents { scripts, files }
}

/// Returns the scripts in a folder whose names say that they create data, relative to the root.
fn preparing_scripts(root: &Path, folder: &Path) -> Vec<String> {
    let prepares = |name: &String| {
        name.rsplit_once('.').is_some_and(|(stem, ending)| {
            let stem = stem.to_lowercase();
            matches!(ending, "py" | "sh") && PREPARING.iter().any(|word| stem.contains(word))
        })
    };
    let relative = |name: String| {
        let path = folder.join(name);
        let path: PathBuf = path.components().filter(|&it| it != Component::CurDir).collect();
        path.to_str().map(|path| path.replace('\\', "/"))
    };
    let names = names_of_files(&root.join(folder));
    names.into_iter().filter(prepares).filter_map(relative).collect()
}

/// Returns the names of the files in a folder, in order.
fn names_of_files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(1_000).flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    let mut names: Vec<String> =
        files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn has_python(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(1_000).flatten();
    entries.into_iter().any(|entry| entry.path().extension().is_some_and(|ending| ending == "py"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(error_type: &str, message: &str, file: Option<&str>) -> RunFailure {
        let mut failure = RunFailure {
            error_type: error_type.into(),
            message: message.into(),
            ..RunFailure::default()
        };
        failure.run.error.file = file.map(str::to_owned);
        failure
    }

    #[test]
    fn contents_of_the_folder_of_a_missing_file() {
        let folder = tempfile::TempDir::new().expect("a folder");
        for file in [
            "data/web/prepare.py",
            "data/web/prepare.txt",
            "data/web/util.py",
            "data/web/b.bin",
            "data/web/.bin",
            "prepare.py",
            "sub/data/c.bin",
            "bodies/generate_dataset.py",
        ] {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().expect("one")).expect("created");
            std::fs::write(file, "").expect("written");
        }
        let found = |start: &str, name: &str| {
            let mut failure = failing("FileNotFoundError", "", Some(name));
            failure.run.working_directory = start.to_owned();
            folder_contents(&failure, folder.path())
        };
        let of = |scripts: &[&str], files: &[&str]| FolderContents {
            scripts: scripts.iter().map(|&it| it.to_owned()).collect(),
            files: files.iter().map(|&it| it.to_owned()).collect(),
        };
        assert_eq!(found("", "data/web/train.bin"), of(&["data/web/prepare.py"], &["b.bin"]));
        assert_eq!(found("", "./data/web/train"), of(&["data/web/prepare.py"], &[]));
        assert_eq!(found("sub", "data/a.bin"), of(&[], &["c.bin"]));
        assert_eq!(found(".", "data/web/a.txt"), of(&["data/web/prepare.py"], &["prepare.txt"]));
        assert_eq!(found("", "bodies/a.npy"), of(&["bodies/generate_dataset.py"], &[]));
        for other in
            ["a.bin", "data/a.bin", "/data/web/a", "data/../web/a", "…/web/a", "./a.bin", ""]
        {
            assert_eq!(found("", other), FolderContents::default(), "{other}");
        }
        assert_eq!(found("..", "data/web/a.bin"), FolderContents::default());
        std::fs::write(folder.path().join("get_data.sh"), "").expect("written");
        assert_eq!(found("", "a.bin"), of(&["get_data.sh"], &[]));
        assert_eq!(found("", "data/web/train"), of(&["data/web/prepare.py"], &[]));
    }

    #[test]
    fn modules_packages_and_files() {
        let folder = tempfile::TempDir::new().expect("a folder");
        for file in
            ["src/utils.py", "lib/nets/a.py", "venv/gone.py", "x/data/train.csv", "docs/notes/a.md"]
        {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().expect("one")).expect("created");
            std::fs::write(file, "").expect("written");
        }
        let look = |failure: RunFailure| find(&failure, folder.path());
        let module = |name: &str| {
            look(failing("ModuleNotFoundError", &format!("No module named '{name}'"), None))
        };
        assert_eq!(module("utils"), ["src/utils.py"]);
        assert_eq!(module("nets"), ["lib/nets"]);
        assert_eq!(module("nets.a"), ["lib/nets/a.py"]);
        // Third-party code, and a folder without a module.
        assert!(module("gone").is_empty() && module("notes").is_empty());
        let file = |name: &str| look(failing("FileNotFoundError", "", Some(name)));
        assert_eq!(file("data/train.csv"), ["x/data/train.csv"]);
        assert_eq!(file("./train.csv"), ["x/data/train.csv"]);
        assert!(
            file("/train.csv").is_empty() && file("rain.csv").is_empty() && file("").is_empty()
        );
    }
}
