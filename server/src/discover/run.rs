//! How a project's program is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ridgeline_analysis::base::printable::one_line;

/// How a project's program is started. Paths are relative to the project's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its Python file.
    pub path: PathBuf,
    /// What `python -m` gets, where it is started so: `package.train`, or `package.cli:main` for the function
    /// that an installed command calls.
    pub module: Option<String>,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Variables for the program.
    pub environment: BTreeMap<String, String>,
    /// What starts its processes.
    pub launcher: Vec<String>,
    /// The folder to run in, where it is not the project's own.
    pub folder: Option<PathBuf>,
    /// Where this was found: `command from README.md:14`.
    pub origin: Option<String>,
}

impl Run {
    /// A script without arguments.
    pub(crate) fn script(path: &Path) -> Run {
        Run { path: path.to_owned(), ..Run::default() }
    }

    /// As a person types it, without Python's own name for a script: `train.py --lr 0.1`,
    /// `python -m package.train`. It is what a person's choice is remembered by.
    pub(crate) fn shown(&self) -> String {
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

/// A program with its arguments, as a person types them, on one line of a bounded length.
pub(crate) fn with_arguments(program: &str, arguments: &[String]) -> String {
    const LONGEST: usize = 300;
    let mut text = program.to_owned();
    for argument in arguments {
        text.push(' ');
        // A shell takes `--lr=0.1` as it is.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
        if !argument.is_empty() && argument.chars().all(is_plain) {
            text.push_str(argument);
        } else {
            text.push_str(&shell_words::quote(argument));
        }
    }
    one_line(&text, LONGEST)
}
