//! Reads the launch configurations of VS Code: `.vscode/launch.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::program::read_command;
use super::{Command, FoundCommand, MAX_COMMAND_FILE_BYTES, MAX_COMMANDS, Program};

/// The placeholder for the workspace folder in arguments and variables of a launch configuration.
pub const WORKSPACE_FOLDER: &str = "${workspaceFolder}";

#[derive(Deserialize)]
struct Launch {
    #[serde(default)]
    configurations: Vec<Value>,
}

/// Returns the Python programs of a `launch.json`: JSON with comments and trailing commas.
pub fn launch_configurations(text: &str) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let Ok(launch) = serde_json::from_str::<Launch>(&without_comments(text)) else {
        return Vec::new();
    };
    launch
        .configurations
        .iter()
        .filter_map(|configuration| read(configuration, text))
        .take(MAX_COMMANDS)
        .collect()
}

fn read(configuration: &Value, whole: &str) -> Option<FoundCommand> {
    let text = |key: &str| configuration.get(key).and_then(Value::as_str);
    if !matches!(text("type"), Some("python" | "debugpy")) || text("request") == Some("attach") {
        return None;
    }
    let mut words = vec!["python".to_owned()];
    match (text("program"), text("module")) {
        (Some(program), _) => words.push(relative_to_workspace(&program.replace('\\', "/"))),
        (None, Some(module)) => words.extend(["-m".to_owned(), relative_to_workspace(module)]),
        (None, None) => return None,
    }
    // `${file}` is the currently open file.
    if words.iter().any(|word| word.contains("${")) {
        return None;
    }
    match configuration.get("args") {
        Some(Value::Array(arguments)) => {
            for argument in arguments {
                let argument = match argument {
                    Value::String(text) => text.clone(),
                    Value::Number(_) | Value::Bool(_) => argument.to_string(),
                    _ => return None,
                };
                words.push(normalized(&argument));
            }
        }
        Some(Value::String(line)) => words.extend(line.split_whitespace().map(normalized)),
        _ => {}
    }
    let mut environment = BTreeMap::new();
    for (name, value) in configuration.get("env").and_then(Value::as_object).into_iter().flatten() {
        if let Some(value) = value.as_str()
            && !name.is_empty()
            && !name.contains(['=', '\0'])
            && !value.contains('\0')
        {
            let value = normalized(value);
            if !has_unknown_variable(&value) {
                environment.insert(name.clone(), value);
            }
        }
    }
    let folder = text("cwd").map(|folder| relative_to_workspace(&folder.replace('\\', "/")));
    let folder = folder.filter(|folder| !folder.contains("${"));
    if words.iter().any(|word| word.contains(char::is_control)) {
        return None;
    }
    let read = read_command(&words).ok()?;
    if !matches!(read.program, Program::Script(_) | Program::Module(_)) {
        return None;
    }
    let is_complete = !words.iter().any(|word| has_unknown_variable(word));
    let arguments = if is_complete { read.arguments } else { Vec::new() };
    // The interpreter is found like for any other run.
    let command = Command { arguments, environment, folder, python: None, ..read };
    let name = text("name").map(super::printable_name);
    let line = text("name").map_or(1, |name| line_of(whole, name));
    Some(FoundCommand { command, line, name, is_complete, as_written: String::new() })
}

/// Normalizes the names of the workspace folder and the path separators in a value.
fn normalized(value: &str) -> String {
    value
        .replace("${workspaceRoot}", WORKSPACE_FOLDER)
        .replace("${pathSeparator}", "/")
        .replace("${workspaceFolder}\\", "${workspaceFolder}/")
}

/// Whether a value has a variable that only the editor knows.
fn has_unknown_variable(value: &str) -> bool {
    value.replace(WORKSPACE_FOLDER, "").contains("${")
}

/// Makes a path relative to the workspace folder.
fn relative_to_workspace(value: &str) -> String {
    let mut value = normalized(value);
    value = value.replace("${workspaceFolder}/", "./");
    let value = value.replace(WORKSPACE_FOLDER, ".");
    match value.strip_prefix("./") {
        Some(rest) if !rest.is_empty() && !rest.contains(':') => rest.to_owned(),
        _ => value,
    }
}

fn line_of(whole: &str, name: &str) -> u32 {
    let at = whole.lines().position(|line| line.contains("\"name\"") && line.contains(name));
    at.and_then(|at| u32::try_from(at + 1).ok()).unwrap_or(1)
}

/// Removes comments and trailing commas from JSON.
fn without_comments(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        if in_string {
            result.push(c);
            match c {
                '\\' => result.extend(rest.next()),
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match (c, rest.peek()) {
            ('"', _) => {
                in_string = true;
                result.push(c);
            }
            ('/', Some('/')) => while rest.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) => {
                let mut before = ' ';
                rest.next();
                for c in rest.by_ref() {
                    if before == '*' && c == '/' {
                        break;
                    }
                    before = c;
                }
            }
            (']' | '}', _) => {
                let end = result.trim_end().len();
                if result.get(..end).is_some_and(|text| text.ends_with(',')) {
                    result.truncate(end - 1);
                }
                result.push(c);
            }
            _ => result.push(c),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::display;
    use super::*;

    #[test]
    fn configurations() {
        let text = r#"{
  // what we run
  "version": "0.2.0",
  "configurations": [
    { "name": "Python: current file", "type": "debugpy", "request": "launch", "program": "${file}" },
    {
      "name": "Train small",
      "type": "debugpy", "request": "launch",
      "program": "${workspaceFolder}\\src\\my train.py", /* a path of Windows */
      "args": ["--lr", "0.1", "--data", "${workspaceFolder}/data", "a // b",],
      "env": {"PYTHONPATH": "${workspaceFolder}/src", "KEY": "${env:KEY}"},
      "cwd": "${workspaceFolder}/src",
    },
    { "name": "Module", "type": "python", "module": "pkg.train", "args": "--x 1 ${input:more}" },
    { "name": "Two", "type": "python", "module": "torch.distributed.run", "args": ["--nproc_per_node", 2, "t.py"] },
    { "name": "Attach", "type": "debugpy", "request": "attach" },
    { "name": "C", "type": "cppdbg", "program": "a.out" },
  ],
}"#;
        expect![[r#"
            7: PYTHONPATH=${workspaceFolder}/src in src: Script("src/my train.py") [--lr|0.1|--data|${workspaceFolder}/data|a // b] (Train small)
            14: Module("pkg.train") [] (Module) incomplete
            15: by [python|-m|torch.distributed.run|--nproc_per_node|2] Script("t.py") [] (Two)"#]].assert_eq(&display(&launch_configurations(text)));
    }

    #[test]
    fn hostile_texts() {
        assert_eq!(launch_configurations(&"[".repeat(100_000)), []);
        assert_eq!(launch_configurations("{\"configurations\": 3}"), []);
        assert_eq!(launch_configurations("/*"), []);
        let deep =
            format!("{{\"configurations\": [{}{}]}}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(launch_configurations(&deep), []);
    }
}
