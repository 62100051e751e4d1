//! How people start a program: a command that they type, and the commands that a project's files hold.
//!
//! Words and texts go in, values come out; nothing is run by reading.

mod entry_points;
mod launch_json;
mod makefile;
mod placeholder;
mod program;
mod readme;
mod script;
mod shell;

use std::collections::BTreeMap;

pub use entry_points::entry_points;
pub use launch_json::{WORKSPACE_FOLDER, launch_configurations};
pub use makefile::{in_makefile, make_target};
pub use program::{Refusal, begins_a_program, read_command};
pub use readme::in_readme;
pub use script::{in_shell_script, shell_script_with};

/// What a command starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// A Python file, as it is written.
    Script(String),
    /// A module, as `python -m` takes it.
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
    /// What it starts.
    pub program: Program,
    /// The program's own arguments.
    pub arguments: Vec<String>,
    /// Variables that are set for it.
    pub environment: BTreeMap<String, String>,
    /// The Python, as it is written: `python3.11`, `.venv/bin/python`.
    pub python: Option<String>,
    /// Options of Python itself that change what runs: `-O`, `-X dev`.
    pub python_options: Vec<String>,
    /// What starts its processes, without the program: `torchrun --nproc-per-node 2`.
    pub launcher: Vec<String>,
    /// The folder to run in, relative to where the command stands.
    pub folder: Option<String>,
    /// A tool that runs it in an environment of its choice: `uv run`, `conda run`.
    pub environment_tool: Option<String>,
}

/// A command as a file of the project has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The command. Where `is_complete` does not hold, it has no arguments.
    pub command: Command,
    /// The line, counted from 1.
    pub line: u32,
    /// What the file calls it: a target of a Makefile, a configuration of `launch.json`.
    pub name: Option<String>,
    /// Every word stands for itself: no placeholder, no variable that only a shell knows.
    pub is_complete: bool,
}

/// Longer files are not read.
pub const LONGEST_FILE: usize = 256 << 10;
/// At most so many commands of one file.
const MOST_COMMANDS: usize = 200;
/// Longer words are no argument that a person wrote.
const LONGEST_ARGUMENT: usize = 4_096;

/// A name of a file's own, safe to print.
fn readable(name: &str) -> String {
    const LONGEST: usize = 60;
    ridgeline_base::printable::one_line(name, LONGEST)
}

/// What a shell's command starts, where it is a Python program.
fn written(command: &shell::ShellCommand, name: Option<&str>) -> Option<Written> {
    let words: Vec<String> = command.words.iter().map(|word| word.text.clone()).collect();
    if words.iter().any(|word| word.contains(char::is_control) || word.len() > LONGEST_ARGUMENT) {
        return None;
    }
    let mut read = read_command(&words).ok()?;
    let (Program::Script(target) | Program::Module(target) | Program::Function(target)) =
        &read.program
    else {
        return None;
    };
    // Of a program that is not named for sure there is nothing to run.
    let is_certain = |text: &str| {
        command.words.iter().filter(|word| word.text == text).all(|word| word.is_certain)
    };
    if !is_certain(target) || target.contains('$') {
        return None;
    }
    let is_complete = command.words.iter().all(|word| word.is_certain)
        && command.environment.values().all(|value| value.is_certain);
    if !is_complete {
        read.arguments.clear();
    }
    for (name, value) in command.environment.iter().filter(|(_, value)| value.is_certain) {
        read.environment.entry(name.clone()).or_insert_with(|| value.text.clone());
    }
    // A folder that is not known may be any.
    let folder = command.folder.as_deref()?;
    if !folder.is_empty() {
        read.folder = Some(format!("{folder}{}", read.folder.unwrap_or_default()));
    }
    let name = name.map(str::to_owned);
    Some(Written { command: read, line: command.line, name, is_complete })
}

#[cfg(test)]
fn shown(written: &[Written]) -> String {
    let one = |written: &Written| {
        let Written { command, line, name, is_complete } = written;
        let mut text = format!("{line}: {}", command.shown_for_tests());
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
    fn shown_for_tests(&self) -> String {
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
