//! Estimates from hand-written operator lists.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::machine_costs::MachineCosts;
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::operator::ElementType;
use ridgeline_operators::retyped::retyped;
use ridgeline_profile::{
    FileFacts, LineCost, MemoryByAge, MemoryByKind, ModuleCost, ModuleId, Provenance,
};
use ridgeline_python::fingerprint;

const TEXT: &str = "\
class Net(Module):
    def __init__(self):
        self.a = Linear(64, 64)
        self.b = Linear(64, 64)

    def forward(self, x):
        x = self.a(x)
        return self.b(
            x,
        )

model = Net()
for x in loader:
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
";

/// An operator: its line, phase, width, and module (-1: none).
type Op = (u32, u32, u64, i64);

/// Forward and backward of both layers, and the optimizer.
fn ops(a: u64, b: u64) -> Vec<Op> {
    vec![(7, 1, a, 1), (8, 1, b, 2), (8, 2, b, 2), (7, 2, a, 1), (16, 3, a, -1), (16, 3, b, -1)]
}

/// Moves operators to other lines.
fn moved(ops: &[Op], by: impl Fn(u32) -> u32) -> Vec<Op> {
    ops.iter().map(|&(line, phase, width, module)| (by(line), phase, width, module)).collect()
}

/// Builds a list of matrix multiplications; those within modules are called from line `caller`.
fn list_from(caller: u32, ops: &[Op], peak: u64, more: Value) -> OpList {
    let mut stacks = vec![json!([-1, 0, caller, "<module>"])];
    let (mut signatures, mut columns) = (Vec::new(), [vec![], vec![], vec![], vec![]]);
    for &(line, phase, width, module) in ops {
        let (parent, scope) = if module >= 0 { (0, "Net.forward") } else { (-1, "<module>") };
        stacks.push(json!([parent, 0, line, scope]));
        let square = json!({"t": "float32", "s": [width, width]});
        let row = [json!(signatures.len()), json!(phase), json!(stacks.len() - 1), json!(module)];
        signatures.push(json!({"op": "aten::mm", "in": [square, square], "out": [square]}));
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    let second = ops.iter().position(|op| op.3 == 2).map_or(-1, |at| at as i64 + 1);
    let [signature, phase, stack, module] = columns;
    let mut file = json!({
        "version": 1, "outcome": "complete", "torch": "2.15.0", "device": "cpu",
        "files": ["train.py"], "stacks": stacks,
        "modules": [
            {"path": "", "type": "Net", "parent": -1},
            {"path": "a", "type": "Linear", "parent": 0, "definition": [[0, 3], [0, caller - 2]],
             "parameters": [{"name": "weight", "elements": 4096}]},
            {"path": "b", "type": "Linear", "parent": 0, "definition": [[0, 4], [0, caller - 2]]},
        ],
        "signatures": signatures,
        "ops": {"signature": signature, "phase": phase, "stack": stack, "module": module},
        "batch": {"size": 32, "from": "loader"},
        "memory": {
            "peak_bytes": peak, "peak_op": null, "baseline_bytes": peak / 2,
            "at_peak": [[peak / 2, "weight", -1, 1], [peak - peak / 2, "activation", second, 2]],
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        file[key] = value.clone();
    }
    OpList::parse(file.to_string().as_bytes()).expect("a list")
}

fn list(ops: &[Op], peak: u64, more: Value) -> OpList {
    list_from(14, ops, peak, more)
}

/// A profile of 100 ms: 20 and 30 in the two layers, 10 in the optimizer, 30 waiting for data, 10
/// outside all lines.
fn profile() -> Profile {
    let line = |line: u32, scope: &str, own: [f64; 4], total: [f64; 4]| {
        let times = |[data, forward, backward, optimizer]: [f64; 4]| PhaseTimes {
            data: data * 1e6,
            forward: forward * 1e6,
            backward: backward * 1e6,
            optimizer: optimizer * 1e6,
            other: 0.0,
        };
        LineCost {
            line,
            scope: scope.to_owned(),
            self_time: times(own),
            total_time: times(total),
            calls: 1.0,
            ..LineCost::default()
        }
    };
    let mut lines = vec![
        line(3, "Net.__init__", [0.0; 4], [0.0; 4]),
        line(7, "Net.forward", [0.0, 8.0, 12.0, 0.0], [0.0, 8.0, 12.0, 0.0]),
        // Python's tracing attributed it to the line of the argument.
        line(9, "Net.forward", [0.0, 12.0, 18.0, 0.0], [0.0, 12.0, 18.0, 0.0]),
        line(13, "<module>", [30.0, 0.0, 0.0, 0.0], [30.0, 0.0, 0.0, 0.0]),
        line(14, "<module>", [0.0, 0.0, 0.0, 0.0], [0.0, 20.0, 30.0, 0.0]),
        line(15, "<module>", [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 30.0, 0.0]),
        line(16, "<module>", [0.0, 0.0, 0.0, 10.0], [0.0, 0.0, 0.0, 10.0]),
    ];
    let held = |line: &mut LineCost, kinds: MemoryByKind, made: MemoryByAge| {
        (line.self_memory, line.self_memory_made, line.total_memory) = (kinds, made, kinds);
    };
    let weights = MemoryByKind { weights: 500, ..MemoryByKind::default() };
    held(&mut lines[0], weights, MemoryByAge { before: 500, ..MemoryByAge::default() });
    let activations = MemoryByKind { activations: 500, ..MemoryByKind::default() };
    let made = MemoryByAge { phases: [0, 500, 0, 0, 0], ..MemoryByAge::default() };
    held(&mut lines[2], activations, made);
    let module = |path: &str, parent: Option<u32>, line: u32, forward: f64| ModuleCost {
        path: path.to_owned(),
        parent: parent.map(ModuleId),
        definition: vec![(FileId(0), line)],
        total_time: PhaseTimes { forward: forward * 1e6, ..PhaseTimes::default() },
        self_time: PhaseTimes {
            forward: if parent.is_some() { forward * 1e6 } else { 0.0 },
            ..PhaseTimes::default()
        },
        parameters: 4096,
        ..ModuleCost::default()
    };
    let phases =
        PhaseTimes { data: 30e6, forward: 20e6, backward: 30e6, optimizer: 10e6, other: 10e6 };
    Profile {
        iteration: IterationCost {
            time_ns: 100e6,
            timed_ns: vec![100e6],
            phases,
            slow: None,
            phase_samples: Vec::new(),
            batch_size: Some(32),
            batch_guessed_from: None,
            loop_line: Some((FileId(0), 13)),
            found_by: "optimizer".to_owned(),
            counts_tokens: false,
            is_first: false,
            waited_share: 0.0,
        },
        memory: ridgeline_profile::MemoryCost {
            peak_bytes: 1_100,
            at_peak: MemoryByKind {
                weights: 500,
                activations: 500,
                other: 100,
                ..Default::default()
            },
            by_age: MemoryByAge { before: 600, phases: [0, 500, 0, 0, 0] },
            ..Default::default()
        },
        files: vec![FileFacts { path: "train.py".to_owned(), fingerprint: fingerprint(TEXT) }],
        lines: vec![lines],
        modules: vec![
            module("", None, 12, 20.0),
            module("a", Some(0), 3, 8.0),
            module("b", Some(0), 4, 12.0),
        ],
        untracked: vec![Untracked {
            name: "Python outside the project".to_owned(),
            phase: Phase::Other,
            time_ns: 10e6,
        }],
        ..Profile::default()
    }
}

fn device() -> &'static DeviceSpec {
    DeviceTable::shipped().find("NVIDIA H200").expect("in the table")
}

fn scaled(today: &str, before: &OpList, now: &OpList) -> Profile {
    let (profile, index) = (profile(), SourceIndex::new(today));
    estimate(&Input {
        measured: Some(MeasuredText { profile: &profile, operators: before }),
        operators: now,
        texts: &[Text { path: "train.py", index: &index }],
        device: device(),
        options: Options::default(),
        machine_costs: &MachineCosts::default(),
        target: None,
        before: None,
    })
}

/// Formats every line with its self and total time in milliseconds, and `~` if estimated.
fn format_profile(profile: &Profile) -> String {
    let mut text = String::new();
    for line in profile.lines.iter().flatten() {
        let mark = if line.provenance == Provenance::Estimated { "~" } else { "" };
        let (own, total) = (line.self_time.total() / 1e6, line.total_time.total() / 1e6);
        let memory = line.self_memory.total();
        text += &format!("{} {mark}{own:.1}/{total:.1} ms {memory} B\n", line.line);
    }
    for module in &profile.modules {
        let mark = if module.provenance == Provenance::Estimated { "~" } else { "" };
        let (own, total) = (module.self_time.total() / 1e6, module.total_time.total() / 1e6);
        let line = module.definition.first().map_or(0, |(_, line)| *line);
        text += &format!("{:?} of line {line}: {mark}{own:.1}/{total:.1} ms\n", module.path);
    }
    let (time, peak) = (profile.iteration.time_ns / 1e6, profile.memory.peak_bytes);
    text + &format!("iteration {time:.1} ms, peak {peak} B\n")
}

/// Returns the modelled time of a matrix multiplication of `width` divided by that of width `of`.
fn time_ratio(width: u64, of: u64) -> f64 {
    let one = |width| {
        CostedOperators::new(
            &list(&[(7, 1, width, 1)], 0, json!({})),
            device(),
            &Options::default(),
            &MachineCosts::default(),
        )
        .groups
        .iter()
        .map(|group| group.time_ns)
        .sum::<f64>()
    };
    one(width) / one(of)
}

#[track_caller]
fn check_conservation(profile: &Profile) {
    let mut sum = PhaseTimes::default();
    let (mut kinds, mut ages) = (MemoryByKind::default(), MemoryByAge::default());
    for line in profile.lines.iter().flatten() {
        sum += line.self_time;
        kinds += line.self_memory;
        ages += line.self_memory_made;
        assert_eq!(line.self_memory.total(), line.self_memory_made.total());
        for phase in Phase::ALL {
            assert!(line.total_time.get(phase) >= line.self_time.get(phase) - 1e-3);
        }
    }
    let untracked: f64 = profile.untracked.iter().map(|part| part.time_ns).sum();
    let iteration_ns = profile.iteration.time_ns;
    assert!((sum.total() + untracked - iteration_ns).abs() <= 1e-6 * iteration_ns.max(1.0));
    assert!(
        (profile.iteration.phases.total() - iteration_ns).abs() <= 1e-6 * iteration_ns.max(1.0)
    );
    let memory = &profile.memory;
    assert_eq!(memory.at_peak.total(), memory.peak_bytes);
    assert_eq!(memory.by_age.total(), memory.peak_bytes);
    assert!(kinds.total() <= memory.peak_bytes && ages.total() <= memory.peak_bytes);
}

#[track_caller]
fn check(profile: &Profile, expected: Expect) {
    check_conservation(profile);
    expected.assert_eq(&format_profile(profile));
}

#[test]
fn the_same_operators_cost_what_was_measured() {
    let same = list(&ops(4096, 4096), 1_000, json!({}));
    let shift_down = |line: u32| if line >= 13 { line + 1 } else { line };
    let now = list_from(15, &moved(&ops(4096, 4096), shift_down), 1_000, json!({}));
    let today = TEXT.replace("for x", "# now\nfor x");
    let found = scaled(&today, &same, &now);
    check(
        &found,
        expect![[r#"
            3 0.0/0.0 ms 500 B
            7 20.0/20.0 ms 0 B
            9 30.0/30.0 ms 500 B
            13 ~0.0/0.0 ms 0 B
            14 30.0/30.0 ms 0 B
            15 0.0/50.0 ms 0 B
            16 0.0/30.0 ms 0 B
            17 10.0/10.0 ms 0 B
            "" of line 12: 0.0/20.0 ms
            "a" of line 3: 8.0/8.0 ms
            "b" of line 4: 12.0/12.0 ms
            iteration 100.0 ms, peak 1100 B
        "#]],
    );
    assert_eq!(found.iteration.samples_per_second(), Some(320.0));
}

#[test]
fn a_wider_layer_scales_its_lines_and_their_callers() {
    let before = list(&ops(4096, 4096), 1_000, json!({}));
    let now = list(&ops(8192, 4096), 2_000, json!({}));
    let today = TEXT.replace("self.a = Linear(64, 64)", "self.a = Linear(128, 128)");
    let found = scaled(&today, &before, &now);
    let line = |number: u32| {
        let line = found.lines[0].iter().find(|line| line.line == number);
        line.cloned().unwrap_or_default()
    };
    let wider = time_ratio(8192, 4096);
    let own = line(7).self_time.total() / 1e6;
    assert!((own - 20.0 * wider).abs() < 1e-6, "{own} {wider}");
    let below = line(14).total_time.total() / 1e6;
    assert!((below - 30.0 - 20.0 * wider).abs() < 1e-6, "{below} {wider}");
    // The line that runs the whole backward pass takes longer by the increase in it.
    let engine = line(15).total_time.total() / 1e6;
    assert!((engine - (12.0 * wider + 18.0)).abs() < 1e-3 * engine, "{engine} {wider}");
    let marks = [7, 9, 13, 14, 15, 16].map(|number| line(number).provenance);
    use Provenance::{Estimated, Measured};
    // Line 9 takes the same time, and holds more memory.
    assert_eq!(line(9).self_time, profile().lines[0][2].self_time);
    assert_eq!(marks, [Estimated, Estimated, Measured, Estimated, Estimated, Estimated]);
    assert_eq!(found.memory.peak_bytes, 2_200);
    assert_eq!(found.modules[1].provenance, Estimated);
    assert_eq!(found.modules[2].total_time, profile().modules[2].total_time);
    assert!(line(7).operators.iter().any(|one| one.inputs == "[8192, 8192], [8192, 8192]"));
    check_conservation(&found);
}

#[test]
fn a_new_line_is_calibrated_by_similar_ones_and_a_deleted_one_is_removed() {
    let before = list(&ops(4096, 4096), 1_000, json!({}));
    let shift_down = |line: u32| if line >= 8 { line + 1 } else { line };
    let mut with_one_more = moved(&ops(4096, 4096), shift_down);
    with_one_more.push((8, 1, 4096, 0));
    let now = list_from(15, &with_one_more, 1_000, json!({}));
    let today = TEXT.replace("        return", "        x = x @ x\n        return");
    check(
        &scaled(&today, &before, &now),
        expect![[r#"
            3 0.0/0.0 ms 500 B
            7 20.0/20.0 ms 0 B
            8 ~10.0/10.0 ms 0 B
            10 30.0/30.0 ms 500 B
            14 30.0/30.0 ms 0 B
            15 ~0.0/60.0 ms 0 B
            16 0.0/30.0 ms 0 B
            17 10.0/10.0 ms 0 B
            "" of line 13: ~10.0/30.0 ms
            "a" of line 3: 8.0/8.0 ms
            "b" of line 4: 12.0/12.0 ms
            iteration 110.0 ms, peak 1100 B
        "#]],
    );
    let shift_up = |line: u32| if line >= 8 { line - 1 } else { line };
    let mut one_less = moved(&ops(4096, 4096)[1..], shift_up);
    one_less.retain(|op| op.3 != 1 && *op != (15, 3, 4096, -1));
    one_less.push((15, 3, 4096, -1));
    let only = json!([
        {"path": "", "type": "Net", "parent": -1}, {"path": "_", "type": "_", "parent": 0},
        {"path": "b", "type": "Linear", "parent": 0},
    ]);
    let now = list_from(13, &one_less, 1_000, json!({"modules": only}));
    let today = TEXT.replace("        x = self.a(x)\n", "");
    check(
        &scaled(&today, &before, &now),
        expect![[r#"
            3 ~0.0/0.0 ms 0 B
            8 30.0/30.0 ms 500 B
            12 30.0/30.0 ms 0 B
            13 ~0.0/30.0 ms 0 B
            14 ~0.0/18.0 ms 0 B
            15 ~5.0/5.0 ms 0 B
            "" of line 11: ~0.0/12.0 ms
            "b" of line 4: 12.0/12.0 ms
            "_" of line 0: ~0.0/0.0 ms
            iteration 75.0 ms, peak 1100 B
        "#]],
    );
}

#[test]
fn a_larger_batch_waits_longer_for_its_data() {
    let before = list(&ops(4096, 4096), 1_000, json!({}));
    let now = list(&ops(4096, 4096), 1_000, json!({"batch": {"size": 64, "from": "loader"}}));
    let found = scaled(TEXT, &before, &now);
    assert_eq!(found.iteration.phases.data, 60e6);
    assert_eq!(found.iteration.batch_size, Some(64));
    check_conservation(&found);
}

#[test]
fn a_partial_list_keeps_the_rest_as_measured() {
    let before = list(&ops(4096, 4096), 1_000, json!({}));
    let now = list(&[(7, 1, 8192, 1)], 10, json!({"outcome": "partial"}));
    let found = scaled(TEXT, &before, &now);
    assert_eq!(found.iteration.phases.backward, 30e6);
    assert_eq!(found.memory.peak_bytes, 1_100);
    assert!(found.iteration.phases.forward > 20e6);
    check_conservation(&found);
}

#[test]
fn without_a_measurement_operators_are_estimated_directly() {
    let now = list(&ops(4096, 8192), 1_000, json!({"loop": {"file": 0, "line": 13}}));
    let index = SourceIndex::new(TEXT);
    let found = estimate(&Input {
        measured: None,
        operators: &now,
        texts: &[Text { path: "train.py", index: &index }],
        device: device(),
        options: Options::default(),
        machine_costs: &MachineCosts::default(),
        target: Some(device().name.clone()),
        before: None,
    });
    check_conservation(&found);
    assert!(found.lines.iter().flatten().all(|line| line.provenance == Provenance::Estimated));
    assert_eq!(found.iteration.loop_line, Some((FileId(0), 13)));
    assert_eq!(found.iteration.batch_size, Some(32));
    assert_eq!(found.memory.peak_bytes, 1_000);
    assert_eq!(found.device.name, device().name);
    let lines: Vec<u32> = found.lines.iter().flatten().map(|line| line.line).collect();
    assert_eq!(lines, [3, 7, 8, 12, 14, 16]);
    // Modules have the lines that created them.
    assert_eq!(found.modules[1].definition.first(), Some(&(FileId(0), 3)));
}

/// A what-if timed the same multiplications in both types.
#[test]
fn measured_ratios_between_types_apply() {
    let before = list(&[(7, 1, 64, 1)], 0, json!({}));
    let mut now = before.clone();
    for operator in &mut now.signatures {
        *operator = retyped(operator, ElementType::Float32, ElementType::BFloat16);
    }
    let mut ratios = MachineCosts::default();
    ratios.add(&before.signatures[0], ElementType::BFloat16, 100.0, 25.0);
    let time_ns = |list: &OpList, ratios: &MachineCosts| -> f64 {
        let costed = CostedOperators::new(list, device(), &Options::default(), ratios);
        costed.groups.iter().map(|group| group.time_ns).sum()
    };
    let ratio = time_ns(&now, &ratios) / time_ns(&before, &ratios);
    assert!((ratio - 0.25).abs() < 1e-9, "{ratio}");
    assert_ne!(time_ns(&now, &MachineCosts::default()), time_ns(&now, &ratios));
}

#[test]
fn a_target_waits_for_its_host_as_in_the_device_comparison() {
    for batch in [8, 4096] {
        let now = list(&ops(batch, 2 * batch), 1_000, json!({}));
        let index = SourceIndex::new(TEXT);
        let found = estimate(&Input {
            measured: None,
            operators: &now,
            texts: &[Text { path: "train.py", index: &index }],
            device: device(),
            options: Options::default(),
            machine_costs: &MachineCosts::default(),
            target: Some(device().name.clone()),
            before: None,
        });
        let in_table = Step::Operators(OperatorStep::from(&now)).on(device());
        assert!((found.iteration.time_ns / in_table.time_ns.value - 1.0).abs() < 1e-9);
        assert_eq!(found.untracked.is_empty(), !in_table.waits_for_host);
        check_conservation(&found);
    }
}

proptest! {
    #[test]
    fn time_and_memory_are_conserved(
        before in proptest::collection::vec((1u32..20, 0u32..5, 1u64..5000, -1i64..3), 0..12),
        now in proptest::collection::vec((1u32..20, 0u32..5, 1u64..5000, -1i64..3), 0..12),
        peaks in (0u64..1 << 60, 0u64..5_000),
        cut in 0usize..300,
        partial in any::<bool>(),
    ) {
        let outcome = if partial { "partial" } else { "complete" };
        let before = list(&before, peaks.1, json!({}));
        let now = list(&now, peaks.0, json!({"outcome": outcome}));
        let today: String = TEXT.chars().skip(cut).collect();
        let found = scaled(&today, &before, &now);
        if peaks.0 < 1 << 50 {
            check_conservation(&found);
        }
        for (at, module) in found.modules.iter().enumerate() {
            prop_assert!(module.parent.is_none_or(|parent| (parent.0 as usize) < at));
        }
        for line in found.lines.iter().flatten() {
            prop_assert!(line.total_time.total().is_finite());
            prop_assert!(line.modules.iter().all(|id| (id.0 as usize) < found.modules.len()));
        }
    }
}
