use super::*;
use proptest::prelude::*;

const LIST: &str = r#"{
    "version": 1, "outcome": "complete", "torch": "2.15.0", "device": "cuda",
    "files": ["train.py"], "stacks": [[-1, 0, 31, "main"], [0, 0, 12, "Net.forward"]],
    "modules": [{"path": "", "type": "Net", "parent": null},
                {"path": "conv", "type": "Conv2d", "parent": 0}],
    "signatures": [{"op": "aten::convolution",
        "in": [{"t": "float16", "s": [2, 3, 8, 8], "d": [192, 1, 24, 3]},
               {"t": "float16", "s": [4, 3, 3, 3]}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1],
        "named": {"scale": 0.125},
        "out": [{"t": "float16", "s": [2, 4, 8, 8]}, null]}],
    "ops": {"signature": [0], "phase": [1], "stack": [1], "module": [-1]},
    "batch": {"size": 2, "from": "loader"},
    "optimizers": [{"type": "AdamW", "foreach": true, "fused": false}],
    "loop": {"file": 0, "line": 31},
    "memory": {"peak_bytes": 100, "peak_op": 0, "at_peak": [[40, "activation", 1, -1]],
               "baseline_bytes": 60},
    "guessed": [{"file": 0, "line": 40, "what": "1"}], "unsupported": [], "failure": null,
    "notes": ["so"], "of a later version": {}
}"#;

#[test]
fn parses_a_complete_list() {
    let list = OpList::parse(LIST.as_bytes()).unwrap();
    assert_eq!(list.outcome, Outcome::Complete);
    let op = list.ops[0];
    assert_eq!((op.phase, op.stack, op.module), (Phase::Forward, Some(1), None));
    let lines: Vec<u32> = list.frames(op.stack).map(|frame| frame.line).collect();
    assert_eq!(lines, [12, 31]);
    let operator = list.operator(&op).unwrap();
    assert_eq!(operator.base_name(), Some("convolution"));
    assert!(operator.tensor(0).unwrap().is_channels_last());
    assert_eq!(operator.argument(9, "scale").number(), Some(0.125));
    assert_eq!(operator.outputs.len(), 1);
    let memory = list.memory.unwrap();
    assert_eq!((memory.peak_op, memory.at_peak[0].bytes), (Some(0), 40));
    assert_eq!(list.batch.unwrap().size, Some(2));
}

#[track_caller]
fn check_error(from: &str, to: &str, expected: &str) {
    let text = LIST.replacen(from, to, 1);
    assert_ne!(text, LIST, "nothing was replaced");
    let error = OpList::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn out_of_range_indices_are_errors() {
    check_error(r#""version": 1"#, r#""version": 7"#, "version 7");
    check_error("[-1, 0, 31", "[0, 0, 31", "the caller of a frame");
    check_error("[-1, 0, 31", "[-1, 9, 31", "the file of a frame");
    check_error(r#""Conv2d", "parent": 0"#, r#""Conv2d", "parent": 1"#, "the parent of a module");
    check_error(r#""signature": [0]"#, r#""signature": [1]"#, "the signature of an operator");
    check_error(r#""stack": [1]"#, r#""stack": [2]"#, "the stack of an operator");
    check_error(r#""phase": [1]"#, r#""phase": [9]"#, "the phase of an operator");
    check_error(r#""phase": [1]"#, r#""phase": []"#, "the length of `ops.phase`");
    check_error(r#""peak_op": 0"#, r#""peak_op": 1"#, "the operator of the peak");
    check_error(r#""s": [4, 3, 3, 3]"#, r#""s": [-4]"#, "a tensor of a signature");
    check_error(r#"[{"path": """#, r#"[{"path": 4"#, "modules[0].path");
}

#[test]
fn excessive_lengths_are_rejected_before_parsing() {
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let text = LIST.replacen("null", &deep, 1);
    assert!(matches!(OpList::parse(text.as_bytes()), Err(OpListError::Value { .. })));
    let many = LIST.replacen("null", &format!("[{}0]", "0,".repeat(MAX_VALUES)), 1);
    assert!(matches!(OpList::parse(many.as_bytes()), Err(OpListError::TooMany { .. })));
    let long = vec![b' '; MAX_BYTES + 1];
    assert!(matches!(OpList::parse(&long), Err(OpListError::TooLong { .. })));
    let wide = LIST.replacen("[4, 3, 3, 3]", &format!("[{}1]", "1,".repeat(64)), 1);
    assert!(matches!(OpList::parse(wide.as_bytes()), Err(OpListError::Inconsistent { .. })));
}

proptest! {
    #[test]
    fn mutated_lists_do_not_panic(
        at in 0..LIST.len(),
        length in 0..40_usize,
        text in "[\\[\\]{},:0-9a-z\"\\-. ]{0,20}",
    ) {
        let mut bytes = LIST.as_bytes().to_vec();
        let end = (at + length).min(bytes.len());
        bytes.splice(at..end, text.bytes());
        if let Ok(list) = OpList::parse(&bytes) {
            for op in &list.ops {
                prop_assert!(list.operator(op).is_some());
                prop_assert!(list.frames(op.stack).count() <= list.stacks.len());
            }
        }
    }
}
