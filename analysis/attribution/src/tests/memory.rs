//! Memory at the peak.

use super::*;

/// The loader's batch, two activations, a workspace of the first one, a gradient, a temporary of
/// the backward pass, and the optimizer's allocations.
#[track_caller]
fn check_memory(workspace: i64, state: i64, expected: Expect) {
    let mut trace = operators();
    trace.memory(20, 0x10, 100).memory(150, 0x20, 1000).memory(160, 0x30, workspace);
    trace.memory(170, 0x30, -workspace).memory(230, 0x40, 2000).memory(340, 0x50, 300);
    trace.memory(350, 0x60, 50).memory(390, 0x60, -50).memory(400, 0x40, -2000);
    trace.memory(500, 0x20, -1000).memory(630, 0x70, state);
    let mut recording = recording(trace, LOOP, 800);
    let block = |ptr, bytes, kind, module| Block { ptr, bytes, kind, module, name: None };
    let weights = block(1, 700, BlockKind::Weight, Some(1));
    let dataset = block(2, 9, BlockKind::Other, None);
    if let Some(manifest) = &mut recording.manifest {
        manifest.memory = Some(Memory {
            device: Some("cpu".to_owned()),
            baseline: vec![weights, dataset],
            gradients: vec![block(0x50, 300, BlockKind::Gradient, Some(2))],
            batch: vec![block(0x10, 100, BlockKind::Batch, None)],
            ..Memory::default()
        });
    }
    let profile = attribute(&recording).expect("a profile");
    assert_conserved(&profile);
    let kinds = |memory: &MemoryByKind| {
        let kinds = memory.named().into_iter().filter(|(_, bytes)| *bytes > 0);
        kinds.map(|(kind, bytes)| format!(" {kind} {bytes}")).collect::<String>()
    };
    let mut text =
        format!("peak {}:{}\n", profile.memory.peak_bytes, kinds(&profile.memory.at_peak));
    for line in profile.lines.iter().flatten() {
        if line.self_memory.total() > 0 {
            writeln!(text, "{}:{}", line.line, kinds(&line.self_memory)).expect("a string");
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn memory_that_peaks_within_a_forward_operator() {
    check_memory(
        5000,
        10,
        expect![[r#"
        peak 6809: weights 700 activations 1000 batch 100 temporaries 5000 other 9
        11: weights 700
        21: activations 1000 temporaries 5000
        30: batch 100
    "#]],
    );
}

#[test]
fn memory_that_peaks_in_the_backward_pass() {
    check_memory(
        10,
        10,
        expect![[r#"
        peak 4159: weights 700 gradients 300 activations 3000 batch 100 temporaries 50 other 9
        11: weights 700
        12: gradients 300
        21: activations 1000
        22: activations 2000 temporaries 50
        30: batch 100
    "#]],
    );
}

#[test]
fn memory_that_peaks_in_the_optimizer() {
    check_memory(
        10,
        5000,
        expect![[r#"
        peak 6109: weights 700 gradients 300 optimizer state 5000 batch 100 other 9
        11: weights 700
        12: gradients 300
        30: batch 100
        33: optimizer state 5000
    "#]],
    );
}
