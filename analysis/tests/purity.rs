//! Checks that the `analysis` crates depend only on pure crates. `clippy.toml` lists the functions
//! that they must not call.

use std::path::{Path, PathBuf};

/// External crates without side effects. Before you add one, make sure that it does not touch
/// files, the clock, processes, the network, devices or the editor.
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

/// Returns the folders of the `analysis` crates.
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
fn analysis_depends_only_on_pure_crates() {
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
