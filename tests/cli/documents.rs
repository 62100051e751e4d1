//! Checks that what the documentation mentions exists: files, commands, options, cargo targets,
//! settings.
//!
//! `analysis/tests/finding_pages.rs` checks the pages of findings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Folders whose files are referenced by paths from the repository's root.
const FOLDERS: [&str; 8] = [
    "analysis/",
    "demo-projects/",
    "docs/",
    "extension-vscode/",
    "gpu/",
    "server/",
    "tests/",
    ".ci/",
];
/// Whether a character may be part of a path, an option or a setting.
const NAME: [char; 4] = ['_', '-', '.', '/'];

/// The documentation and the files with provenance, with their text.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(ROOT);
    let mut found = Vec::new();
    for folder in [
        "",
        "docs",
        "docs/findings",
        "tests",
        "tests/programs",
        "tests/gpu/simulated",
        "extension-vscode",
    ] {
        found.extend(files_of(&root.join(folder), &["md"]));
    }
    let mut folders = vec![root.join("analysis/src")];
    while let Some(folder) = folders.pop() {
        found.extend(files_of(&folder, &["json"]));
        let entries = std::fs::read_dir(&folder).expect("a folder").flatten();
        folders.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    let texts = found.into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).expect("a text");
        (path, text)
    });
    texts.collect()
}

fn files_of(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| path.is_file());
    let named =
        |path: &PathBuf| path.extension().is_some_and(|it| extensions.iter().any(|one| it == *one));
    paths.filter(named).collect()
}

/// Returns the names in a text that begin with `start`, which must not follow another name's character.
fn names<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(start).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || NAME.contains(&c)) {
            return None;
        }
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && !NAME.contains(&c));
        let name = &rest[..end.unwrap_or(rest.len())];
        // `tests/*.py`, `docs/{a,b}` and `docs/NAME.md` stand for several files.
        let is_pattern = rest[name.len()..].starts_with(['*', '{', '<', '…']);
        (!is_pattern).then_some(name)
    })
}

fn display_path(path: &Path) -> String {
    path.strip_prefix(ROOT).unwrap_or(path).display().to_string()
}

#[test]
fn link_targets_exist() {
    let mut broken = Vec::new();
    for (path, text) in
        documents().iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "md"))
    {
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split([')', ' ', '\n']).next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let base = path.parent().expect("a folder");
            if !base.join(file).exists() {
                broken.push(format!("{}: {target}", display_path(path)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn mentioned_files_exist() {
    let mut missing = BTreeSet::new();
    for (path, text) in documents() {
        for folder in FOLDERS {
            for name in names(&text, folder) {
                let name = name.trim_end_matches(['.', '-', '_']);
                let has_placeholder = name.split(['/', '.']).any(|part| {
                    part.len() > 1 && part.chars().all(|c| c.is_uppercase() || c == '_')
                });
                let is_there = Path::new(ROOT).join(name).exists()
                    || path.parent().is_some_and(|base| base.join(name).exists());
                if !has_placeholder && !is_there {
                    missing.insert(format!("{}: {name}", display_path(&path)));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn mentioned_cargo_targets_exist() {
    let mut missing = BTreeSet::new();
    let folders = BTreeMap::from([
        ("ridgeline-analysis", "analysis"),
        ("ridgeline-evaluate", "analysis/evaluate"),
        ("ridgeline-gpu", "gpu"),
        ("ridgeline-server", "server"),
    ]);
    for (path, text) in documents() {
        for line in text.lines().filter(|line| line.contains("cargo ")) {
            let words: Vec<&str> = line.split([' ', '`']).collect();
            let after = |option: &str| {
                let at = words.iter().position(|word| *word == option)?;
                words.get(at + 1).map(|word| word.trim_end_matches([',', '.', ')']))
            };
            let package = after("-p").unwrap_or("ridgeline-server");
            let Some(folder) = folders.get(package) else {
                missing.insert(format!("{}: package {package}", display_path(&path)));
                continue;
            };
            let folder = Path::new(ROOT).join(folder);
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
            let places = [
                ("--bin", vec!["src/bin"]),
                ("--example", vec!["examples"]),
                ("--bench", vec!["benches"]),
                ("--test", vec!["tests", "../tests"]),
            ];
            for (option, places) in places {
                let Some(name) = after(option) else { continue };
                let is_named = manifest.contains(&format!("name = \"{name}\""));
                let is_there = is_named
                    || places.iter().any(|place| {
                        let place = folder.join(place);
                        place.join(format!("{name}.rs")).exists()
                            || place.join(name).join("main.rs").exists()
                    });
                if !is_there {
                    missing.insert(format!("{}: {package} {option} {name}", display_path(&path)));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Returns the help of a command, or of `ridgeline` itself.
fn help(command: &[&str]) -> Option<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_ridgeline")).args(command).arg("--help").output();
    let output = output.expect("the binary starts");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn mentioned_commands_and_options_exist() {
    let own = help(&[]).expect("a help");
    let listed = own.split("Commands:").nth(1).expect("commands");
    let commands: Vec<&str> = listed
        .lines()
        .take_while(|line| !line.starts_with("Options"))
        .filter_map(|line| {
            line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty())
        })
        .collect();
    let helps: BTreeMap<&str, String> =
        commands.iter().filter_map(|command| Some((*command, help(&[command])?))).collect();
    let mut missing = BTreeSet::new();
    for (path, text) in documents() {
        // In a code block or between backticks.
        let code = text.lines().flat_map(|line| {
            let is_block = line.starts_with("    ") || line.starts_with("ridgeline ");
            let spans: Vec<&str> = if is_block {
                vec![line.trim()]
            } else {
                line.split('`').skip(1).step_by(2).collect()
            };
            spans
        });
        for span in code {
            let Some(rest) = span.strip_prefix("ridgeline ") else { continue };
            let mut words = rest.split(' ');
            let command = words.next().unwrap_or_default().trim_end_matches(['.', ',', '`', ')']);
            let is_word = command.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            if command.is_empty() || !is_word || command.starts_with('-') {
                continue;
            }
            let Some(help) = helps.get(command) else {
                missing.insert(format!("{}: ridgeline {command}", display_path(&path)));
                continue;
            };
            // Arguments after ` -- ` belong to the program.
            for word in words.take_while(|word| *word != "--" && *word != "#") {
                let option = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                let option = option.split('=').next().unwrap_or_default();
                if option.starts_with("--") && !help.contains(option) {
                    missing
                        .insert(format!("{}: ridgeline {command} {option}", display_path(&path)));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn mentioned_settings_and_messages_exist() {
    let mut sources =
        std::fs::read_to_string(Path::new(ROOT).join("extension-vscode/package.json"))
            .expect("a text");
    let mut folders =
        vec![Path::new(ROOT).join("server/src"), Path::new(ROOT).join("extension-vscode/src")];
    while let Some(folder) = folders.pop() {
        for file in files_of(&folder, &["rs", "ts"]) {
            sources.push_str(&std::fs::read_to_string(file).expect("a text"));
        }
        let entries = std::fs::read_dir(&folder).expect("a folder").flatten();
        folders.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    let mut missing = BTreeSet::new();
    for (path, text) in documents() {
        for start in ["ridgeline.", "ridgeline/"] {
            for name in names(&text, start) {
                let name = name.trim_end_matches(['.', '-', '_', '/']);
                let own = &name[start.len().min(name.len())..];
                let is_file =
                    ["toml", "schema", "sarif", "exe", "service", "el", "lua", "json", "vim"]
                        .iter()
                        .any(|end| own.starts_with(end));
                let is_setting =
                    own.chars().next().is_some_and(char::is_lowercase) && !own.contains('/');
                // The rest of the setting's name is a key of its group.
                let last = own.rsplit('.').next().unwrap_or_default();
                let is_known =
                    sources.contains(name) || own.contains('.') && sources.contains(last);
                if is_setting && !is_file && !is_known {
                    missing.insert(format!("{}: {name}", display_path(&path)));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
