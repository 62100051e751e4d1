//! The command that starts a project's program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ridgeline_analysis::base::printable::one_line;

/// The command that starts a project's program. Paths are relative to the project's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// The Python file.
    pub path: PathBuf,
    /// The argument of `python -m`, if started that way: `package.train`, or `package.cli:main` for
    /// the function of an installed command.
    pub module: Option<String>,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Environment variables for the program.
    pub environment: BTreeMap<String, String>,
    /// The launcher command.
    pub launcher: Vec<String>,
    /// The working directory, if it is not the project's root.
    pub folder: Option<PathBuf>,
    /// The source: `command from README.md:14`.
    pub origin: Option<String>,
}

impl Run {
    /// Creates a run of a script without arguments.
    pub(crate) fn script(path: &Path) -> Run {
        Run { path: path.to_owned(), ..Run::default() }
    }

    /// The command for display, without `python` for a script: `train.py --lr 0.1`, `python -m
    /// package.train`. It is also the key under which the user's choice is stored.
    pub(crate) fn display(&self) -> String {
        let program = match &self.module {
            None => {
                shell_words::quote(&self.path.to_string_lossy().replace('\\', "/")).into_owned()
            }
            Some(module) if module.contains(':') => module.clone(),
            Some(module) => format!("python -m {module}"),
        };
        with_arguments(&program, &self.arguments)
    }
}

/// A program and its arguments as a shell command, on one line of limited length.
pub(crate) fn with_arguments(program: &str, arguments: &[String]) -> String {
    const LONGEST: usize = 300;
    let mut text = program.to_owned();
    for argument in arguments {
        text.push(' ');
        // A shell needs no quotes for `--lr=0.1`.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
        if !argument.is_empty() && argument.chars().all(is_plain) {
            text.push_str(argument);
        } else {
            text.push_str(&shell_words::quote(argument));
        }
    }
    one_line(&text, LONGEST)
}
