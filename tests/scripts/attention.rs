//! Trains programs that write attention out, before and after the edit that fuses it: the losses of 20
//! iterations from the same seed agree up to rounding.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ridgeline_analysis::optimize::rewrite::{EditKind, Request, rewrite};
use ridgeline_analysis::python::semantics::Entry;

use crate::sandbox::{Sandbox, python_with_torch, repository};

/// The largest relative difference of two losses. Both compute in float32, whose relative rounding
/// error is 6e-8, and each iteration carries it on.
const TOLERANCE: f64 = 1e-4;

/// Fuses all attention of a program. Returns the program, and how many calls of the fused operator
/// it has.
fn edited(text: &str) -> (String, usize) {
    let texts = HashMap::from([("train.py".to_owned(), Arc::<str>::from(text))]);
    let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
    let request = Request { kind: EditKind::FusedAttention, lines: &[], count: None };
    let edit = rewrite(&texts, &entry, &request).expect("an edit");
    let after = edit.files[0].applied(text);
    let calls = after.matches("scaled_dot_product_attention(").count();
    assert!(!after.contains("softmax("), "{after}");
    (after, calls)
}

/// Returns the losses that a program prints.
fn losses(python: &Path, program: &Path) -> Vec<f64> {
    let output = Command::new(python).arg(program).output().expect("Python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", program.display());
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.lines().map(|line| line.parse().expect("a loss")).collect()
}

#[test]
fn fused_attention_trains_as_before() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    for (name, calls) in [("causal.py", 1), ("masked.py", 2), ("in_place.py", 1)] {
        let program = repository().join("tests/scripts/attention").join(name);
        let text = std::fs::read_to_string(&program).expect("a program");
        let (after, found) = edited(&text);
        assert_eq!(found, calls, "{after}");
        let fused = sandbox.write(name, after.as_bytes());
        let (before, after) = (losses(python, &program), losses(python, &fused));
        assert_eq!(before.len(), 20);
        assert!(before[19] < 0.99 * before[0], "{name} does not train: {before:?}");
        for (one, other) in before.iter().zip(&after) {
            let difference = (one - other).abs() / one;
            assert!(difference < TOLERANCE, "{name}: {before:?}, then {after:?}");
        }
    }
}
