//! The command line and its exit codes. Each subcommand has a file.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ridgeline_analysis::recording::chrome_trace::DEFAULT_MEMORY_BYTES;

use self::exit::Failure;
use crate::config::SideEffects;

mod analyze;
mod annotate;
mod apply;
mod cell;
mod check;
mod compare;
mod demo;
mod doctor;
mod edits;
#[cfg(feature = "evaluate")]
mod evaluate;
mod exit;
mod gpu_batches;
mod latest;
mod lsp;
mod mcp;
mod measure_device;
mod output_file;
mod panel;
mod predict;
mod profile;
mod recorded;
mod report;
mod run;
mod run_findings;
mod script_choice;
mod self_check;
mod setup;
mod show;
mod terminal;
mod tune;
mod typed_command;
mod whatif;

/// Time, memory and throughput of PyTorch training, on the lines of your code.
#[derive(Debug, Parser)]
#[command(name = "ridgeline", version, about, after_help = exit::HELP, disable_help_subcommand = true)]
struct Cli {
    /// When to use colors in the output.
    ///
    /// `auto` uses colors in a terminal and respects NO_COLOR, CLICOLOR and CLICOLOR_FORCE.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    color: Color,

    /// Run the language server, like `ridgeline lsp`: some editors add this option.
    #[arg(long, hide = true)]
    stdio: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

/// When to use colors in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    /// In a terminal.
    Auto,
    /// Even if the output is a file or a pipe.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Profile the ResNet-50 demo and print its source with costs in the margin.
    Demo(DemoArgs),
    /// Profile a few iterations of a training loop and show what each line costs.
    Profile(Box<ProfileArgs>),
    /// Predict iteration time, memory and price on other GPUs.
    Predict(Box<PredictArgs>),
    /// Estimate the speedup and memory savings of optimizations.
    Whatif(Box<WhatifArgs>),
    /// Try optimizations, and keep those that are measured to help and train the same.
    Tune(Box<TuneArgs>),
    /// Compare two runs and report significant changes.
    Compare(CompareArgs),
    /// Profile a project and check it against a baseline and budgets.
    Check(Box<CheckArgs>),
    /// Summarize a torch.profiler trace or a Ridgeline recording.
    Analyze(AnalyzeArgs),
    /// Print a file with the costs of the latest run in the margin, like `git blame`.
    Annotate(AnnotateArgs),
    /// Write the latest profile of a project as an HTML page.
    Report(ReportArgs),
    /// Serve the panel of a project, a recording or a trace until interrupted.
    Panel(PanelArgs),
    /// Evaluate predictions against a folder of measurements, compared with trivial predictors.
    #[cfg(feature = "evaluate")]
    Evaluate(evaluate::EvaluateArgs),
    /// Run the language server on standard input and output.
    Lsp(LspArgs),
    /// Serve costs, findings and predictions to coding agents (Model Context Protocol on standard
    /// input and output).
    Mcp(McpArgs),
    /// Show the Python, torch, GPU, driver and CPU cores found on this machine, and how to fix
    /// problems.
    Doctor(DoctorArgs),
    /// Check that this installation works: folders, analysis, language server and panel.
    SelfCheck,
    /// Measure one GPU in this process and print its rates as JSON (used by `doctor --measure` and
    /// the server).
    #[command(hide = true)]
    MeasureDevice(MeasureDeviceArgs),
    /// Prepare the recording of a cell in a notebook's kernel, or print it (used by the
    /// `%%ridgeline` magic).
    #[command(hide = true, subcommand)]
    Cell(CellCommand),
    /// Create a private Python environment with torch in the user's cache folder.
    Setup,
}

/// The requests of the `%%ridgeline` magic: JSON on standard input.
#[derive(Debug, Subcommand)]
enum CellCommand {
    /// Unpack the agent, create the folder of a recording, and print both as JSON.
    Begin,
    /// Add a recording to the project's history and print the cell with its costs.
    End,
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// Use this Python with torch instead of finding or creating one.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Device to run on: `auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Write the report to this file instead of the cache folder.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What to run, and how.
#[derive(Debug, Args)]
struct RunArgs {
    /// Use this Python instead of the one found.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Device to run on: `auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Number of iterations to time without a profiler.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: Option<u32>,
    /// Stop the run after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// What to do with files the program writes [default: redirect, which keeps them off the disk].
    #[arg(long, value_name = "MODE", value_enum)]
    side_effects: Option<SideEffects>,
    /// After `--`: the program's own arguments, or a whole command such as `python -m package.train
    /// --lr 0.1`.
    #[arg(last = true, value_name = "COMMAND OR ARGUMENTS")]
    arguments: Vec<String>,
}

#[derive(Debug, Args)]
struct ProfileArgs {
    /// Training script, project folder, or Skyline or DeepView provider file [default: .].
    ///
    /// Without a path, the words after `--` can be the command that starts the program: `ridgeline
    /// profile -- torchrun --nproc-per-node 2 train.py --epochs 1`.
    path: Option<PathBuf>,
    /// Batch size for a provider file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// Launcher of the script's processes: "torchrun --nproc-per-node 2", "srun -n 4", "ssh host".
    #[arg(long, value_name = "COMMAND")]
    launcher: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    /// Write the profile as JSON to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report to this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Also print the source with costs in the margin.
    #[arg(long)]
    lines: bool,
    /// Show all findings instead of the three most expensive.
    #[arg(long)]
    findings: bool,
}

/// Parses a price in US dollars.
fn max_price(text: &str) -> Result<f64, String> {
    let usd = text.trim_start_matches('$').parse::<f64>().ok();
    let usd = usd.filter(|usd| usd.is_finite() && *usd > 0.0);
    usd.ok_or_else(|| "expected a number of US dollars, such as 1.50".to_owned())
}

#[derive(Debug, Args)]
struct PredictArgs {
    /// What to run (as for `profile`), a recording folder, or a Kineto trace [default: .].
    path: Option<PathBuf>,
    /// GPU names, or files that each describe a GPU; `all` for all known GPUs.
    #[arg(long, value_name = "NAME", num_args = 1.., default_value = "all")]
    gpu: Vec<String>,
    /// Only GPUs and machines of several that cost at most this many US dollars per hour. GPUs without a price are left out.
    #[arg(long, value_name = "USD", value_parser = max_price)]
    max_price: Option<f64>,
    /// Batch sizes to predict for; by default, the program's own.
    #[arg(long, value_name = "N", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Vec<u32>,
    /// Predict from operators only, by running the program on fake tensors.
    #[arg(long)]
    estimate: bool,
    /// Run the program even if nothing has changed since it was profiled.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    run: RunArgs,
    /// Write the predictions as JSON to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct WhatifArgs {
    /// What to run (as for `profile`), a recording folder, or a Kineto trace [default: .].
    path: Option<PathBuf>,
    /// Optimizations to evaluate; by default, all.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Number of GPUs for data-parallel optimizations.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    gpus: Option<u32>,
    /// Bandwidth between these GPUs, in Gbit/s per direction; append `GB/s` for bytes.
    #[arg(long, value_name = "GBPS", requires = "gpus")]
    bandwidth: Option<String>,
    /// Also measure these optimizations by running the program with and without each edit. No files
    /// are changed.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    measure: Vec<String>,
    /// Show the edits of these optimizations or fixes as one patch. The name of a finding's rule stands
    /// for the fixes of all its findings. In a terminal, asks whether to write them.
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with_all = ["only", "measure", "json"])]
    apply: Vec<String>,
    /// Write the changes of `--apply` without asking.
    #[arg(long, requires = "apply")]
    yes: bool,
    /// Memory limit for combinations, such as `16 GB`; by default, the device memory.
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Run the program even if nothing has changed since it was profiled.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    run: RunArgs,
    /// Write the predictions as JSON to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct TuneArgs {
    /// What to run, as for `profile` [default: .].
    path: Option<PathBuf>,
    /// Maximum peak memory, such as `16 GB`; by default, the device memory.
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Number of optimizations to try, those with the largest predicted speedup first.
    #[arg(long, value_name = "N", default_value_t = 6)]
    at_most: usize,
    /// Write the changes as a patch to this file.
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// Write what was tried and kept as JSON to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the changes to the program without asking.
    #[arg(long)]
    yes: bool,
    /// Profile the program even if nothing has changed since it was profiled.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// The earlier run; if omitted, lists the project's runs.
    ///
    /// `last`, `last~1`, a run number from the list, a commit such as `HEAD~1`, a recording folder,
    /// a trace, or the output of `profile --json` or `check --write-baseline`.
    before: Option<String>,
    /// The later run.
    #[arg(default_value = "last")]
    after: String,
    /// The project whose runs to compare.
    #[arg(long, value_name = "PATH", default_value = ".")]
    project: PathBuf,
    /// Write the comparison as JSON to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the comparison as Markdown to this file (`-` for standard output), for a comment on a
    /// pull request.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// What to run (as for `profile`), a recording folder, or a Kineto trace [default: .].
    path: Option<PathBuf>,
    /// Baseline to compare with: output of `--write-baseline` or `profile --json`, a recording or a
    /// trace.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write a baseline for later runs to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Maximum increase of iteration time and peak memory over the baseline [default: 5%].
    #[arg(long, value_name = "PERCENT")]
    max_regression: Option<String>,
    /// Maximum peak memory of an iteration, such as `16 GB`.
    #[arg(long, value_name = "SIZE")]
    max_memory: Option<String>,
    /// Maximum iteration time in milliseconds.
    #[arg(long, value_name = "MS")]
    max_time: Option<String>,
    /// Maximum number of findings at a severity and above: `warning/0`, `information/5`, `hint/20`.
    #[arg(long, value_name = "SEVERITY/N", num_args = 1..)]
    max_findings: Vec<String>,
    /// Fail if something cannot be checked, such as a baseline from another device or unavailable
    /// findings.
    #[arg(long)]
    strict: bool,
    /// Output format of the check.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = check::Format::Text)]
    format: check::Format,
    /// Write the check to this file, and a text summary to standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Batch size for a provider file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// Launcher of the script's processes: "torchrun --nproc-per-node 2", "srun -n 4", "ssh host".
    #[arg(long, value_name = "COMMAND")]
    launcher: Option<String>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Args)]
struct AnalyzeArgs {
    /// Kineto trace (`.json` or `.json.gz`) or recording folder.
    trace: PathBuf,
    /// Write the summary as JSON to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Number of kernels, operators and lines to list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Reject traces that need more memory than this, in megabytes.
    #[arg(long, value_name = "MB", default_value_t = DEFAULT_MEMORY_BYTES / 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_memory: u64,
}

#[derive(Debug, Args)]
struct AnnotateArgs {
    /// Python file that the latest run executed.
    file: PathBuf,
    /// Print only these lines.
    #[arg(long, short = 'L', value_name = "START,END", value_parser = annotate::lines)]
    lines: Option<RangeInclusive<u32>>,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// Project folder or a file in it.
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Write the report to this file instead of next to the recording.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct PanelArgs {
    /// Project folder or a file in it, recording folder, or Kineto trace.
    #[arg(default_value = ".")]
    path: PathBuf,
}

#[derive(Debug, Args)]
struct LspArgs {
    /// Accepted for editors that add it; standard input and output are always used.
    #[arg(long)]
    stdio: bool,
}

#[derive(Debug, Args)]
struct McpArgs {
    /// Let tools run code in this folder without asking; can be repeated.
    #[arg(long, value_name = "FOLDER")]
    allow: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct DoctorArgs {
    /// Project whose configuration and environments are checked first.
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Check this Python instead of the one found.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Also start the agent, which imports torch: checks that it starts, whether its sandbox works, and whether
    /// torch sees the GPU.
    #[arg(long)]
    full: bool,
    /// Measure copy bandwidth, GEMM rates and launch latency of each GPU to improve predictions
    /// (about 10 s).
    #[arg(long)]
    measure: bool,
}

#[derive(Debug, Args)]
struct MeasureDeviceArgs {
    /// CUDA driver index of the GPU.
    index: u32,
}

/// Parses the command line, runs the subcommand and returns the exit code.
pub(crate) fn main() -> ExitCode {
    main_with(std::env::args_os())
}

fn main_with(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Clap prints `--help` and `--version` through this path, too. A closed pipe is not
            // worth a message.
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE.into() } else { exit::OK.into() };
        }
    };
    let terminal = terminal::Terminal::new(cli.color);
    let written = cli.command.as_ref().map(output_files).unwrap_or_default();
    for (option, file) in written {
        if let Err(failure) = output_file::check(option, file) {
            return failure.print(&terminal);
        }
    }
    let outcome = match cli.command {
        Some(Command::Demo(args)) => demo::run(&args, &terminal),
        Some(Command::Profile(args)) => profile::run(&args, &terminal),
        Some(Command::Predict(args)) => predict::run(&args, &terminal),
        Some(Command::Whatif(args)) => whatif::run(&args, &terminal),
        Some(Command::Tune(args)) => tune::run(&args, &terminal),
        Some(Command::Compare(args)) => compare::run(&args, &terminal),
        Some(Command::Check(args)) => check::run(&args, &terminal),
        Some(Command::Analyze(args)) => analyze::run(&args, &terminal),
        Some(Command::Annotate(args)) => annotate::run(&args, &terminal),
        Some(Command::Report(args)) => report::run(&args, &terminal),
        Some(Command::Panel(args)) => panel::run(&args, &terminal),
        #[cfg(feature = "evaluate")]
        Some(Command::Evaluate(args)) => evaluate::run(&args, &terminal),
        Some(Command::Lsp(_)) => lsp::run(),
        Some(Command::Mcp(args)) => mcp::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args, &terminal),
        Some(Command::SelfCheck) => self_check::run(&terminal),
        Some(Command::MeasureDevice(args)) => measure_device::run(&args, &terminal),
        Some(Command::Cell(CellCommand::Begin)) => cell::begin(&terminal),
        Some(Command::Cell(CellCommand::End)) => cell::end(&terminal),
        Some(Command::Setup) => setup::run(&terminal),
        None if cli.stdio => lsp::run(),
        None => Err(Failure::usage(
            "no command given",
            "Try `ridgeline demo`, or list the commands with `ridgeline --help`",
        )),
    };
    match outcome {
        Ok(()) => exit::OK.into(),
        Err(failure) => failure.print(&terminal),
    }
}

/// The output files of a command, with their options.
fn output_files(command: &Command) -> Vec<(&'static str, &Path)> {
    let named = match command {
        Command::Demo(args) => vec![("--report", &args.report)],
        Command::Profile(args) => vec![("--json", &args.json), ("--report", &args.report)],
        Command::Predict(args) => vec![("--json", &args.json)],
        Command::Whatif(args) => vec![("--json", &args.json)],
        Command::Tune(args) => vec![("--json", &args.json), ("--patch", &args.patch)],
        Command::Compare(args) => vec![("--json", &args.json)],
        Command::Check(args) => {
            vec![("--output", &args.output), ("--write-baseline", &args.write_baseline)]
        }
        Command::Analyze(args) => vec![("--json", &args.json)],
        Command::Report(args) => vec![("--output", &args.output)],
        #[cfg(feature = "evaluate")]
        Command::Evaluate(args) => vec![("--json", &args.json)],
        Command::Annotate(_)
        | Command::Panel(_)
        | Command::Lsp(_)
        | Command::Mcp(_)
        | Command::Doctor(_)
        | Command::SelfCheck
        | Command::MeasureDevice(_)
        | Command::Cell(_)
        | Command::Setup => Vec::new(),
    };
    named.into_iter().filter_map(|(option, file)| Some((option, file.as_deref()?))).collect()
}
