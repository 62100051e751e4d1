//! Facts about the run that failed: advice names its program, its Python and its device.

use std::borrow::Cow;

use ridgeline_python::DeclaredOption;
use ridgeline_recording::manifest::FailureFacts;

/// A module in C++, CUDA or Cython that is not built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnbuiltModule {
    /// The `setup.py` that builds it, or its file in Cython, relative to the root.
    pub source: String,
    /// Whether building it needs PyTorch.
    pub needs_torch: bool,
}

/// The program, its settings and its progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// Details of the exception.
    pub error: FailureFacts,
    /// The current text of the innermost frame's line; empty if unknown.
    pub source: String,
    /// The program as displayed: `train.py`, `python -m package.train`.
    pub program: String,
    /// The program's own arguments.
    pub arguments: Vec<String>,
    /// The path of the Python interpreter, as displayed.
    pub python: String,
    /// `3.12.1`.
    pub python_version: String,
    /// `2.15.0+cpu`.
    pub torch: String,
    /// Whether torch was built for CUDA or ROCm. `None` if unknown.
    pub torch_has_gpu: Option<bool>,
    /// The arguments that make the program use the CPU, if it uses a GPU by default and declares such
    /// an option: `--device cpu`.
    pub cpu_option: Option<String>,
    /// Whether the script starts processes by the number of GPUs: `mp.spawn(main, nprocs=torch.cuda.device_count())`.
    pub spawns_by_gpus: bool,
    /// The requested device: `auto`, `cpu`, `cuda:1`.
    pub device: String,
    /// Relative to the project root; empty for the root itself.
    pub working_directory: String,
    /// Whether writes were denied.
    pub writes_denied: bool,
    /// Whether a launcher starts the processes.
    pub has_launcher: bool,
    /// The time limit, in seconds.
    pub seconds: u64,
    /// The memory limit, in bytes.
    pub memory_bytes: u64,
    /// Files and folders in the project with the name that the program did not find, relative to
    /// the root.
    pub found_paths: Vec<String>,
    /// If the missing module is compiled code of the project that is not built.
    pub unbuilt: Option<UnbuiltModule>,
    /// Scripts beside the missing file whose names say that they create data, relative to the root:
    /// `data/openwebtext/prepare.py`.
    pub preparing_scripts: Vec<String>,
    /// The names of files with the ending of the missing one in its folder, if it is in the project:
    /// `Video.txt`.
    pub similar_files: Vec<String>,
    /// The options that the program declares, if it raised an exception.
    pub options: Vec<DeclaredOption>,
    /// The subcommands that the script declares, as arguments: `train`, `--mode train`.
    pub subcommands: Vec<String>,
    /// Commands in the project's files that start the program, with their place: `README.md:14:
    /// python train.py --data DIR`.
    pub commands: Vec<String>,
    /// Commands that come before the program's in the same script, with their place: they may create
    /// what it reads.
    pub commands_before: Vec<String>,
    /// Shell commands of a notebook's cells up to the failure, with their place: `train.ipynb#2:1: wget URL`. A run
    /// skips them.
    pub notebook_commands: Vec<String>,
    /// The last lines of output.
    pub output: Vec<String>,
    /// Completed iterations. `None` if unknown.
    pub iterations: Option<u32>,
    /// Signs of training that were seen.
    pub signals: SignalCounts,
    /// How the run ended, if it was stopped or crashed.
    pub end: End,
}

/// Counts of the events that mark an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalCounts {
    /// Optimizer steps.
    pub optimizer: u64,
    /// Backward passes.
    pub backward: u64,
    /// Calls of a top-level model.
    pub module: u64,
}

/// How a run ended that did not raise an exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// `starting`, `warm-up`, `timing`, `profiling` or `saving`.
    pub stage: String,
    /// Completed steps of that stage.
    pub done: u64,
    /// What the innermost line was waiting for: `import transformers`, `data`, `network`.
    pub activity: String,
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// The audience of a message, which determines the settings it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// A terminal, or a program that reads JSON: command-line options.
    #[default]
    Terminal,
    /// An editor: project settings.
    Editor,
}

impl RunFacts {
    /// Explains how to pass arguments to the program, such as `--dataset …`.
    pub fn with_arguments(&self, reader: Reader, example: &str) -> String {
        match reader {
            Reader::Terminal => format!(
                "Pass the program's own arguments after `--`: `ridgeline profile {} -- {example}`. \
                To keep them, set `arguments` in ridgeline.toml",
                self.path()
            ),
            Reader::Editor => {
                let words: Vec<String> =
                    example.split(' ').map(|word| format!("\"{word}\"")).collect();
                format!("Set its arguments in ridgeline.toml: `arguments = [{}]`", words.join(", "))
            }
        }
    }

    /// If the program has subcommands and was run without arguments: names them, and how to pass one.
    pub fn with_subcommand(&self, reader: Reader) -> Option<String> {
        const MAX_NAMED: usize = 6;
        let first = self.subcommands.first().filter(|_| self.arguments.is_empty())?;
        let named = self.subcommands.iter().take(MAX_NAMED).map(|it| super::quoted(it).to_string());
        let more = if self.subcommands.len() > MAX_NAMED { ", …" } else { "" };
        Some(format!(
            "The program has subcommands: {}{more}. {}.",
            named.collect::<Vec<_>>().join(", "),
            self.with_arguments(reader, first)
        ))
    }

    /// Names the environment variable to set, for the end of a sentence that begins with "set".
    pub fn with_variable(&self, reader: Reader, name: &str, value: &str) -> String {
        match reader {
            Reader::Terminal => format!(
                "`{name}` (`{name}={value} ridgeline profile {}`, or under [environment] in ridgeline.toml)",
                self.path()
            ),
            Reader::Editor => {
                format!("`{name} = \"{value}\"` under [environment] in ridgeline.toml")
            }
        }
    }

    /// The path to pass to `ridgeline profile`, quoted for a shell if necessary.
    pub fn path(&self) -> Cow<'_, str> {
        match self.program.as_str() {
            program if program.is_empty() || program.starts_with("python -m ") => ".".into(),
            program => quoted_for_shell(program),
        }
    }

    /// Whether the program is a notebook, which takes no arguments.
    pub fn is_notebook(&self) -> bool {
        self.program.ends_with(".ipynb")
    }

    /// The folder that the program's relative paths start at.
    pub fn looked_up_from(&self) -> String {
        match self.working_directory.as_str() {
            "" | "." => "the project folder".to_owned(),
            folder => format!("{folder}/"),
        }
    }

    /// Returns the Python version as `(3, 12)`.
    pub fn python_minor(&self) -> Option<(u32, u32)> {
        let mut parts = self.python_version.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    }
}

/// Quotes a word with characters that a shell interprets.
fn quoted_for_shell(word: &str) -> Cow<'_, str> {
    let is_plain =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '=' | '+' | ',');
    if word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
}
