//! The launch configurations of VS Code: `.vscode/launch.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::program::read_command;
use super::{Command, LONGEST_FILE, MOST_COMMANDS, Program, Written};

/// What stands for the workspace's folder in arguments and variables of a launch configuration.
pub const WORKSPACE_FOLDER: &str = "${workspaceFolder}";

#[derive(Deserialize)]
struct Launch {
    #[serde(default)]
    configurations: Vec<Value>,
}

/// The Python programs of a `launch.json`: JSON with comments and commas at the end.
pub fn launch_configurations(text: &str) -> Vec<Written> {
    if text.len() > LONGEST_FILE {
        return Vec::new();
    }
    let Ok(launch) = serde_json::from_str::<Launch>(&plain_json(text)) else { return Vec::new() };
    launch
        .configurations
        .iter()
        .filter_map(|configuration| read(configuration, text))
        .take(MOST_COMMANDS)
        .collect()
}

fn read(configuration: &Value, whole: &str) -> Option<Written> {
    let text = |key: &str| configuration.get(key).and_then(Value::as_str);
    if !matches!(text("type"), Some("python" | "debugpy")) || text("request") == Some("attach") {
        return None;
    }
    let mut words = vec!["python".to_owned()];
    match (text("program"), text("module")) {
        (Some(program), _) => words.push(with_folder(&program.replace('\\', "/"))),
        (None, Some(module)) => words.extend(["-m".to_owned(), with_folder(module)]),
        (None, None) => return None,
    }
    // `${file}` is whatever is open.
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
                words.push(with_one_name(&argument));
            }
        }
        Some(Value::String(line)) => words.extend(line.split_whitespace().map(with_one_name)),
        _ => {}
    }
    let mut environment = BTreeMap::new();
    for (name, value) in configuration.get("env").and_then(Value::as_object).into_iter().flatten() {
        if let Some(value) = value.as_str()
            && !name.is_empty()
            && !name.contains(['=', '\0'])
            && !value.contains('\0')
        {
            let value = with_one_name(value);
            if !has_unknown(&value) {
                environment.insert(name.clone(), value);
            }
        }
    }
    let folder = text("cwd").map(|folder| with_folder(&folder.replace('\\', "/")));
    let folder = folder.filter(|folder| !folder.contains("${"));
    if words.iter().any(|word| word.contains(char::is_control)) {
        return None;
    }
    let read = read_command(&words).ok()?;
    if !matches!(read.program, Program::Script(_) | Program::Module(_)) {
        return None;
    }
    let is_complete = !words.iter().any(|word| has_unknown(word));
    let arguments = if is_complete { read.arguments } else { Vec::new() };
    // The Python is found as for any other run.
    let command = Command { arguments, environment, folder, python: None, ..read };
    let name = text("name").map(super::readable);
    let line = text("name").map_or(1, |name| line_of(whole, name));
    Some(Written { command, line, name, is_complete })
}

/// A value with one name for the workspace's folder, and one separator.
fn with_one_name(value: &str) -> String {
    value
        .replace("${workspaceRoot}", WORKSPACE_FOLDER)
        .replace("${pathSeparator}", "/")
        .replace("${workspaceFolder}\\", "${workspaceFolder}/")
}

/// Whether a value depends on what only the editor knows.
fn has_unknown(value: &str) -> bool {
    value.replace(WORKSPACE_FOLDER, "").contains("${")
}

/// A path with the workspace's folder as `.`: paths of a configuration begin with it.
fn with_folder(value: &str) -> String {
    let mut value = with_one_name(value);
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

/// JSON without comments, and without commas in front of a closing bracket.
fn plain_json(text: &str) -> String {
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
                let kept = result.trim_end().len();
                if result.get(..kept).is_some_and(|text| text.ends_with(',')) {
                    result.truncate(kept - 1);
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

    use super::super::shown;
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
            15: by [python|-m|torch.distributed.run|--nproc_per_node|2] Script("t.py") [] (Two)"#]].assert_eq(&shown(&launch_configurations(text)));
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
