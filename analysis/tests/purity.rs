//! Holds the wall around `analysis`: it may depend on what computes, never on what reaches outside. What it may
//! not call is in `clippy.toml`.

use std::path::{Path, PathBuf};

/// Crates that only compute. Whoever adds one here says that it touches no file, clock, process,
/// network, device or editor.
const PURE: [&str; 21] = [
    "anstyle",
    "base64",
    "crc32fast",
    "csv",
    "flate2",
    "hashbrown",
    "imara-diff",
    "libm",
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

/// The folders of the crates of `analysis`.
fn crates() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(root).unwrap().flatten().map(|entry| entry.path());
    let found: Vec<PathBuf> = entries
        .filter(|path| path.join("Cargo.toml").exists() && !path.ends_with("evaluate"))
        .collect();
    assert!(found.len() > 10, "the crates were not found: {found:?}");
    found
}

#[test]
fn depends_on_nothing_that_reaches_outside() {
    let mut all = 0;
    for folder in crates() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let Some(dependencies) = manifest.split("[dependencies]").nth(1) else { continue };
        let dependencies = dependencies.split("\n[").next().unwrap();
        let names = dependencies
            .lines()
            .filter_map(|line| line.split(['.', '=', ' ']).next())
            .filter(|name| !name.is_empty() && !name.starts_with(['#', '[']));
        for name in names.filter(|name| !name.starts_with("ridgeline-")) {
            assert!(PURE.contains(&name), "is {name} pure? Then say so in this test");
            all += 1;
        }
    }
    assert!(all > 20, "the dependencies were not found");
}
