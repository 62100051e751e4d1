//! Which script is the training run of a project, where its configuration does not say.
//!
//! The project's Python files are read (never run) and judged by `analysis::source`. The walk is
//! bounded in files, bytes, depth and time, respects `.gitignore`, and keeps what it learnt about
//! files that did not change.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ridgeline_analysis::source::{self, SourceIndex, TrainingScript};

use crate::config;

/// At most so many Python files are looked at.
const MAX_FILES: usize = 2_000;
/// A larger file is no script that a person wrote, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// At most so much text is looked at, in bytes.
const MAX_TOTAL_BYTES: u64 = 32 << 20;
/// At most so many folders deep.
const MAX_DEPTH: usize = 12;
/// At most so long.
const MAX_TIME: Duration = Duration::from_secs(3);
/// Folders that hold other people's code, besides those that git ignores.
const FOREIGN_FOLDERS: [&str; 6] =
    ["site-packages", "node_modules", "__pycache__", "venv", "env", "build"];

/// What a project can be run by. Paths are relative to its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This training script.
    Script(PathBuf),
    /// This Skyline or DeepView provider file.
    Provider(PathBuf),
    /// Several fit, most likely first: the person has to choose.
    Several(Vec<Candidate>),
    /// Nothing looks like training.
    Nothing {
        /// How many Python files were looked at.
        looked_at: usize,
        /// Whether the walk came to one of its bounds.
        cut_short: bool,
    },
}

/// A script that may be the one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Relative to the root.
    pub path: PathBuf,
    /// Why it looks like training, in a person's words.
    pub reasons: Vec<&'static str>,
}

/// Looks for training scripts and remembers what it learnt, by root.
#[derive(Debug, Default)]
pub struct Discovery {
    facts: HashMap<PathBuf, (Version, Facts)>,
}

/// A file's size and time of change: when neither moved, it was not written.
type Version = (u64, Option<SystemTime>);

/// What one file says.
#[derive(Clone, Debug, Default)]
struct Facts {
    judged: TrainingScript,
    imports: Vec<source::Import>,
}

/// The folder that a project's paths are relative to, for a file: the nearest one above it, not
/// above `limit`, that says so by a configuration or a package's metadata. Else `limit`, or without
/// one the file's own folder.
pub fn project_root(file: &Path, limit: Option<&Path>) -> PathBuf {
    const MARKS: [&str; 4] = [config::FILE_NAME, config::PYPROJECT, "setup.py", "setup.cfg"];
    let own = file.parent().unwrap_or(file);
    for folder in own.ancestors() {
        if MARKS.iter().any(|mark| folder.join(mark).is_file()) {
            return folder.to_owned();
        }
        if limit == Some(folder) {
            break;
        }
    }
    limit.unwrap_or(own).to_owned()
}

impl Discovery {
    /// Finds the run of the project at `root`. `opened` is the file that the person saved, relative
    /// to the root; `remembered` what they chose before.
    pub fn find(&mut self, root: &Path, opened: Option<&Path>, remembered: Option<&Path>) -> Found {
        let opened = opened.and_then(normal);
        let (files, cut_short) = self.scan(root, opened.as_deref());
        choose(&files, opened.as_deref(), remembered, cut_short)
    }

    /// Whether a file is a provider, whatever else the project has.
    pub fn is_provider(&mut self, file: &Path) -> bool {
        self.read(file).is_some_and(|facts| facts.judged.provider)
    }

    fn scan(&mut self, root: &Path, opened: Option<&Path>) -> (BTreeMap<PathBuf, Facts>, bool) {
        let began = Instant::now();
        let mut files = BTreeMap::new();
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
        (files, cut_short)
    }

    fn read(&mut self, full: &Path) -> Option<Facts> {
        let metadata = full.metadata().ok()?;
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
            return None;
        }
        let version = (metadata.len(), metadata.modified().ok());
        if let Some((known, facts)) = self.facts.get(full)
            && *known == version
        {
            return Some(facts.clone());
        }
        let mut bytes = Vec::new();
        File::open(full).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        let index = SourceIndex::new(String::from_utf8_lossy(&bytes).as_ref());
        let facts =
            Facts { judged: source::training_script(&index), imports: source::imports(&index) };
        self.facts.insert(full.to_owned(), (version, facts.clone()));
        Some(facts)
    }
}

/// The rules, on what the files say. The first that decides wins:
///
/// 1. The opened file is a provider, or is itself a training script.
/// 2. Exactly one training script imports the opened file, directly or through others.
/// 3. The person chose one before, and it still is one of those that fit.
/// 4. Exactly one script fits; else exactly one provider.
fn choose(
    files: &BTreeMap<PathBuf, Facts>,
    opened: Option<&Path>,
    remembered: Option<&Path>,
    cut_short: bool,
) -> Found {
    let fits = |path: &Path| {
        files.get(path).is_some_and(|facts| facts.judged.score >= TrainingScript::LIKELY)
    };
    if let Some(opened) = opened {
        if files.get(opened).is_some_and(|facts| facts.judged.provider) {
            return Found::Provider(opened.to_owned());
        }
        if fits(opened) {
            return Found::Script(opened.to_owned());
        }
    }
    let all: Vec<&Path> = files.keys().map(PathBuf::as_path).filter(|path| fits(path)).collect();
    let importing: Vec<&Path> = match opened {
        Some(opened) => {
            let importers = importers(files, opened);
            all.iter().copied().filter(|path| importers.contains(*path)).collect()
        }
        None => Vec::new(),
    };
    if let [only] = importing.as_slice() {
        return Found::Script((*only).to_owned());
    }
    let fitting = if importing.is_empty() { all } else { importing };
    if let Some(remembered) = remembered
        && fitting.contains(&remembered)
    {
        return Found::Script(remembered.to_owned());
    }
    match fitting.as_slice() {
        [only] => return Found::Script((*only).to_owned()),
        [] => {}
        several => return Found::Several(candidates(files, several)),
    }
    let providers: Vec<&Path> = files
        .iter()
        .filter(|(_, facts)| facts.judged.provider)
        .map(|(path, _)| path.as_path())
        .collect();
    match providers.as_slice() {
        [] => Found::Nothing { looked_at: files.len(), cut_short },
        [only] => Found::Provider((*only).to_owned()),
        several => Found::Several(candidates(files, several)),
    }
}

/// How many scripts a question names.
const MOST_CANDIDATES: usize = 20;

fn candidates(files: &BTreeMap<PathBuf, Facts>, paths: &[&Path]) -> Vec<Candidate> {
    let mut scored: Vec<(u32, Candidate)> = paths
        .iter()
        .filter_map(|path| {
            let judged = &files.get(*path)?.judged;
            let candidate = Candidate { path: (*path).to_owned(), reasons: judged.reasons.clone() };
            Some((judged.score, candidate))
        })
        .collect();
    scored.sort_by(|(a_score, a), (b_score, b)| {
        b_score.cmp(a_score).then_with(|| a.path.cmp(&b.path))
    });
    scored.into_iter().take(MOST_CANDIDATES).map(|(_, candidate)| candidate).collect()
}

/// Every file that imports `target`, directly or through others.
fn importers(files: &BTreeMap<PathBuf, Facts>, target: &Path) -> BTreeSet<PathBuf> {
    let mut imported_by: HashMap<PathBuf, Vec<&Path>> = HashMap::new();
    for (path, facts) in files {
        for import in &facts.imports {
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
fn resolve(
    files: &BTreeMap<PathBuf, Facts>,
    importer: &Path,
    import: &source::Import,
) -> Vec<PathBuf> {
    let folder = importer.parent().unwrap_or(Path::new(""));
    let starts: Vec<PathBuf> = match import.level {
        0 => folder.ancestors().flat_map(|above| [above.to_owned(), above.join("src")]).collect(),
        level => {
            let above = usize::try_from(level - 1).unwrap_or(usize::MAX);
            folder.ancestors().nth(above).map(Path::to_owned).into_iter().collect()
        }
    };
    for start in starts {
        let mut meant = Vec::new();
        let mut package = start;
        for part in import.module.split('.').filter(|part| !part.is_empty()) {
            package.push(part);
            // Importing `a.b.c` runs the packages on the way.
            meant.extend(module_file(files, &package));
        }
        meant
            .extend(import.names.iter().filter_map(|name| module_file(files, &package.join(name))));
        if !meant.is_empty() {
            return meant;
        }
    }
    Vec::new()
}

/// `a/b.py` or `a/b/__init__.py`.
fn module_file(files: &BTreeMap<PathBuf, Facts>, module: &Path) -> Option<PathBuf> {
    let mut file = module.as_os_str().to_owned();
    file.push(".py");
    let file = PathBuf::from(file);
    let package = module.join("__init__.py");
    [file, package].into_iter().find(|path| files.contains_key(path))
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

#[cfg(test)]
mod tests {
    use super::*;

    const TRAINS: &str = "import torch\nimport model\n\ndef main():\n    net = model.Net()\n    \
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    for x in range(10):\n        \
        loss = net(x).sum()\n        loss.backward()\n        optimizer.step()\n\n\
        if __name__ == \"__main__\":\n    main()\n";
    const MODEL: &str = "import torch\nfrom layers import Block\n\nclass Net(torch.nn.Module):\n    \
        def forward(self, x):\n        return x\n";
    const PROVIDER: &str = "def skyline_model_provider():\n    return None\n\n\
        def skyline_input_provider(batch_size=32):\n    return None\n\n\
        def skyline_iteration_provider(model):\n    return None\n";

    /// Finds the run of a project with the given files; `opened` and `remembered` may be empty.
    #[track_caller]
    fn check(files: &[(&str, &str)], opened: &str, remembered: &str, expected: &str) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            std::fs::write(path, text).expect("written");
        }
        let opened = (!opened.is_empty()).then_some(Path::new(opened));
        let remembered = (!remembered.is_empty()).then_some(Path::new(remembered));
        let mut discovery = Discovery::default();
        let found = discovery.find(folder.path(), opened, remembered);
        let shown = |path: &Path| path.to_string_lossy().replace('\\', "/");
        let found = match found {
            Found::Script(path) => shown(&path),
            Found::Provider(path) => format!("provider {}", shown(&path)),
            Found::Several(several) => {
                let paths: Vec<String> = several.iter().map(|one| shown(&one.path)).collect();
                format!("ask: {}", paths.join(" "))
            }
            Found::Nothing { looked_at, .. } => format!("nothing in {looked_at}"),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_only_one() {
        check(&[("train.py", TRAINS), ("model.py", MODEL)], "", "", "train.py");
    }

    #[test]
    fn nothing_trains() {
        check(&[("model.py", MODEL), ("notes.txt", TRAINS)], "", "", "nothing in 1");
    }

    #[test]
    fn several_ask_and_the_answer_holds() {
        let files = [("a.py", TRAINS), ("b.py", TRAINS), ("model.py", MODEL)];
        check(&files, "", "", "ask: a.py b.py");
        check(&files, "", "b.py", "b.py");
        check(&files, "", "gone.py", "ask: a.py b.py");
        check(&files, "model.py", "b.py", "b.py");
    }

    #[test]
    fn the_opened_script_wins() {
        check(&[("a.py", TRAINS), ("b.py", TRAINS)], "b.py", "a.py", "b.py");
    }

    #[test]
    fn the_script_that_imports_the_opened_file() {
        let other = TRAINS.replace("import model\n", "");
        let files = [
            ("train.py", TRAINS),
            ("other.py", other.as_str()),
            ("model.py", MODEL),
            ("layers.py", "class Block: pass\n"),
        ];
        check(&files, "model.py", "", "train.py");
        check(&files, "layers.py", "other.py", "train.py");
    }

    #[test]
    fn packages_and_relative_imports() {
        let train = TRAINS.replace("import model\n", "from pkg.nets import model\n");
        let files = [
            ("tools/train.py", train.as_str()),
            ("tools/other.py", TRAINS),
            ("pkg/nets/__init__.py", ""),
            ("pkg/nets/model.py", "from .blocks import Block\n"),
            ("pkg/nets/blocks.py", "class Block: pass\n"),
        ];
        check(&files, "pkg/nets/blocks.py", "", "tools/train.py");
    }

    #[test]
    fn providers() {
        let files = [("train.py", TRAINS), ("entry_point.py", PROVIDER)];
        check(&files, "entry_point.py", "", "provider entry_point.py");
        check(&files, "", "", "train.py");
        check(&[("entry_point.py", PROVIDER)], "", "", "provider entry_point.py");
    }

    #[test]
    fn other_peoples_code_does_not_count() {
        let files = [
            ("train.py", TRAINS),
            (".venv/lib/python3.12/site-packages/lib/train.py", TRAINS),
            ("myenv/pyvenv.cfg", ""),
            ("myenv/train.py", TRAINS),
            (".gitignore", "old/\n"),
            ("old/train.py", TRAINS),
        ];
        check(&files, "", "", "train.py");
    }

    #[test]
    fn a_circle_of_imports_ends() {
        let files = [("a.py", "import b\n"), ("b.py", "import a\n"), ("train.py", TRAINS)];
        check(&files, "a.py", "", "train.py");
    }

    #[test]
    fn hostile_files_are_read_past() {
        let deep = "(".repeat(20_000);
        let long = "x = 1\n".repeat(300_000);
        let files = [("train.py", TRAINS), ("deep.py", deep.as_str()), ("long.py", long.as_str())];
        check(&files, "", "", "train.py");
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("train.py");
        std::fs::write(&file, "pass\n").expect("written");
        let mut discovery = Discovery::default();
        let nothing = Found::Nothing { looked_at: 1, cut_short: false };
        assert_eq!(discovery.find(folder.path(), None, None), nothing);
        std::fs::write(&file, TRAINS).expect("written");
        assert_eq!(discovery.find(folder.path(), None, None), Found::Script("train.py".into()));
    }

    #[test]
    fn roots() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let nested = folder.path().join("a/b");
        std::fs::create_dir_all(&nested).expect("folders");
        let file = nested.join("train.py");
        assert_eq!(project_root(&file, None), nested);
        assert_eq!(project_root(&file, Some(folder.path())), folder.path());
        std::fs::write(folder.path().join("a/ridgeline.toml"), "").expect("written");
        assert_eq!(project_root(&file, Some(folder.path())), folder.path().join("a"));
    }
}
