//! Finds the commands that a package installs: `[project.scripts]` in `pyproject.toml`,
//! `console_scripts` in `setup.cfg` and, if they are literals, in `setup.py`.

use super::program::empty_command;
use super::{
    Command, FoundCommand, InstalledCommands, MAX_COMMAND_FILE_BYTES, MAX_COMMANDS, Program,
};

/// Returns the commands of a package from its `pyproject.toml`, `setup.cfg` or `setup.py`.
pub fn entry_points(text: &str) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let pairs = match text.parse::<toml::Table>() {
        Ok(table) => of_pyproject(&table),
        Err(_) if text.contains("setup(") => of_setup_py(text),
        Err(_) => of_setup_cfg(text),
    };
    pairs
        .into_iter()
        .filter_map(|(name, target)| {
            let (module, function) = target.split_once(':')?;
            let function = function.split(['[', ' ']).next()?.trim();
            let target = format!("{}:{function}", module.trim());
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':');
            if !target.chars().all(is_name) || name.contains(char::is_control) {
                return None;
            }
            let command = Command { program: Program::Function(target), ..empty_command() };
            let line = text.lines().position(|line| line.contains(&name) && line.contains(module));
            let line = line.and_then(|at| u32::try_from(at + 1).ok()).unwrap_or(1);
            Some(FoundCommand {
                command,
                line,
                name: Some(name),
                is_complete: true,
                as_written: String::new(),
            })
        })
        .take(MAX_COMMANDS)
        .collect()
}

/// Returns the functions of these commands by name. Of several with a name, the first counts.
pub fn installed(entry_points: impl IntoIterator<Item = FoundCommand>) -> InstalledCommands {
    let mut installed = InstalledCommands::new();
    for found in entry_points {
        if let (Some(name), Program::Function(function)) = (found.name, found.command.program) {
            installed.entry(name).or_insert(function);
        }
    }
    installed
}

fn of_pyproject(table: &toml::Table) -> Vec<(String, String)> {
    let inside = |path: &[&str]| {
        let mut at = table;
        for key in path {
            at = at.get(*key)?.as_table()?;
        }
        Some(at)
    };
    let tables = [inside(&["project", "scripts"]), inside(&["tool", "poetry", "scripts"])];
    tables
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|(name, target)| Some((name.clone(), target.as_str()?.to_owned())))
        .collect()
}

/// The strings `name = module:function` after `console_scripts`.
fn of_setup_py(text: &str) -> Vec<(String, String)> {
    let Some((_, rest)) = text.split_once("console_scripts") else { return Vec::new() };
    let Some((_, list)) = rest.split_once('[') else { return Vec::new() };
    let list = list.split_once(']').map_or(list, |(list, _)| list);
    let entries = list.split(['\'', '"', '\n']).filter_map(|entry| {
        let (name, target) = entry.split_once('=')?;
        Some((name.trim().to_owned(), target.trim().to_owned()))
    });
    entries.filter(|(name, target)| !name.is_empty() && target.contains(':')).collect()
}

fn of_setup_cfg(text: &str) -> Vec<(String, String)> {
    let mut in_section = false;
    let mut in_scripts = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            in_section = line.trim() == "[options.entry_points]";
            in_scripts = false;
        } else if in_section && line.trim_start().starts_with("console_scripts") {
            in_scripts = true;
        } else if in_section && in_scripts && line.starts_with([' ', '\t']) {
            if let Some((name, target)) = line.split_once('=') {
                found.push((name.trim().to_owned(), target.trim().to_owned()));
            }
        } else {
            in_scripts = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::display;
    use super::*;

    #[test]
    fn pyproject_and_setup_cfg() {
        let text = "[project]\nname = \"x\"\n[project.scripts]\ntrain-it = \"pkg.cli:main\"\nbad = \"pkg\"\n";
        expect![[r#"4: Function("pkg.cli:main") [] (train-it)"#]]
            .assert_eq(&display(&entry_points(text)));
        let text = "[tool.poetry.scripts]\nfit = 'pkg.train:run'\n";
        expect![[r#"2: Function("pkg.train:run") [] (fit)"#]]
            .assert_eq(&display(&entry_points(text)));
        let text = "[metadata]\nname: x\n[options.entry_points]\nconsole_scripts =\n    fit = pkg.train:run\n[x]\n";
        expect![[r#"5: Function("pkg.train:run") [] (fit)"#]]
            .assert_eq(&display(&entry_points(text)));
    }
}
