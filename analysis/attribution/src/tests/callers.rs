//! From where lines are reached.

use super::*;
use ridgeline_recording::manifest::{Code, Module};

/// Renders the callers and instances of each line that has several.
fn render(profile: &Profile) -> String {
    let mut text = String::new();
    for line in profile.lines.iter().flatten() {
        for caller in &line.callers {
            writeln!(text, "{} from {}: {:.0}", line.line, caller.line, caller.time_ns).unwrap();
        }
        for one in &line.instances {
            let path = &profile.modules[one.module.0 as usize].path;
            writeln!(text, "{} in {path}: {:.0}", line.line, one.time_ns).unwrap();
        }
    }
    text
}

#[test]
fn a_line_of_a_layer_is_split_by_instance_and_caller() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50).sequence(1);
    trace.op("aten::linear", 220, 60).sequence(2);
    trace.node("AddmmBackward0", 330, 100).sequence(2).forward_thread(1);
    trace.node("AddmmBackward0", 450, 100).sequence(1).forward_thread(1);
    // Line 41 of `Block.forward` runs in the module a, called on line 21, and in b, called on 22.
    let mut records = LOOP.to_vec();
    for (time_ns, end_ns) in [(135, 190), (215, 290)] {
        let at = records.partition_point(|record| record.0 <= time_ns);
        records.splice(at..at, [(time_ns, PUSH, 2, 40), (time_ns, LINE, 2, 41)]);
        let at = records.partition_point(|record| record.0 < end_ns);
        records.insert(at, (end_ns, POP, 2, 0));
    }
    let mut recording = recording(trace, &records, 800);
    let manifest = recording.manifest.as_mut().expect("the fixture has one");
    manifest.codes[2] = Code { file: 0, name: "Block.forward".to_owned(), first_line: 40 };
    for module in manifest.modules.iter_mut().filter(|module| module.parent.is_some()) {
        *module = Module { type_name: "Block".to_owned(), ..module.clone() };
    }
    let profile = attribute(&recording).expect("a profile");
    assert_conserved(&profile);
    expect![[r#"
        41 from 22: 175
        41 from 21: 155
        41 in b: 175
        41 in a: 155
    "#]]
    .assert_eq(&render(&profile));
}

#[test]
fn a_line_with_one_caller_has_none() {
    let profile = attribute(&recording(operators(), LOOP, 800)).expect("a profile");
    expect![""].assert_eq(&render(&profile));
}
