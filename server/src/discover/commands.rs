//! The commands in a project's files, and the Python file that each one starts.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use ridgeline_analysis::commands::{
    self, Command, FoundCommand, InstalledCommands, Program, WORKSPACE_FOLDER,
};

use super::gpu_options;
use super::imports::module_below;
use super::run::Run;
use super::{Files, normal};

/// A kind of file with commands, in descending order of trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    LaunchJson,
    Readme,
    Makefile,
    ShellScript,
    EntryPoints,
}

impl Kind {
    /// The kind of the file at this path.
    pub(super) fn of(path: &Path) -> Option<Kind> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        match name.as_str() {
            "makefile" | "gnumakefile" => Some(Kind::Makefile),
            "pyproject.toml" | "setup.cfg" | "setup.py" => Some(Kind::EntryPoints),
            "launch.json" => Some(Kind::LaunchJson),
            _ if name.ends_with(".sh") => Some(Kind::ShellScript),
            "readme" | "readme.md" | "readme.rst" | "readme.txt" => Some(Kind::Readme),
            _ => None,
        }
    }

    pub(super) fn read(self, text: &str, installed: &InstalledCommands) -> Vec<FoundCommand> {
        match self {
            Kind::LaunchJson => commands::launch_configurations(text),
            Kind::Readme => commands::in_readme(text, installed),
            Kind::Makefile => commands::in_makefile(text, installed),
            Kind::ShellScript => commands::in_shell_script(text, installed),
            Kind::EntryPoints => commands::entry_points(text),
        }
    }
}

/// A run described by a file of the project.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) run: Run,
    pub(super) kind: Kind,
    /// Reasons against using it unchanged. A smaller value is better.
    pub(super) doubts: Doubts,
    /// The file that contains it: `README.md`.
    pub(super) file: String,
    /// The command and its place, for display: `README.md:14: python train.py --data DIR`. Empty if
    /// the file has no command line.
    pub(super) shown: String,
}

/// Reasons against a command, strongest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Doubts {
    is_incomplete: bool,
    misses_files: bool,
    /// It evaluates or prepares data.
    pub(super) is_other_task: bool,
    /// Its data is not on this machine.
    misses_data: bool,
    is_launched: bool,
    /// This machine has no GPU, and the command does not select the CPU.
    is_not_for_cpu: bool,
}

impl Doubts {
    /// Whether it is better to start the program without arguments.
    pub(super) fn are_serious(self) -> bool {
        self.is_incomplete || self.misses_files || self.is_other_task
    }
}

/// Variables that select devices or machines, or change Python itself. They belong to the machine
/// that the command was written for, so they are not taken from a project's files.
const IGNORED_VARIABLES: [&str; 14] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "PATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "HOME",
];

/// The run described by a command, if it starts a Python file of the project.
pub(super) fn described(
    root: &Path,
    files: &Files,
    file: &Path,
    kind: Kind,
    written: &FoundCommand,
    has_gpu: bool,
) -> Option<Described> {
    let Command { program, arguments, environment, launcher, folder, .. } = &written.command;
    let own = if kind == Kind::LaunchJson { None } else { file.parent().map(Path::to_owned) };
    let bases = own.into_iter().chain([PathBuf::new()]);
    let bases: Vec<PathBuf> = bases.filter_map(|base| within(&base, folder.as_deref())).collect();
    let found = bases.iter().chain([&PathBuf::new()]).find_map(|base| {
        let (path, module) = program_file(files, base, program)?;
        Some((path, module, base.clone()))
    });
    let found = found.or_else(|| from_above(root, files, program));
    let (path, module, base) = found.or_else(|| only_below(files, program))?;
    // A program that was found from the root still runs in the requested folder.
    let base = bases.into_iter().next_back().filter(|_| kind == Kind::LaunchJson).unwrap_or(base);
    let in_workspace = |text: &String| text.replace(WORKSPACE_FOLDER, &root.to_string_lossy());
    let arguments: Vec<String> = arguments.iter().map(in_workspace).collect();
    let (arguments, changed) =
        if has_gpu { (arguments, Vec::new()) } else { gpu_options::removed(arguments) };
    let environment: BTreeMap<String, String> = environment
        .iter()
        .filter(|(name, _)| {
            let is_not = IGNORED_VARIABLES.contains(&name.as_str());
            !is_not && !name.starts_with("NCCL_") && !name.starts_with("LD_")
        })
        .map(|(name, value)| (name.clone(), in_workspace(value)))
        .collect();
    let doubts = Doubts {
        is_incomplete: !written.is_complete,
        misses_files: misses_files(root, &base, &arguments),
        is_other_task: is_other_task(&arguments),
        misses_data: misses_data(&root.join(&base), &arguments),
        is_launched: !launcher.is_empty(),
        is_not_for_cpu: !has_gpu && !arguments.iter().any(|argument| wants_cpu(argument)),
    };
    let file = file.to_string_lossy().replace('\\', "/");
    let what = match (kind, &written.name) {
        (Kind::LaunchJson, Some(name)) => format!("configuration \"{name}\" from "),
        (Kind::Makefile, Some(target)) => format!("target {target} from "),
        (Kind::EntryPoints, Some(name)) => format!("command {name} from "),
        (Kind::Readme, Some(script)) => format!("command of {script}, see "),
        _ => "command from ".to_owned(),
    };
    let mut origin = format!("{what}{file}:{}", written.line);
    if !changed.is_empty() {
        origin.push_str(&format!(", without {} because there is no GPU", changed.join(" ")));
    }
    let run = Run {
        path,
        module,
        arguments,
        environment,
        launcher: one_process(launcher),
        folder: Some(base).filter(|base| !base.as_os_str().is_empty()),
        origin: Some(origin),
    };
    let shown = match written.as_written.as_str() {
        "" => String::new(),
        text => format!("{file}:{}: {text}", written.line),
    };
    Some(Described { run, kind, doubts, file, shown })
}

/// Reduces a launcher from a project's file to one process on this machine, whatever the command
/// was written for. A launcher that one process does not need is dropped, and one that reaches
/// other machines is never used.
fn one_process(launcher: &[String]) -> Vec<String> {
    let is_torch = launcher.iter().any(|word| {
        let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
        matches!(name, "torchrun" | "deepspeed") || word.starts_with("torch.distributed.")
    });
    if is_torch {
        ["torchrun", "--standalone", "--nproc-per-node", "1"].map(str::to_owned).to_vec()
    } else {
        Vec::new()
    }
}

fn program_file(
    files: &Files,
    base: &Path,
    program: &Program,
) -> Option<(PathBuf, Option<String>)> {
    match program {
        Program::Script(script) => {
            let path = within(base, Some(&script.replace('\\', "/")))?;
            files.contains_key(&path).then_some((path, None))
        }
        Program::Module(name) => Some((module(files, base, name)?, Some(name.clone()))),
        Program::Function(target) => {
            let (name, _) = target.split_once(':')?;
            Some((module(files, base, name)?, Some(target.clone())))
        }
        Program::Shell(_) | Program::MakeTarget(_) | Program::Other(_) => None,
    }
}

/// Finds a script by a path that starts above the project: a README of a subfolder may be written for
/// the root of its repository.
fn from_above(
    root: &Path,
    files: &Files,
    program: &Program,
) -> Option<(PathBuf, Option<String>, PathBuf)> {
    let Program::Script(script) = program else { return None };
    let script = within(Path::new(""), Some(&script.replace('\\', "/")))?;
    script.ancestors().skip(1).filter(|above| root.ends_with(above)).find_map(|above| {
        let inside = script.strip_prefix(above).ok()?;
        let is_there = above.components().next().is_some() && files.contains_key(inside);
        is_there.then(|| (inside.to_owned(), None, PathBuf::new()))
    })
}

/// Finds a script without its folder: a README may omit the folder, which is accepted if only one
/// script matches.
fn only_below(files: &Files, program: &Program) -> Option<(PathBuf, Option<String>, PathBuf)> {
    let Program::Script(script) = program else { return None };
    let script = within(Path::new(""), Some(&script.replace('\\', "/")))?;
    let mut found = files.keys().filter(|path| path.ends_with(&script));
    let path = found.next().filter(|_| found.next().is_none())?;
    let base = path.ancestors().nth(script.components().count())?;
    Some((path.clone(), None, base.to_owned()))
}

/// The file that `python -m` runs.
pub(super) fn module(files: &Files, base: &Path, name: &str) -> Option<PathBuf> {
    [base.to_owned(), base.join("src")].iter().find_map(|base| {
        let file = module_below(files, base, name)?;
        if !file.ends_with("__init__.py") {
            return Some(file);
        }
        module_below(files, base, &format!("{name}.__main__")).or(Some(file))
    })
}

/// Resolves a path below a folder of the project. `..` may lead up to the root.
fn within(base: &Path, path: Option<&str>) -> Option<PathBuf> {
    let mut result = base.to_owned();
    for component in Path::new(path.unwrap_or_default()).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => result.push(name),
            Component::ParentDir => {
                if !result.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    normal(&result)
}

/// Yields each value among the arguments with the lowercase name of its option, which is empty for
/// positional arguments. An option itself is also the value of the option before it.
fn values(arguments: &[String]) -> impl Iterator<Item = (String, &str)> {
    let mut option = "";
    arguments.iter().map(move |argument| {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with('-') => (name, value),
            _ => (option, argument.as_str()),
        };
        option = if argument.starts_with('-') { argument } else { "" };
        (name.to_lowercase(), value)
    })
}

/// Whether the arguments name input files that do not exist, or a folder of somebody else. Folders may be created by the program.
fn misses_files(root: &Path, base: &Path, arguments: &[String]) -> bool {
    const READ: [&str; 17] = [
        "yaml", "yml", "json", "jsonl", "toml", "py", "cfg", "ini", "txt", "csv", "parquet", "pt",
        "pth", "ckpt", "npz", "npy", "h5",
    ];
    // A file may be named without its folder, which another argument names.
    let here = root.join(base);
    let named = values(arguments).map(|(_, value)| here.join(value));
    let folders: Vec<PathBuf> =
        [here.clone(), root.to_owned()].into_iter().chain(named.filter(|it| it.is_dir())).collect();
    values(arguments).any(|(name, value)| {
        let writes = ["out", "save", "log", "dest", "name", "export"];
        if writes.iter().any(|word| name.contains(word)) || value.contains("://") {
            return false;
        }
        if is_in_unknown_home(value) {
            return true;
        }
        let extension = Path::new(value).extension().and_then(|it| it.to_str());
        extension.is_some_and(|it| READ.contains(&it))
            && !folders.iter().any(|folder| folder.join(value).exists())
    })
}

/// Whether a value names the home folder of somebody who is unknown on this machine.
fn is_in_unknown_home(value: &str) -> bool {
    ["/home/", "/Users/"].iter().any(|homes| {
        let Some((_, inside)) = value.split_once(homes) else { return false };
        let name = inside.split(['/', '\'', '"']).next().unwrap_or_default();
        !name.is_empty() && !Path::new(homes).join(name).is_dir()
    })
}

/// Whether an option for data names a folder that is missing or empty, or an address.
fn misses_data(folder: &Path, arguments: &[String]) -> bool {
    const DATA: [&str; 4] = ["data", "root", "input", "corpus"];
    values(arguments).any(|(name, value)| {
        if !DATA.iter().any(|word| name.contains(word)) || value.starts_with('-') {
            return false;
        }
        if value.contains("://") {
            return true;
        }
        // Anything else may be the name of a dataset.
        let path = folder.join(value);
        value.contains('/')
            && !is_hub_name(folder, value)
            && !path.is_file()
            && !path.read_dir().is_ok_and(|mut it| it.next().is_some())
    })
}

/// Whether a value looks like a dataset of a hub, `owner/name`, rather than a folder.
fn is_hub_name(folder: &Path, value: &str) -> bool {
    const FOLDERS: [&str; 10] = [
        "data",
        "dataset",
        "datasets",
        "input",
        "inputs",
        "corpus",
        "root",
        "raw",
        "processed",
        "tmp",
    ];
    value.split_once('/').is_some_and(|(owner, name)| {
        !owner.starts_with(['.', '~'])
            && !owner.is_empty()
            && !name.is_empty()
            && !name.contains('/')
            && !FOLDERS.contains(&owner.to_lowercase().as_str())
            && !folder.join(owner).is_dir()
    })
}

/// Whether the arguments request something other than training from the start.
fn is_other_task(arguments: &[String]) -> bool {
    const TASKS: [&str; 18] = [
        "help",
        "resume",
        "eval",
        "evaluate",
        "evaluation",
        "test",
        "val",
        "validate",
        "infer",
        "inference",
        "predict",
        "generate",
        "sample",
        "export",
        "download",
        "prepare",
        "preprocess",
        "pretokenize",
    ];
    let command = arguments.first().map(String::as_str).filter(|first| TASKS.contains(first));
    // `-h 128` may be a size.
    let prints_help = arguments.last().is_some_and(|last| last == "-h");
    command.is_some()
        || prints_help
        || arguments.iter().any(|argument| {
            // Some programs have `-eval`.
            let name = argument.trim_start_matches('-');
            if name == argument {
                return false;
            }
            let name = name.strip_suffix("-only").or(name.strip_suffix("_only")).unwrap_or(name);
            TASKS.contains(&name) || name.contains("resume")
        })
}

pub(super) fn wants_cpu(argument: &str) -> bool {
    let lower = argument.to_lowercase();
    let value = lower.rsplit('=').next().unwrap_or_default();
    value == "cpu" || matches!(lower.as_str(), "--cpu" | "--no-cuda" | "--no_cuda" | "--no-accel")
}
