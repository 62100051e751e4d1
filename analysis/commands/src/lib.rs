//! Finds how a program is started: from a command that the user types, or from the commands in a
//! project's files.
//!
//! The input is words and text. Parsing runs nothing.

mod entry_points;
mod launch_json;
mod makefile;
mod placeholder;
mod program;
mod readme;
mod script;
mod shell;
mod tools;

use std::collections::BTreeMap;

pub use entry_points::{entry_points, installed};
pub use launch_json::{WORKSPACE_FOLDER, launch_configurations};
pub use makefile::{in_makefile, make_target};
pub use program::{Refusal, read_command};
pub use readme::in_readme;
pub use script::{in_shell_script, shell_script_with, started_by_script};
pub use tools::begins_a_program;

/// What a command starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// A Python file, as written.
    Script(String),
    /// A module, as in `python -m`.
    Module(String),
    /// A function that an installed command calls: `package.module:function`.
    Function(String),
    /// A shell script.
    Shell(String),
    /// A target of a Makefile.
    MakeTarget(String),
    /// Some other program, which may be an installed command written in Python.
    Other(String),
}

/// A command that starts a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub program: Program,
    /// The arguments of the program itself.
    pub arguments: Vec<String>,
    /// The environment variables that are set for it.
    pub environment: BTreeMap<String, String>,
    /// The Python interpreter, as written: `python3.11`, `.venv/bin/python`.
    pub python: Option<String>,
    /// Interpreter options that change what runs: `-O`, `-X dev`.
    pub python_options: Vec<String>,
    /// The launcher of its processes with its options, without the program: `torchrun
    /// --nproc-per-node 2`.
    pub launcher: Vec<String>,
    /// The folder to run in, relative to the folder of the command's file.
    pub folder: Option<String>,
    /// A tool that runs it in an environment: `uv run`, `conda run`.
    pub environment_tool: Option<String>,
}

/// A command in a file of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCommand {
    /// The command. It has no arguments if `is_complete` is false.
    pub command: Command,
    /// The 1-based line.
    pub line: u32,
    /// Its name in the file: a target of a Makefile, a configuration of `launch.json`.
    pub name: Option<String>,
    /// Whether every word is literal: no placeholder, and no variable that only a shell can expand.
    pub is_complete: bool,
    /// The command for display, with its placeholders.
    pub as_written: String,
}

/// The commands that the project's package installs, with the function that each one calls:
/// `package.module:function`.
pub type InstalledCommands = BTreeMap<String, String>;

/// The maximum size of a file that is read, in bytes.
pub const MAX_COMMAND_FILE_BYTES: usize = 256 << 10;
/// The maximum number of commands read from a file.
const MAX_COMMANDS: usize = 200;
/// The maximum length of a word, in bytes. Nobody writes a longer argument.
const MAX_ARGUMENT_BYTES: usize = 4_096;
/// The maximum length of a displayed command.
const MAX_SHOWN_CHARS: usize = 200;

/// Makes a name from a file safe to print.
fn printable_name(name: &str) -> String {
    const MAX_CHARS: usize = 60;
    ridgeline_base::printable::one_line(name, MAX_CHARS)
}

/// Returns what a shell command starts, if it is a Python program.
fn python_command(
    command: &shell::ShellCommand,
    name: Option<&str>,
    installed: &InstalledCommands,
) -> Option<FoundCommand> {
    let found = program_command(command, name, installed)?;
    (!matches!(found.command.program, Program::Shell(_))).then_some(found)
}

/// Returns what a shell command starts, if it is a Python program or a shell script.
fn program_command(
    command: &shell::ShellCommand,
    name: Option<&str>,
    installed: &InstalledCommands,
) -> Option<FoundCommand> {
    let words: Vec<String> = command.words.iter().map(|word| word.text.clone()).collect();
    if words.iter().any(|word| word.contains(char::is_control) || word.len() > MAX_ARGUMENT_BYTES) {
        return None;
    }
    let mut read = read_command(&words).ok()?;
    if let Program::Other(name) = &read.program
        && let Some(function) = installed.get(name)
    {
        read.program = Program::Function(function.clone());
    }
    let (Program::Script(target)
    | Program::Module(target)
    | Program::Function(target)
    | Program::Shell(target)) = &read.program
    else {
        return None;
    };
    // If the program itself is uncertain, there is nothing to run.
    let is_certain = |text: &str| {
        command.words.iter().filter(|word| word.text == text).all(|word| word.is_certain)
    };
    if !is_certain(target) || target.contains('$') {
        return None;
    }
    let repeats_option = |pair: &[String]| match pair {
        [option, value] => placeholder::repeats_option(option, value),
        _ => false,
    };
    let is_complete = command.words.iter().all(|word| word.is_certain)
        && !words.windows(2).any(repeats_option)
        && command.environment.values().all(|value| value.is_certain);
    if !is_complete {
        read.arguments.clear();
    }
    for (name, value) in command.environment.iter().filter(|(_, value)| value.is_certain) {
        read.environment.entry(name.clone()).or_insert_with(|| value.text.clone());
    }
    // `None`: the folder is unknown.
    let folder = command.folder.as_deref()?;
    if !folder.is_empty() {
        read.folder = Some(format!("{folder}{}", read.folder.unwrap_or_default()));
    }
    let name = name.map(str::to_owned);
    let as_written = ridgeline_base::printable::one_line(&words.join(" "), MAX_SHOWN_CHARS);
    Some(FoundCommand { command: read, line: command.line, name, is_complete, as_written })
}

#[cfg(test)]
fn display(written: &[FoundCommand]) -> String {
    let one = |written: &FoundCommand| {
        let FoundCommand { command, line, name, is_complete, .. } = written;
        let mut text = format!("{line}: {}", command.display_for_tests());
        if let Some(name) = name {
            text.push_str(&format!(" ({name})"));
        }
        if !is_complete {
            text.push_str(" incomplete");
        }
        text
    };
    written.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
impl Command {
    fn display_for_tests(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.environment {
            text.push_str(&format!("{name}={value} "));
        }
        if let Some(folder) = &self.folder {
            text.push_str(&format!("in {folder}: "));
        }
        if let Some(python) = &self.python {
            text.push_str(&format!("<{python}> "));
        }
        if let Some(tool) = &self.environment_tool {
            text.push_str(&format!("<{tool}> "));
        }
        if !self.python_options.is_empty() {
            text.push_str(&format!("{:?} ", self.python_options));
        }
        if !self.launcher.is_empty() {
            text.push_str(&format!("by [{}] ", self.launcher.join("|")));
        }
        text.push_str(&format!("{:?} [{}]", self.program, self.arguments.join("|")));
        text
    }
}
