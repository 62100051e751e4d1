//! Holds the wall around `analysis`: it may depend on what computes, never on what reaches outside.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

/// Crates that only compute. Whoever adds one here says that it touches no file, clock, process,
/// network, device or editor.
const PURE: [&str; 20] = [
    "anstyle",
    "base64",
    "crc32fast",
    "csv",
    "flate2",
    "hashbrown",
    "imara-diff",
    "memchr",
    "quick-xml",
    "saphyr-parser",
    "serde",
    "serde_json",
    "serde_path_to_error",
    "sha2",
    "strsim",
    "thiserror",
    "toml",
    "tree-sitter",
    "tree-sitter-python",
    "unicode-width",
];

/// What reaches outside, as it would be written in a source file.
const OUTSIDE: [&str; 11] = [
    "std::fs",
    // The `csv` crate opens files only through this.
    "::from_path",
    // And `quick-xml` through this.
    "::from_file",
    "std::env",
    "std::process",
    "std::net",
    "std::os",
    "SystemTime",
    "Instant::now",
    "tokio",
    "tower_lsp",
];

fn manifest() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn depends_on_nothing_that_reaches_outside() {
    let manifest = manifest();
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap();
    let dependencies = dependencies.split("\n[").next().unwrap();
    let names: Vec<&str> = dependencies
        .lines()
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect();
    assert!(names.contains(&"serde"), "the manifest was not understood: {names:?}");
    for name in names {
        assert!(PURE.contains(&name), "is {name} pure? Then say so in this test");
    }
}

#[test]
fn no_source_file_reaches_outside() {
    let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(files.len() > 20, "the sources were not found");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for outside in OUTSIDE {
                assert!(
                    !code.contains(outside),
                    "{}:{}: `analysis` is pure, and this is {outside}",
                    file.display(),
                    number + 1
                );
            }
        }
    }
}

/// Everything else depends on it, so what it depended on would be part of one circle with all of them.
#[test]
fn a_profile_is_plain_data_and_depends_on_nothing() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = sources(&source.join("profile"));
    assert!(!files.is_empty(), "the sources were not found");
    files.push(source.join("profile.rs"));
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        for (number, line) in code.enumerate() {
            assert!(!line.contains("crate::"), "{}:{}: {line}", file.display(), number + 1);
        }
    }
}
