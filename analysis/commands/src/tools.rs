//! Names of the tools in front of a program: launchers, environment tools, wrappers, interpreters.

/// Commands that run the rest of the line.
pub(super) const WRAPPERS: [&str; 9] =
    ["exec", "nohup", "time", "command", "sudo", "unbuffer", "caffeinate", "xvfb-run", "winpty"];
/// Commands that run the rest of the line, with options and values of their own in front of it.
pub(super) const WRAPPERS_WITH_OPTIONS: [&str; 7] =
    ["nice", "ionice", "taskset", "numactl", "timeout", "chrt", "stdbuf"];
/// Tools that run a command in an environment: `uv run`, `poetry run`.
pub(super) const ENVIRONMENT_TOOLS: [&str; 10] =
    ["uv", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi", "conda", "mamba", "micromamba"];
/// Options of those tools that take a value.
pub(super) const TOOL_OPTIONS_WITH_VALUE: [&str; 27] = [
    "--with",
    "--with-editable",
    "--with-requirements",
    "--extra",
    "--group",
    "--only-group",
    "--package",
    "--index",
    "--default-index",
    "--env-file",
    "--python",
    "-p",
    "--project",
    "--directory",
    "-C",
    "-n",
    "--name",
    "--prefix",
    "--cwd",
    "-e",
    "--environment",
    "--manifest-path",
    "-P",
    "--find-links",
    "--refresh-package",
    "--python-platform",
    "--no-group",
];
/// Launchers of processes that take any command. The words in front of the Python interpreter
/// belong to the launcher.
pub(super) const PROCESS_LAUNCHERS: [&str; 5] = ["srun", "mpirun", "mpiexec", "horovodrun", "ssh"];
/// Launchers that take a script.
pub(super) const SCRIPT_LAUNCHERS: [&str; 4] =
    ["torchrun", "deepspeed", "accelerate-launch", "composer"];
/// Modules that launch a script, as in `python -m`.
pub(super) const LAUNCHER_MODULES: [&str; 5] = [
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.runner",
];
/// Options of launchers that take no value.
pub(super) const LAUNCHER_FLAGS: [&str; 28] = [
    "--standalone",
    "--module",
    "-m",
    "--no-python",
    "--no_python",
    "--run-path",
    "--run_path",
    "--virtual-local-rank",
    "--use-env",
    "--use_env",
    "--multi-gpu",
    "--multi_gpu",
    "--cpu",
    "--tpu",
    "--xpu",
    "--use_xpu",
    "--use-deepspeed",
    "--use_deepspeed",
    "--use_fsdp",
    "--use-fsdp",
    "--use_megatron_lm",
    "--quiet",
    "-q",
    "--debug",
    "--same_network",
    "--no_local_rank",
    "--force_multi",
    "--ipex",
];
/// Debuggers and profilers that run a script themselves, as in `python -m`.
pub(super) const DEBUGGERS_AND_PROFILERS: [&str; 11] = [
    "pdb",
    "ipdb",
    "pudb",
    "cProfile",
    "profile",
    "trace",
    "debugpy",
    "scalene",
    "memray",
    "viztracer",
    "pyinstrument",
];

/// Whether a word starts a command, rather than the arguments of an already known program.
pub fn begins_a_program(word: &str) -> bool {
    let name = base_name(word);
    is_python(name)
        || is_python_file(word)
        || ENVIRONMENT_TOOLS.contains(&name)
        || SCRIPT_LAUNCHERS.contains(&name)
        || PROCESS_LAUNCHERS.contains(&name)
        || matches!(name, "accelerate" | "env" | "bash" | "sh" | "zsh" | "make")
        || word.ends_with(".sh")
}

/// `python3.11` for `/opt/bin/python3.11` and for `C:\Python\python3.11.exe`.
pub(super) fn base_name(word: &str) -> &str {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    name.strip_suffix(".exe").unwrap_or(name)
}

pub(super) fn is_python(name: &str) -> bool {
    let rest = ["python", "pypy"].iter().find_map(|prefix| name.strip_prefix(prefix));
    name == "py"
        || rest.is_some_and(|it| {
            it.trim_end_matches(['w', 't']).chars().all(|c| c.is_ascii_digit() || c == '.')
        })
}

pub(super) fn is_python_file(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    !word.starts_with('-') && (word.ends_with(".py") || word.ends_with(".pyw"))
}
