//! The command line: what it accepts, and what its exit codes mean. Each subcommand has a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ridgeline_analysis::recording::chrome_trace::DEFAULT_MEMORY_BYTES;

use self::exit::Failure;
use crate::config::SideEffects;

mod analyze;
mod check;
mod compare;
mod demo;
mod doctor;
#[cfg(feature = "evaluate")]
mod evaluate;
mod exit;
mod found;
mod lsp;
mod measure_device;
mod output_file;
mod panel;
mod predict;
mod profile;
mod recorded;
mod report;
mod run;
mod setup;
mod show;
mod terminal;
mod typed_command;
mod whatif;

/// What each line of PyTorch training code costs: time, memory and throughput.
#[derive(Debug, Parser)]
#[command(name = "ridgeline", version, about, after_help = exit::HELP, disable_help_subcommand = true)]
struct Cli {
    /// When to colour what is printed.
    ///
    /// `auto` colours where a terminal is, and respects NO_COLOR, CLICOLOR and CLICOLOR_FORCE.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    color: Color,

    /// Speak the language server protocol, as `ridgeline lsp` does: some editors append it.
    #[arg(long, hide = true)]
    stdio: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

/// When to colour what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    /// Where a terminal is.
    Auto,
    /// Even into a file or a pipe.
    Always,
    /// Nowhere.
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Profile the ResNet-50 demo and print its source with costs in the margin.
    Demo(DemoArgs),
    /// Run a few iterations of a project's training loop and show what each line costs.
    Profile(Box<ProfileArgs>),
    /// Say how long an iteration would take on other GPUs, and what it would cost there.
    Predict(Box<PredictArgs>),
    /// Say what optimizations would bring: time, memory, and the lines that they touch.
    Whatif(Box<WhatifArgs>),
    /// Show two runs side by side, with noise told from change.
    Compare(CompareArgs),
    /// Run a project as `profile` does and hold it to a baseline and to budgets.
    Check(Box<CheckArgs>),
    /// Summarize a trace that torch.profiler recorded, or a recording of Ridgeline's.
    Analyze(AnalyzeArgs),
    /// Write the newest profile of a project as a page to open in a browser.
    Report(ReportArgs),
    /// Serve the panel of a project, a recording or a trace, until it is interrupted.
    Panel(PanelArgs),
    /// Judge predictions by a folder of measurements, beside trivial answers to the same cases.
    #[cfg(feature = "evaluate")]
    Evaluate(evaluate::EvaluateArgs),
    /// Speak the language server protocol over standard input and output.
    Lsp(LspArgs),
    /// Say what was found on this machine (interpreter, torch, GPU, driver, cores) and what to do.
    Doctor(DoctorArgs),
    /// Measure one GPU in this process and print its rates as JSON. `doctor --measure` and the server start it.
    #[command(hide = true)]
    MeasureDevice(MeasureDeviceArgs),
    /// Make a private Python environment with torch, under the user's cache folder.
    Setup,
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// A Python with torch to use, instead of finding or making one.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Where to run: `auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Write the report here instead of into the cache folder.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What is run, and how.
#[derive(Debug, Args)]
struct RunArgs {
    /// The Python to run it with, instead of the one found.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Where to run: `auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// How many iterations to time without a profiler.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: Option<u32>,
    /// Stop the run after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// What becomes of what the program writes [default: redirect, which keeps it from the disk].
    #[arg(long, value_name = "MODE", value_enum)]
    side_effects: Option<SideEffects>,
    /// After `--`: the program's own arguments, or a whole command such as `python -m package.train --lr 0.1`.
    #[arg(last = true, value_name = "COMMAND OR ARGUMENTS")]
    arguments: Vec<String>,
}

#[derive(Debug, Args)]
struct ProfileArgs {
    /// A training script, a folder with a project, or a Skyline or DeepView provider file [default: .].
    ///
    /// Without it, the words after `--` may be the command that you start the program with:
    /// `ridgeline profile -- torchrun --nproc-per-node 2 train.py --epochs 1`.
    path: Option<PathBuf>,
    /// The batch size that a provider file is asked for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// What starts the processes of the script: "torchrun --nproc-per-node 2", "srun -n 4", "ssh host".
    #[arg(long, value_name = "COMMAND")]
    launcher: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    /// Write the profile as JSON here; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page to open in a browser here.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the source with costs in the margin as well.
    #[arg(long)]
    lines: bool,
    /// Show all findings, not only the three that cost most.
    #[arg(long)]
    findings: bool,
}

#[derive(Debug, Args)]
struct PredictArgs {
    /// What is run as `profile` does, the folder of a recording, or a Kineto trace [default: .].
    path: Option<PathBuf>,
    /// The GPUs: names, or files that describe one each; `all` are those that are known.
    #[arg(long, value_name = "NAME", num_args = 1.., default_value = "all")]
    gpu: Vec<String>,
    /// The batch sizes; without it, the one that the program has.
    #[arg(long, value_name = "N", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Vec<u32>,
    /// Predict from the operators alone: the program runs on tensors that hold nothing.
    #[arg(long)]
    estimate: bool,
    /// Run the program even if nothing has changed since it was profiled.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    run: RunArgs,
    /// Write the predictions as JSON here; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct WhatifArgs {
    /// What is run as `profile` does, the folder of a recording, or a Kineto trace [default: .].
    path: Option<PathBuf>,
    /// The optimizations; without it, all of them.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Train on so many GPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    gpus: Option<u32>,
    /// Between these GPUs, in gigabits per second and direction; `GB/s` behind the number for bytes.
    #[arg(long, value_name = "GBPS", requires = "gpus")]
    bandwidth: Option<String>,
    /// Measure these as well: the program runs with the edit of each, and without. No file is touched.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    measure: Vec<String>,
    /// What combinations may need at the peak, such as `16 GB`; without it, what the device has.
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Run the program even if nothing has changed since it was profiled.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    run: RunArgs,
    /// Write the predictions as JSON here; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// The earlier run; without it, the project's runs are listed.
    ///
    /// `last`, `last~1`, a run's number in the list, a commit such as `HEAD~1`, the folder of a
    /// recording, a trace, or what `profile --json` or `check --write-baseline` wrote.
    before: Option<String>,
    /// The later run.
    #[arg(default_value = "last")]
    after: String,
    /// The project whose runs are meant.
    #[arg(long, value_name = "PATH", default_value = ".")]
    project: PathBuf,
    /// Write the comparison as JSON here; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// What is run as `profile` does, the folder of a recording, or a Kineto trace [default: .].
    path: Option<PathBuf>,
    /// Compare with this: what `--write-baseline` or `profile --json` wrote, a recording or a trace.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write what later runs are compared with here; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// By how much an iteration may be slower and its peak larger than the baseline's [default: 5%].
    #[arg(long, value_name = "PERCENT")]
    max_regression: Option<String>,
    /// What an iteration may hold at its peak, such as `16 GB`.
    #[arg(long, value_name = "SIZE")]
    max_memory: Option<String>,
    /// Milliseconds that an iteration may take.
    #[arg(long, value_name = "MS")]
    max_time: Option<String>,
    /// How many findings of a severity and above there may be: `warning/0`, `information/5`, `hint/20`.
    #[arg(long, value_name = "SEVERITY/N", num_args = 1..)]
    max_findings: Vec<String>,
    /// Let what cannot be judged fail the check: a baseline of another device, findings that could not be
    /// looked for.
    #[arg(long)]
    strict: bool,
    /// How the check is written.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = check::Format::Text)]
    format: check::Format,
    /// Write it here, and a page for people on standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The batch size that a provider file is asked for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// What starts the processes of the script: "torchrun --nproc-per-node 2", "srun -n 4", "ssh host".
    #[arg(long, value_name = "COMMAND")]
    launcher: Option<String>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Args)]
struct AnalyzeArgs {
    /// A Kineto trace (`.json` or `.json.gz`), or the folder of a recording.
    trace: PathBuf,
    /// Write the summary as JSON here; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How many kernels, operators and lines to list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Refuse a trace that takes more memory than this, in megabytes.
    #[arg(long, value_name = "MB", default_value_t = DEFAULT_MEMORY_BYTES / 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_memory: u64,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// The project's folder, or a file in it.
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Write the page here instead of beside the recording.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct PanelArgs {
    /// The project's folder or a file in it, the folder of a recording, or a Kineto trace.
    #[arg(default_value = ".")]
    path: PathBuf,
}

#[derive(Debug, Args)]
struct LspArgs {
    /// Accepted because editors append it: standard input and output are what is spoken over.
    #[arg(long)]
    stdio: bool,
}

#[derive(Debug, Args)]
struct DoctorArgs {
    /// The project to look from: its configuration and environments are tried first.
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Look at this Python instead of the one found.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Also start the agent, which imports torch: checks that it starts, what confines it, and whether torch sees
    /// the GPU.
    #[arg(long)]
    full: bool,
    /// Measure the copy bandwidth, GEMM rates and launch latency of each GPU (about 10 s), for predictions.
    #[arg(long)]
    measure: bool,
}

#[derive(Debug, Args)]
struct MeasureDeviceArgs {
    /// The CUDA driver's number for the GPU.
    index: u32,
}

/// Parses the command line, runs the subcommand, and says how it went in the exit code.
pub(crate) fn main() -> ExitCode {
    main_with(std::env::args_os())
}

fn main_with(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Clap prints `--help` and `--version` through this path too; a closed pipe is not worth a word.
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
        Some(Command::Compare(args)) => compare::run(&args, &terminal),
        Some(Command::Check(args)) => check::run(&args, &terminal),
        Some(Command::Analyze(args)) => analyze::run(&args, &terminal),
        Some(Command::Report(args)) => report::run(&args, &terminal),
        Some(Command::Panel(args)) => panel::run(&args, &terminal),
        #[cfg(feature = "evaluate")]
        Some(Command::Evaluate(args)) => evaluate::run(&args, &terminal),
        Some(Command::Lsp(_)) => lsp::run(),
        Some(Command::Doctor(args)) => doctor::run(&args, &terminal),
        Some(Command::MeasureDevice(args)) => measure_device::run(&args, &terminal),
        Some(Command::Setup) => setup::run(&terminal),
        None if cli.stdio => lsp::run(),
        None => Err(Failure::usage(
            "no command was given",
            "`ridgeline demo` shows what it does; `ridgeline --help` lists the commands",
        )),
    };
    match outcome {
        Ok(()) => exit::OK.into(),
        Err(failure) => failure.print(&terminal),
    }
}

/// The files that a command is asked to write, each with its option.
fn output_files(command: &Command) -> Vec<(&'static str, &Path)> {
    let named = match command {
        Command::Demo(args) => vec![("--report", &args.report)],
        Command::Profile(args) => vec![("--json", &args.json), ("--report", &args.report)],
        Command::Predict(args) => vec![("--json", &args.json)],
        Command::Whatif(args) => vec![("--json", &args.json)],
        Command::Compare(args) => vec![("--json", &args.json)],
        Command::Check(args) => {
            vec![("--output", &args.output), ("--write-baseline", &args.write_baseline)]
        }
        Command::Analyze(args) => vec![("--json", &args.json)],
        Command::Report(args) => vec![("--output", &args.output)],
        #[cfg(feature = "evaluate")]
        Command::Evaluate(args) => vec![("--json", &args.json)],
        Command::Panel(_)
        | Command::Lsp(_)
        | Command::Doctor(_)
        | Command::MeasureDevice(_)
        | Command::Setup => Vec::new(),
    };
    named.into_iter().filter_map(|(option, file)| Some((option, file.as_deref()?))).collect()
}
