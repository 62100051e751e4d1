//! Finds the programs that the recipes of a Makefile start.

use std::collections::BTreeMap;

use super::shell::{InitialState, commands};
use super::{
    FoundCommand, InstalledCommands, MAX_COMMAND_FILE_BYTES, MAX_COMMANDS, python_command,
};

/// Returns the Python programs that a Makefile starts, with their targets.
pub fn in_makefile(text: &str, installed: &InstalledCommands) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let mut variables: BTreeMap<&str, String> = BTreeMap::new();
    let mut target: Option<&str> = None;
    let mut found = Vec::new();
    let mut lines = (1_u32..).zip(text.lines()).peekable();
    while let Some((number, line)) = lines.next() {
        let Some(recipe) = line.strip_prefix('\t') else {
            if line.starts_with([' ', '#']) || line.trim().is_empty() {
                continue;
            }
            if let Some((name, value)) = variable(line) {
                let value = expand(value, &variables);
                variables.insert(name, value);
            } else if let Some((names, _)) = line.split_once(':') {
                target = names.split_whitespace().next().filter(|name| !name.starts_with('.'));
            }
            continue;
        };
        let mut whole = recipe.trim_start_matches(['@', '-', '+', ' ']).to_owned();
        while whole.ends_with('\\')
            && let Some((_, more)) = lines.next()
        {
            whole.pop();
            whole.push(' ');
            whole.push_str(more.trim());
        }
        let recipe = expand(&whole, &variables);
        for mut command in commands(&recipe, InitialState::default()) {
            command.line = number;
            found.extend(python_command(&command, target, installed));
        }
        if found.len() >= MAX_COMMANDS {
            break;
        }
    }
    found
}

/// Returns the programs of one target. An empty target means the first one that has a program.
pub fn make_target(text: &str, target: &str, installed: &InstalledCommands) -> Vec<FoundCommand> {
    let all = in_makefile(text, installed);
    let first = all.first().and_then(|written| written.name.clone());
    let name = if target.is_empty() { first } else { Some(target.to_owned()) };
    all.into_iter().filter(|written| written.name == name).collect()
}

/// `NAME = value`, `NAME := value`, `NAME ?= value`.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end_matches([':', '?', '+', '!']).trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then(|| (name, value.trim()))
}

/// Expands `$(NAME)` and `${NAME}`, and replaces `$$` by `$`.
fn expand(text: &str, variables: &BTreeMap<&str, String>) -> String {
    const MAX_BYTES: usize = 16 << 10;
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        result.push_str(before);
        let closing = match from.chars().nth(1) {
            Some('(') => ')',
            Some('{') => '}',
            Some('$') => {
                result.push('$');
                rest = from.get(2..).unwrap_or_default();
                continue;
            }
            _ => {
                result.push('$');
                rest = from.get(1..).unwrap_or_default();
                continue;
            }
        };
        let Some(end) = from.find(closing) else {
            result.push_str(from);
            return result;
        };
        let name = from.get(2..end).unwrap_or_default();
        match variables.get(name) {
            Some(value) => result.push_str(value),
            // Makefiles commonly use these names for the interpreter.
            None if matches!(name, "PYTHON" | "PY") => result.push_str("python"),
            None => result.push_str(&format!("${{{name}}}")),
        }
        rest = from.get(end + 1..).unwrap_or_default();
        if result.len() > MAX_BYTES {
            return result;
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::display;
    use super::*;

    const TEXT: &str = "PYTHON ?= python3\nARGS := --lr 0.1\n.PHONY: train\n\nall: data\n\nprepare:\n\t\
        @echo hi\n\ntrain: prepare\n\t@cd src && $(PYTHON) train.py $(ARGS) \\\n\t\t--x 1\n\n\
        big:\n\t$(PYTHON) -m pkg.train --data $(DATA) $$HOME\n";

    #[test]
    fn recipes_and_variables() {
        expect![[r#"
            11: in src/: <python3> Script("train.py") [--lr|0.1|--x|1] (train)
            15: <python3> Module("pkg.train") [] (big) incomplete"#]]
        .assert_eq(&display(&in_makefile(TEXT, &InstalledCommands::new())));
        assert_eq!(make_target(TEXT, "big", &InstalledCommands::new()).len(), 1);
        assert_eq!(make_target(TEXT, "", &InstalledCommands::new()).len(), 1);
        assert_eq!(make_target(TEXT, "gone", &InstalledCommands::new()).len(), 0);
    }
}
