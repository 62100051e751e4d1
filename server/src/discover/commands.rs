//! The commands that a project's files hold, and which of its Python files each starts.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use ridgeline_analysis::commands::{self, Command, Program, WORKSPACE_FOLDER, Written};

use super::imports::module_below;
use super::run::Run;
use super::{Files, normal};

/// A kind of file that holds commands, in the order in which they are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    LaunchJson,
    Readme,
    Makefile,
    ShellScript,
    EntryPoints,
}

impl Kind {
    /// What a file of that path holds.
    pub(super) fn of(path: &Path) -> Option<Kind> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        match name.as_str() {
            "makefile" | "gnumakefile" => Some(Kind::Makefile),
            "pyproject.toml" | "setup.cfg" => Some(Kind::EntryPoints),
            "launch.json" => Some(Kind::LaunchJson),
            _ if name.ends_with(".sh") => Some(Kind::ShellScript),
            "readme" | "readme.md" | "readme.rst" | "readme.txt" => Some(Kind::Readme),
            _ => None,
        }
    }

    pub(super) fn read(self, text: &str) -> Vec<Written> {
        match self {
            Kind::LaunchJson => commands::launch_configurations(text),
            Kind::Readme => commands::in_readme(text),
            Kind::Makefile => commands::in_makefile(text),
            Kind::ShellScript => commands::in_shell_script(text),
            Kind::EntryPoints => commands::entry_points(text),
        }
    }
}

/// A run that a file of the project describes.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) run: Run,
    pub(super) kind: Kind,
    /// Less is better: what speaks against taking it as it is.
    pub(super) doubts: Doubts,
    /// The file that it is from: `README.md`.
    pub(super) file: String,
}

/// What speaks against a command, the weightiest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Doubts {
    is_incomplete: bool,
    misses_files: bool,
    wants_gpu: bool,
    /// It evaluates, or prepares data.
    pub(super) is_other_task: bool,
    is_launched: bool,
    /// There is no GPU, and it does not ask for the CPU.
    is_not_for_cpu: bool,
}

impl Doubts {
    /// It is better to start the program without arguments.
    pub(super) fn are_serious(self) -> bool {
        self.is_incomplete || self.misses_files || self.wants_gpu || self.is_other_task
    }
}

/// Variables that choose devices and machines, or change what Python is: of those in a project's files
/// none is taken. They belong to the machine that they were written on.
const NOT_TAKEN: [&str; 14] = [
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

/// The run that a command of a file describes, where it starts a Python file of the project.
pub(super) fn described(
    root: &Path,
    files: &Files,
    file: &Path,
    kind: Kind,
    written: &Written,
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
    let (path, module, base) = found.or_else(|| only_below(files, program))?;
    // Where the program was found from the root, it still runs in the folder that is asked for.
    let base = bases.into_iter().next_back().filter(|_| kind == Kind::LaunchJson).unwrap_or(base);
    let in_workspace = |text: &String| text.replace(WORKSPACE_FOLDER, &root.to_string_lossy());
    let arguments: Vec<String> = arguments.iter().map(in_workspace).collect();
    let environment: BTreeMap<String, String> = environment
        .iter()
        .filter(|(name, _)| {
            let is_not = NOT_TAKEN.contains(&name.as_str());
            !is_not && !name.starts_with("NCCL_") && !name.starts_with("LD_")
        })
        .map(|(name, value)| (name.clone(), in_workspace(value)))
        .collect();
    let doubts = Doubts {
        is_incomplete: !written.is_complete,
        misses_files: misses_files(root, &base, &arguments),
        wants_gpu: !has_gpu && arguments.iter().any(|argument| wants_gpu(argument)),
        is_other_task: is_other_task(&arguments),
        is_launched: !launcher.is_empty(),
        is_not_for_cpu: !has_gpu && !arguments.iter().any(|argument| wants_cpu(argument)),
    };
    let file = file.to_string_lossy().replace('\\', "/");
    let what = match (kind, &written.name) {
        (Kind::LaunchJson, Some(name)) => format!("configuration \"{name}\" from "),
        (Kind::Makefile, Some(target)) => format!("target {target} from "),
        (Kind::EntryPoints, Some(name)) => format!("command {name} from "),
        _ => "command from ".to_owned(),
    };
    let origin = format!("{what}{file}:{}", written.line);
    let run = Run {
        path,
        module,
        arguments,
        environment,
        launcher: one_process(launcher),
        folder: Some(base).filter(|base| !base.as_os_str().is_empty()),
        origin: Some(origin),
    };
    Some(Described { run, kind, doubts, file })
}

/// A launcher of a project's file as it is used here: one process on this machine, however many machines
/// the command was written for. What needs no launcher with one process gets none, and what reaches other
/// machines is never taken from a file.
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

/// A README may leave out the folder that its readers are in, where only one script can be meant.
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

/// A path below a folder of the project, which may lead up as far as the root.
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

/// Whether the arguments name files to read that are not there. Folders may be made by the program.
fn misses_files(root: &Path, base: &Path, arguments: &[String]) -> bool {
    const READ: [&str; 17] = [
        "yaml", "yml", "json", "jsonl", "toml", "py", "cfg", "ini", "txt", "csv", "parquet", "pt",
        "pth", "ckpt", "npz", "npy", "h5",
    ];
    let mut option = "";
    arguments.iter().any(|argument| {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with('-') => (name, value),
            _ => (option, argument.as_str()),
        };
        option = if argument.starts_with('-') { argument } else { "" };
        let name = name.to_lowercase();
        let writes = ["out", "save", "log", "dest", "name", "export"];
        if writes.iter().any(|word| name.contains(word)) || value.contains("://") {
            return false;
        }
        let extension = Path::new(value).extension().and_then(|it| it.to_str());
        extension.is_some_and(|it| READ.contains(&it))
            && ![root.join(base).join(value), root.join(value)].iter().any(|path| path.exists())
    })
}

/// Whether the arguments ask for something other than training from the start.
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
    command.is_some()
        || arguments.iter().any(|argument| {
            let name = argument.strip_prefix("--").unwrap_or_default();
            let name = name.strip_suffix("-only").or(name.strip_suffix("_only")).unwrap_or(name);
            TASKS.contains(&name)
        })
}

pub(super) fn wants_cpu(argument: &str) -> bool {
    let lower = argument.to_lowercase();
    let value = lower.rsplit('=').next().unwrap_or_default();
    value == "cpu" || matches!(lower.as_str(), "--cpu" | "--no-cuda" | "--no_cuda" | "--no-accel")
}

fn wants_gpu(argument: &str) -> bool {
    let lower = argument.to_lowercase();
    let value = lower.rsplit('=').next().unwrap_or_default();
    matches!(lower.as_str(), "--cuda" | "--gpu" | "--gpus" | "--use_cuda" | "--use-cuda")
        || lower.starts_with("--gpus=")
        || value == "cuda"
        || value.starts_with("cuda:")
        || value == "gpu"
}
