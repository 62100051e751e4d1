//! Which files of this repository are taken for training scripts.

use std::path::{Path, PathBuf};

use ridgeline_analysis::python::{SourceIndex, TrainingScript, training_script};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Python file below a folder, with whether it is judged to train, and its loop's line.
fn judged(folder: &str) -> Vec<(String, bool, Option<u32>)> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join(folder)];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                let text = std::fs::read_to_string(&path).expect("a text");
                let judged = training_script(&SourceIndex::new(text));
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, judged.score >= TrainingScript::LIKELY, judged.loop_line));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn demo_projects_have_one_each() {
    for (name, trains, loop_line) in judged("demo-projects") {
        let is_script = name.ends_with("/train.py");
        assert_eq!(trains, is_script, "{name}");
        assert_eq!(loop_line.is_some(), is_script, "{name}");
    }
}

#[test]
fn a_skyline_provider_is_one() {
    let path = root().join("demo-projects/resnet/skyline_provider.py");
    let text = std::fs::read_to_string(path).expect("a text");
    assert!(training_script(&SourceIndex::new(text)).provider);
}

#[test]
fn programs_of_many_manners_train() {
    for (name, trains, _) in judged("tests/scripts/programs") {
        assert_eq!(trains, !name.ends_with("inference.py"), "{name}");
    }
}
