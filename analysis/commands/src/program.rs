//! Finds which program a command starts, and skips everything in front of it.

use super::shell::assignment;
use super::tools::{
    DEBUGGERS_AND_PROFILERS, ENVIRONMENT_TOOLS, LAUNCHER_FLAGS, LAUNCHER_MODULES,
    PROCESS_LAUNCHERS, SCRIPT_LAUNCHERS, TOOL_OPTIONS_WITH_VALUE, WRAPPERS, WRAPPERS_WITH_OPTIONS,
    base_name, begins_a_program, is_python, is_python_file,
};
use super::{Command, Program};

/// Why a command starts nothing that can be profiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub what: String,
    /// What to do instead.
    pub next: String,
}

fn refusal(what: impl Into<String>, next: impl Into<String>) -> Refusal {
    Refusal { what: what.into(), next: next.into() }
}

/// Parses the words of a command, as a shell passes them to a program.
///
/// # Errors Returns the reason if there is no program to run.
pub fn read_command(words: &[String]) -> Result<Command, Refusal> {
    let mut reader = Reader { words, at: 0, command: empty_command() };
    reader.read()?;
    Ok(reader.command)
}

pub(super) fn empty_command() -> Command {
    Command {
        program: Program::Other(String::new()),
        arguments: Vec::new(),
        environment: Default::default(),
        python: None,
        python_options: Vec::new(),
        launcher: Vec::new(),
        folder: None,
        environment_tool: None,
    }
}

struct Reader<'a> {
    words: &'a [String],
    at: usize,
    command: Command,
}

impl Reader<'_> {
    fn word(&self) -> Option<&str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn take(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned()?;
        self.at += 1;
        Some(word)
    }

    fn read(&mut self) -> Result<(), Refusal> {
        loop {
            let Some(word) = self.word().map(str::to_owned) else {
                return Err(refusal("the command does not name a program", EXAMPLE));
            };
            if let Some((name, value)) = assignment(&word) {
                self.command.environment.insert(name.to_owned(), value.to_owned());
                self.at += 1;
                continue;
            }
            let name = base_name(&word);
            if is_python_file(&word) {
                self.at += 1;
                return self.set_program(Program::Script(word));
            }
            if is_python(name) {
                return self.python();
            }
            match name {
                "env" => {
                    self.at += 1;
                    self.skip_options(&["-u", "--unset", "-C", "--chdir", "-S"]);
                }
                _ if WRAPPERS.contains(&name) => {
                    self.at += 1;
                    self.skip_options(&["-s", "-n", "-e", "-u"]);
                }
                _ if WRAPPERS_WITH_OPTIONS.contains(&name) => {
                    self.at += 1;
                    self.skip_to_program(name)?;
                }
                _ if ENVIRONMENT_TOOLS.contains(&name) => {
                    if let Some(module) = self.environment_tool(name)? {
                        return self.module_program(module);
                    }
                }
                _ if PROCESS_LAUNCHERS.contains(&name) => {
                    let from = self.at;
                    self.at += 1;
                    self.skip_to_program(name)?;
                    let launcher = self.words.get(from..self.at).unwrap_or_default();
                    self.command.launcher.extend(launcher.iter().cloned());
                }
                "accelerate" | "lightning" | "fabric" | "colossalai" => {
                    return self.subcommand(name);
                }
                _ if SCRIPT_LAUNCHERS.contains(&name) => {
                    self.command.launcher.push(word);
                    self.at += 1;
                    return self.launched_program();
                }
                "ipython" => {
                    self.at += 1;
                    self.skip_options(&["--profile"]);
                }
                "bash" | "sh" | "zsh" | "dash" => {
                    self.at += 1;
                    self.skip_options(&["-o"]);
                    if self.words.get(self.at.saturating_sub(1)).is_some_and(|it| it.ends_with('c'))
                    {
                        return Err(refusal(
                            format!("`{name} -c` is not supported"),
                            "Run the command directly: `ridgeline profile -- python train.py`",
                        ));
                    }
                    let script = self
                        .take()
                        .ok_or_else(|| refusal(format!("`{name}` is given no script"), EXAMPLE))?;
                    return self.set_program(Program::Shell(script));
                }
                "make" => {
                    self.at += 1;
                    self.skip_options(&["-C", "-f", "-j"]);
                    let target = self.take().unwrap_or_default();
                    return self.set_program(Program::MakeTarget(target));
                }
                "docker" | "podman" | "apptainer" | "singularity" | "kubectl" | "sbatch"
                | "jupyter" => {
                    return Err(refusal(
                        format!("a program started by `{name}` cannot be profiled from outside"),
                        "Run ridgeline where the program runs, and pass it the program",
                    ));
                }
                _ => {
                    self.at += 1;
                    return self.set_program(if word.ends_with(".sh") {
                        Program::Shell(word)
                    } else {
                        Program::Other(word)
                    });
                }
            }
        }
    }

    fn set_program(&mut self, program: Program) -> Result<(), Refusal> {
        self.command.program = program;
        self.command.arguments = self.words.get(self.at..).unwrap_or_default().to_vec();
        Ok(())
    }

    /// Skips options, and the values of those in `with_values`.
    fn skip_options(&mut self, with_values: &[&str]) {
        while let Some(word) = self.word().filter(|word| word.starts_with('-')) {
            let has_value = with_values.contains(&word);
            self.at += if has_value { 2 } else { 1 };
            if word_at(self.words, self.at - 1) == "--" {
                return;
            }
        }
    }

    fn skip_to_program(&mut self, name: &str) -> Result<(), Refusal> {
        let rest = self.words.get(self.at..).unwrap_or_default();
        let Some(ahead) = rest.iter().position(|word| begins_a_program(word)) else {
            return Err(refusal(
                format!("no Python program was found in the `{name}` command"),
                EXAMPLE,
            ));
        };
        self.at += ahead;
        Ok(())
    }

    /// Skips `uv run` and its options. Returns the module of `uv run -m module`.
    fn environment_tool(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        self.at += 1;
        let mut folder = None;
        loop {
            let Some(word) = self.take() else {
                return Err(refusal(format!("`{name}` does not run a program"), EXAMPLE));
            };
            if matches!(word.as_str(), "run" | "shell" | "x") {
                break;
            }
            if let Some(folder_option) = self.tool_option(&word) {
                folder = folder_option.or(folder);
            } else {
                return Err(refusal(
                    format!("`{name} {word}` does not run a program"),
                    format!("Use `{name} run`: `ridgeline profile -- {name} run python train.py`"),
                ));
            }
        }
        while let Some(word) = self.word().filter(|word| word.starts_with('-')).map(str::to_owned) {
            self.at += 1;
            match word.as_str() {
                "--" => break,
                "-m" | "--module" => {
                    let module = self.take().unwrap_or_default();
                    self.command.environment_tool = Some(format!("{name} run"));
                    self.command.folder = folder;
                    return Ok(Some(module));
                }
                _ => folder = self.tool_option(&word).flatten().or(folder),
            }
        }
        self.command.environment_tool = Some(format!("{name} run"));
        self.command.folder = folder;
        Ok(None)
    }

    /// Reads an option of such a tool. Returns `Some(Some(folder))` if it sets the folder to run
    /// in.
    fn tool_option(&mut self, word: &str) -> Option<Option<String>> {
        if !word.starts_with('-') {
            return None;
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None if TOOL_OPTIONS_WITH_VALUE.contains(&word) => (word, self.take()),
            None => (word, None),
        };
        match option {
            "--python" | "-p" => self.command.python = value,
            "--directory" | "-C" | "--cwd" => return Some(value),
            _ => {}
        }
        Some(None)
    }

    /// `accelerate launch train.py`, `fabric run train.py`.
    fn subcommand(&mut self, name: &str) -> Result<(), Refusal> {
        let following = word_at(self.words, self.at + 1).to_owned();
        match (name, following.as_str()) {
            ("accelerate", "launch") => {
                self.command.launcher.extend(["accelerate".to_owned(), "launch".to_owned()]);
                self.at += 2;
                self.launched_program()
            }
            (_, "run") => {
                self.at += 2;
                if word_at(self.words, self.at) == "model" {
                    self.at += 1;
                }
                self.launched_program()
            }
            _ => {
                self.at += 1;
                self.set_program(Program::Other(name.to_owned()))
            }
        }
    }

    fn python(&mut self) -> Result<(), Refusal> {
        let python = self.take().unwrap_or_default();
        while let Some(word) = self.word().filter(|word| word.starts_with('-')).map(str::to_owned) {
            self.at += 1;
            if word.starts_with("--") {
                match word.as_str() {
                    "--check-hash-based-pycs" => self.at += 1,
                    "--version" | "--help" => return Err(no_program(&python, &word)),
                    _ => {}
                }
                continue;
            }
            if word == "-" {
                return Err(refusal(
                    format!("`{python} -` reads the program from standard input"),
                    "Save the program to a file and profile that file",
                ));
            }
            let letters: Vec<char> = word.chars().skip(1).collect();
            // `py -3.11` on Windows.
            if letters.first().is_some_and(char::is_ascii_digit) {
                continue;
            }
            for (at, letter) in letters.iter().enumerate() {
                let rest: String = letters.get(at + 1..).unwrap_or_default().iter().collect();
                let value = |reader: &mut Self| {
                    if rest.is_empty() { reader.take().unwrap_or_default() } else { rest.clone() }
                };
                match letter {
                    'm' => {
                        let module = value(self);
                        self.set_python(python);
                        return self.module_program(module);
                    }
                    'c' => {
                        return Err(refusal(
                            format!(
                                "`{python} -c` does not run a file, so there are no source lines \
                                to show costs on"
                            ),
                            "Save the code to a script and profile that script",
                        ));
                    }
                    'W' | 'X' => {
                        let value = value(self);
                        if *letter == 'X' {
                            self.command.python_options.push(format!("-X {value}"));
                        }
                        break;
                    }
                    'O' | 'E' | 'I' | 'P' | 'S' => {
                        self.command.python_options.push(format!("-{letter}"));
                    }
                    'V' | 'h' | '?' => return Err(no_program(&python, &word)),
                    _ => {}
                }
            }
        }
        self.set_python(python.clone());
        let Some(script) = self.take() else { return Err(no_program(&python, "")) };
        self.set_program(Program::Script(script))
    }

    fn set_python(&mut self, python: String) {
        // After `srun` and the like, ranks start with the Python interpreter that is found here.
        self.command.python = Some(python);
    }

    /// Reads the module, or the program after a module that runs another one.
    fn module_program(&mut self, module: String) -> Result<(), Refusal> {
        if LAUNCHER_MODULES.contains(&module.as_str()) {
            let words = ["python", "-m", &module].map(str::to_owned);
            self.command.launcher.extend(words);
            if module.ends_with("accelerate_cli") && word_at(self.words, self.at) == "launch" {
                let launch = self.take();
                self.command.launcher.extend(launch);
            }
            return self.launched_program();
        }
        if DEBUGGERS_AND_PROFILERS.contains(&module.as_str()) {
            let rest = self.words.get(self.at..).unwrap_or_default();
            let target = rest.iter().position(|word| word == "-m" || is_python_file(word));
            let Some(ahead) = target else {
                return Err(refusal(format!("`-m {module}` is given no script"), EXAMPLE));
            };
            self.at += ahead;
            let word = self.take().unwrap_or_default();
            if word == "-m" {
                let module = self.take().unwrap_or_default();
                return self.set_program(Program::Module(module));
            }
            return self.set_program(Program::Script(word));
        }
        if module.is_empty() {
            return Err(refusal("`-m` is given no module", EXAMPLE));
        }
        self.set_program(Program::Module(module))
    }

    /// Reads the options of a launcher, then the program.
    fn launched_program(&mut self) -> Result<(), Refusal> {
        let mut is_module = false;
        while let Some(word) = self.word().filter(|word| word.starts_with('-')).map(str::to_owned) {
            self.at += 1;
            if matches!(word.as_str(), "-m" | "--module") {
                is_module = true;
                continue;
            }
            if matches!(word.as_str(), "--no-python" | "--no_python") {
                // The program includes its interpreter: `torchrun --no-python python train.py`.
                return self.read();
            }
            let following = self.word().unwrap_or_default();
            let takes_value = !word.contains('=')
                && !LAUNCHER_FLAGS.contains(&word.as_str())
                && !following.starts_with('-')
                && !is_python_file(following);
            if !self.command.launcher.is_empty() {
                self.command.launcher.push(word);
            }
            if takes_value {
                let value = self.take();
                if !self.command.launcher.is_empty() {
                    self.command.launcher.extend(value);
                }
            }
        }
        let Some(target) = self.take() else {
            return Err(refusal("the launcher is given no script", EXAMPLE));
        };
        let target_name = base_name(&target);
        if is_python(target_name) {
            self.at -= 1;
            return self.python();
        }
        self.set_program(if is_module { Program::Module(target) } else { Program::Script(target) })
    }
}

const EXAMPLE: &str = "For example: `ridgeline profile -- python train.py --epochs 1`";

fn no_program(python: &str, option: &str) -> Refusal {
    let space = if option.is_empty() { "" } else { " " };
    refusal(format!("`{python}{space}{option}` does not run a program"), EXAMPLE)
}

fn word_at(words: &[String], at: usize) -> &str {
    words.get(at).map(String::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
