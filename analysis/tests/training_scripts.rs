//! Checks which files of this repository are detected as training scripts.

use std::path::{Path, PathBuf};

use ridgeline_analysis::python::{SourceIndex, TrainingScript, training_script};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns every Python file below a folder: its path, whether it is detected as a training script,
/// and the line of its training loop.
fn classify_scripts(folder: &str) -> Vec<(String, bool, Option<u32>)> {
    let mut found = Vec::new();
    let mut pending = vec![root().join(folder)];
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                let text = std::fs::read_to_string(&path).expect("a text");
                let script = training_script(&SourceIndex::new(text));
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, script.score >= TrainingScript::LIKELY, script.loop_line));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn each_demo_project_has_one_training_script() {
    for (name, trains, loop_line) in classify_scripts("demo-projects") {
        let is_script = name.ends_with("/train.py");
        assert_eq!(trains, is_script, "{name}");
        assert_eq!(loop_line.is_some(), is_script, "{name}");
    }
}

#[test]
fn a_skyline_provider_is_detected() {
    let path = root().join("demo-projects/resnet/skyline_provider.py");
    let text = std::fs::read_to_string(path).expect("a text");
    assert!(training_script(&SourceIndex::new(text)).provider);
}

#[test]
fn programs_of_many_styles_are_detected() {
    for (name, trains, _) in classify_scripts("tests/scripts/programs") {
        assert_eq!(trains, !name.ends_with("inference.py"), "{name}");
    }
}
