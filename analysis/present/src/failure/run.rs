//! What is known of the run around a failure: advice names its program, its Python and its device.

use ridgeline_recording::manifest::FailureFacts;

/// What ran, and how far it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// What else is known of the exception.
    pub error: FailureFacts,
    /// The text of the innermost frame's line, as the file has it now; empty where unknown.
    pub source: String,
    /// As a person names it: `train.py`, `python -m package.train`.
    pub program: String,
    /// The program's own arguments.
    pub arguments: Vec<String>,
    /// The Python, as it may be shown to whoever reads this.
    pub python: String,
    /// `3.12.1`.
    pub python_version: String,
    /// `2.15.0+cpu`.
    pub torch: String,
    /// Whether this torch was built for CUDA or ROCm; nothing where unknown.
    pub torch_has_gpu: Option<bool>,
    /// What was asked for: `auto`, `cpu`, `cuda:1`.
    pub device: String,
    /// Relative to the project's root; empty for the root itself.
    pub working_directory: String,
    /// Whether writing was denied.
    pub writes_denied: bool,
    /// Whether a launcher starts its processes.
    pub has_launcher: bool,
    /// The time limit, in seconds.
    pub seconds: u64,
    /// The memory limit, in bytes.
    pub memory_bytes: u64,
    /// Files and folders of the project by the name that the program looked for in vain, relative to the
    /// root.
    pub elsewhere: Vec<String>,
    /// The last lines of what it printed.
    pub output: Vec<String>,
    /// Iterations that ended; nothing where unknown.
    pub iterations: Option<u32>,
    /// SignalCounts of training that were seen.
    pub signals: SignalCounts,
    /// What it was doing when it was ended from outside.
    pub end: End,
}

/// How often what marks an iteration was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalCounts {
    /// Steps of an optimizer.
    pub optimizer: u64,
    /// Backward passes.
    pub backward: u64,
    /// Calls of a whole model.
    pub module: u64,
}

/// Where and how a run was ended that raised nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The stage: `starting`, `warm-up`, `timing`, `profiling`, `saving`.
    pub stage: String,
    /// Steps of that stage that were done.
    pub done: u64,
    /// What a library was doing for the innermost line: `import transformers`, `data`, `network`.
    pub activity: String,
    /// The exit code.
    pub code: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
}

/// Who reads a message, which names what they can set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// A person at a terminal, or a program that reads JSON: options of the command line.
    #[default]
    Terminal,
    /// A person in an editor: settings of the project.
    Editor,
}

impl RunFacts {
    /// How the program gets arguments, such as `--dataset …`.
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

    /// What to set, for the end of a sentence that begins with `set`.
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

    /// What is named on the command line.
    pub fn path(&self) -> &str {
        match self.program.as_str() {
            program if program.is_empty() || program.starts_with("python -m ") => ".",
            program => program,
        }
    }

    /// The folder that relative paths of the program are looked up from.
    pub fn looked_up_from(&self) -> String {
        match self.working_directory.as_str() {
            "" | "." => "the project folder".to_owned(),
            folder => format!("{folder}/"),
        }
    }

    /// The Python's version as `(3, 12)`.
    pub fn python_minor(&self) -> Option<(u32, u32)> {
        let mut parts = self.python_version.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    }
}
