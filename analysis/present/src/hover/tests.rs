use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{add_expressions, add_utilization, costs};
use crate::terminal::{Style, summary};
use ridgeline_compare::fixture::{TRAIN, profile};
use ridgeline_diagnose::finding::{Cost, SourceLine};
use ridgeline_profile::{CallerCost, FileId, InstanceCost, MemoryByAge};

fn at(today: &str, needle: &str) -> Option<Hover> {
    let (profile, costs, index) = costs(TRAIN, Some(today));
    hover(&profile, HoverContext::default(), &costs, &index, today.find(needle).unwrap())
}

fn check(needle: &str, expected: Expect) {
    let text = profile(TRAIN).0;
    expected.assert_eq(&at(&text, needle).map_or("nothing".to_owned(), |hover| hover.plain));
}

#[test]
fn a_layer() {
    check(
        "conv(x)",
        expect![[r#"
                50 ms (50% of the iteration) · most expensive line
                forward 20 ms · backward 30 ms
                holds 80 MB (67% of peak memory): activations 80 MB
                Layer: conv Conv2d 65 ms (65%) · 2.0 million parameters

                Operators    time       inputs                   of peak
                convolution  20 ms fwd  [32, 3, 224, 224] float  compute 50%

                most expensive kernel: sm90_xmma_fprop<float*, _x_> 10 ms · occupancy 62%

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
}

#[test]
fn a_layer_in_markdown() {
    let hover = at(&profile(TRAIN).0, "conv(x)").unwrap();
    expect![[r#"
            **50 ms (50% of the iteration)** · most expensive line  
            forward 20 ms · backward 30 ms  
            holds 80 MB (67% of peak memory): activations 80 MB  
            **Layer:** `conv` `Conv2d` 65 ms (65%) · 2.0 million parameters  

            ```text
            Operators    time       inputs                   of peak
            convolution  20 ms fwd  [32, 3, 224, 224] float  compute 50%
            ```

            most expensive kernel: `sm90_xmma_fprop<float*, _x_>` 10 ms · occupancy 62%  

            measured on NVIDIA H200, PyTorch 2.15.0"#]]
    .assert_eq(&hover.markdown);
}

/// Checks the hover at `needle` of the line with expressions.
#[track_caller]
fn check_expressions(today: &str, needle: &str, expected: Expect) {
    let (mut profile, costs, index) = costs(TRAIN, Some(today));
    add_expressions(&mut profile);
    let offset = today.find(needle).expect("it") + needle.len() - 1;
    let found = hover(&profile, HoverContext::default(), &costs, &index, offset);
    let plain = found.expect("a hover").plain;
    expected.assert_eq(plain.split("holds").next().expect("text"));
}

#[test]
fn an_expression_under_the_cursor() {
    let text = profile(TRAIN).0;
    check_expressions(
        &text,
        "(self.conv",
        expect![[r#"
        37.5 ms (38% of the iteration) in self.conv(x) · forward 15 ms · backward 22.5 ms
        50 ms (50% of the iteration) on this line · most expensive line
        forward 20 ms · backward 30 ms
    "#]],
    );
    check_expressions(
        &text,
        "torch.relu",
        expect![[r#"
        10 ms (10% of the iteration) in torch.relu(…) · forward 4.0 ms · backward 6.0 ms
        50 ms (50% of the iteration) on this line · most expensive line
        forward 20 ms · backward 30 ms
    "#]],
    );
    // The line has another indentation, and is elsewhere.
    let moved = format!("import os\n{}", text.replace("        x = torch", "          x = torch"));
    check_expressions(
        &moved,
        "(self.conv",
        expect![[r#"
        37.5 ms (38% of the iteration) in self.conv(x) · forward 15 ms · backward 22.5 ms
        50 ms (50% of the iteration) on this line · most expensive line
        forward 20 ms · backward 30 ms
    "#]],
    );
    // It changed.
    let changed = text.replace("torch.relu", "torch.tanh");
    check_expressions(
        &changed,
        "(self.conv",
        expect![[r#"
        was 50 ms (50% of the iteration) · most expensive line
        measured before this line changed
        forward 20 ms · backward 30 ms
    "#]],
    );
}

#[test]
fn all_expressions_at_the_end_of_the_line() {
    let (mut profile, costs, index) = costs(TRAIN, None);
    add_expressions(&mut profile);
    let offset = index.text().find("x = torch.relu").expect("the line");
    let found = hover(&profile, HoverContext::default(), &costs, &index, offset);
    expect![[r#"
        50 ms (50% of the iteration) · most expensive line
        forward 20 ms · backward 30 ms
        holds 80 MB (67% of peak memory): activations 80 MB
        Layer: conv Conv2d 65 ms (65%) · 2.0 million parameters

        Expressions    time                     of line
        self.conv(x)   fwd 15 ms · bwd 22.5 ms  75%
        torch.relu(…)  fwd 4.0 ms · bwd 6.0 ms  20%

        Operators    time       inputs                   of peak
        convolution  20 ms fwd  [32, 3, 224, 224] float  compute 50%

        most expensive kernel: sm90_xmma_fprop<float*, _x_> 10 ms · occupancy 62%

        measured on NVIDIA H200, PyTorch 2.15.0"#]]
    .assert_eq(&found.expect("a hover").plain);
}

#[test]
fn a_line_that_is_reached_from_several_places() {
    let (mut profile, costs, index) = costs(TRAIN, None);
    let line = profile.lines[0].iter_mut().find(|line| line.line == 8).expect("the line");
    let caller = |line, time_ns| CallerCost { file: FileId(0), line, time_ns };
    line.callers = vec![caller(17, 40e6), caller(21, 10e6)];
    let instance = |module, time_ns| InstanceCost { module: ModuleId(module), time_ns };
    line.instances = vec![instance(1, 20e6), instance(2, 18e6), instance(0, 9e6), instance(9, 1.0)];
    let offset = index.text().find("x = torch.relu").expect("the line");
    let found = hover(&profile, HoverContext::default(), &costs, &index, offset);
    let plain = found.expect("a hover").plain;
    let files = [Some("file:///w/train.py".to_owned())];
    let context = HoverContext { files: &files, ..HoverContext::default() };
    let linked = hover(&profile, context, &costs, &index, offset).expect("a hover").markdown;
    assert!(linked.contains("[train.py:17](file:///w/train.py#L17) 40 ms"), "{linked}");
    expect![[r#"
        50 ms (50% of the iteration) · most expensive line
        forward 20 ms · backward 30 ms
        holds 80 MB (67% of peak memory): activations 80 MB
        Called from: train.py:17 40 ms · train.py:21 10 ms
        By layer: conv 20 ms · head 18 ms · the model 9.0 ms
        Layer: conv Conv2d 65 ms (65%) · 2.0 million parameters"#]]
    .assert_eq(plain.split("\n\n").next().expect("a paragraph"));
}

#[test]
fn a_call() {
    check(
        "model(x)",
        expect![[r#"
                65 ms (65% of the iteration)
                forward 25 ms · backward 40 ms
                self 6.5 ms (4th most expensive line) · in calls 58.5 ms
                holds 90 MB (75% of peak memory): activations 90 MB
                Layer: the model Net 85 ms (85%) · 2.2 million parameters

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
}

#[test]
fn the_loop() {
    check(
        "for x, y",
        expect![[r#"
                320 samples/s · 100 ms · peak 120 MB / 23.7 GB
                batch size 32 · median of 3 iterations, ±4%

                Time: data 8.0 ms (8%) · forward 25 ms (25%) · backward 40 ms (40%) · optimizer 20.2 ms (20%) · other 6.8 ms (7%)
                Peak memory 120 MB / 23.7 GB: weights 9.0 MB (8%) · gradients 9.0 MB (8%) · activations 90 MB (75%) · batch 12 MB (10%)

                8.0 ms (8% of the iteration) on this line, waiting for data · 3rd most expensive line

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
}

#[test]
fn the_loop_shows_when_memory_was_allocated() {
    let (mut profile, costs, index) = costs(TRAIN, None);
    profile.memory.by_age =
        MemoryByAge { before: 18_000_000, phases: [12_000_000, 90_000_000, 0, 0, 0] };
    let offset = index.text().find("for x, y").unwrap();
    let shown = hover(&profile, HoverContext::default(), &costs, &index, offset).unwrap();
    let expected = "allocated: before the step 18 MB · data 12 MB · forward 90 MB\n";
    assert!(shown.plain.contains(expected), "{}", shown.plain);
    let page = summary(&profile, Style { color: false, width: 80 });
    assert!(page.contains(expected), "{page}");
}

#[test]
fn a_constructor() {
    check(
        "self.head = ",
        expect![[r#"
                15 ms (15% of the iteration) in the module created here
                forward 3.0 ms · backward 7.0 ms · optimizer 5.0 ms
                holds 5.0 MB (4% of peak memory): activations 4.0 MB · weights 1.0 MB
                Layer: head Linear 15 ms (15%) · 250 thousand parameters

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
}

/// Checks the hover of a profile with utilization.
fn check_utilization(on_gpu: bool, needle: &str, expected: Expect) {
    let (mut profile, costs, index) = costs(TRAIN, None);
    add_utilization(&mut profile, on_gpu);
    let offset = index.text().find(needle).unwrap();
    let shown = hover(&profile, HoverContext::default(), &costs, &index, offset);
    expected.assert_eq(&shown.map_or("nothing".to_owned(), |hover| hover.plain));
}

#[test]
fn gpu_utilization() {
    check_utilization(
        true,
        "conv(x)",
        expect![[r#"
                50 ms (50% of the iteration) · most expensive line
                forward 20 ms · backward 30 ms
                GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak · tensor cores used · occupancy 62% · 12 launches (500 µs on the CPU)
                holds 80 MB (67% of peak memory): activations 80 MB
                Layer: conv Conv2d 65 ms (65%) · 2.0 million parameters

                Operators    time       inputs                   of peak
                convolution  20 ms fwd  [32, 3, 224, 224] float  compute 50%

                most expensive kernel: sm90_xmma_fprop<float*, _x_> 10 ms · occupancy 62%

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check_utilization(
        true,
        "for x, y",
        expect![[r#"
                320 samples/s · 100 ms · peak 120 MB / 23.7 GB
                batch size 32 · median of 3 iterations, ±4%

                Time: data 8.0 ms (8%) · forward 25 ms (25%) · backward 40 ms (40%) · optimizer 20.2 ms (20%) · other 6.8 ms (7%)
                GPU busy 72% · FP32 50% of the peak · bandwidth 21% of the peak · tensor cores used · occupancy 62% · 12 launches (900 µs on the CPU)
                Peak memory 120 MB / 23.7 GB: weights 9.0 MB (8%) · gradients 9.0 MB (8%) · activations 90 MB (75%) · batch 12 MB (10%)

                8.0 ms (8% of the iteration) on this line, waiting for data · 3rd most expensive line

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check_utilization(
        true,
        "model(x)",
        expect![[r#"
                65 ms (65% of the iteration)
                forward 25 ms · backward 40 ms
                self 6.5 ms (4th most expensive line) · in calls 58.5 ms
                self: GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak · tensor cores used · occupancy 62% · 12 launches (65 µs on the CPU)
                holds 90 MB (75% of peak memory): activations 90 MB
                Layer: the model Net 85 ms (85%) · 2.2 million parameters
                layer: GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak · tensor cores used · occupancy 62% · 12 launches (650 µs on the CPU)

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
}

#[test]
fn cpu_utilization() {
    check_utilization(
        false,
        "conv(x)",
        expect![[r#"
                50 ms (50% of the iteration) · most expensive line
                forward 20 ms · backward 30 ms
                80% in PyTorch ops
                holds 80 MB (67% of peak memory): activations 80 MB
                Layer: conv Conv2d 65 ms (65%) · 2.0 million parameters

                Operators    time       inputs                   of peak
                convolution  20 ms fwd  [32, 3, 224, 224] float  compute 50%

                most expensive kernel: sm90_xmma_fprop<float*, _x_> 10 ms · occupancy 62%

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check_utilization(
        false,
        "for x, y",
        expect![[r#"
                320 samples/s · 100 ms · peak 120 MB / 23.7 GB
                batch size 32 · median of 3 iterations, ±4%

                Time: data 8.0 ms (8%) · forward 25 ms (25%) · backward 40 ms (40%) · optimizer 20.2 ms (20%) · other 6.8 ms (7%)
                72% in PyTorch ops
                Peak memory 120 MB / 23.7 GB: weights 9.0 MB (8%) · gradients 9.0 MB (8%) · activations 90 MB (75%) · batch 12 MB (10%)

                8.0 ms (8% of the iteration) on this line, waiting for data · 3rd most expensive line

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
}

#[test]
fn utilization_of_functions_classes_and_modules() {
    check_utilization(
        true,
        "forward(self",
        expect![[r#"
                60 ms (60% of the iteration) in the function Net.forward
                forward 23 ms · backward 37 ms
                GPU busy 67% · FP32 50% of the peak · bandwidth 21% of the peak · tensor cores used · occupancy 62% · 12 launches (500 µs on the CPU)
                holds 84 MB (70% of peak memory): activations 84 MB

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check_utilization(
        true,
        "def train",
        expect![[r#"
                93.2 ms (93% of the iteration) in the function train
                data 8.0 ms · forward 25 ms · backward 40 ms · optimizer 20.2 ms
                own lines: GPU busy 15% · FP32 50% of the peak · bandwidth 21% of the peak · tensor cores used · occupancy 62% · 24 launches (67 µs on the CPU)
                holds 90 MB (75% of peak memory): activations 90 MB

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check_utilization(
        true,
        "Net(nn",
        expect![[r#"
                85 ms (85% of the iteration) in the class Net
                forward 25 ms · backward 40 ms · optimizer 20 ms
                GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak · tensor cores used · occupancy 62% · 12 launches (650 µs on the CPU)
                holds 99 MB (82% of peak memory): activations 90 MB · weights 9.0 MB

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check_utilization(
        true,
        "self.conv = ",
        expect![[r#"
                65 ms (65% of the iteration) in the module created here
                forward 20 ms · backward 30 ms · optimizer 15 ms
                GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak · tensor cores used · occupancy 62% · 12 launches (500 µs on the CPU)
                holds 88 MB (73% of peak memory): activations 80 MB · weights 8.0 MB
                Layer: conv Conv2d 65 ms (65%) · 2.0 million parameters

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check_utilization(
        false,
        "forward(self",
        expect![[r#"
                60 ms (60% of the iteration) in the function Net.forward
                forward 23 ms · backward 37 ms
                67% in PyTorch ops
                holds 84 MB (70% of peak memory): activations 84 MB

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check_utilization(
        false,
        "self.conv = ",
        expect![[r#"
                65 ms (65% of the iteration) in the module created here
                forward 20 ms · backward 30 ms · optimizer 15 ms
                80% in PyTorch ops
                holds 88 MB (73% of peak memory): activations 80 MB · weights 8.0 MB
                Layer: conv Conv2d 65 ms (65%) · 2.0 million parameters

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
}

#[test]
fn a_function_and_a_class() {
    check(
        "forward(self",
        expect![[r#"
                60 ms (60% of the iteration) in the function Net.forward
                forward 23 ms · backward 37 ms
                holds 84 MB (70% of peak memory): activations 84 MB

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
    check(
        "Net(nn",
        expect![[r#"
                85 ms (85% of the iteration) in the class Net
                forward 25 ms · backward 40 ms · optimizer 20 ms
                holds 99 MB (82% of peak memory): activations 90 MB · weights 9.0 MB

                measured on NVIDIA H200, PyTorch 2.15.0"#]],
    );
}

fn finding(rule: &'static str) -> Finding {
    Finding {
        rule,
        at: SourceLine { path: "train.py".to_owned(), line: 3 },
        loop_lines: Vec::new(),
        related: vec![(
            SourceLine { path: "net.py".to_owned(), line: 1 },
            "it is made here".to_owned(),
        )],
        message: "The convolution pads".to_owned(),
        why: "Pass `padding=0` to `Conv2d`.".to_owned(),
        cost: Some(Cost::time(5e6)),
        is_measured: true,
        fix: Some(EditKind::ChannelsLast),
    }
}

#[test]
fn the_cost_is_followed_by_its_cause_and_the_fix() {
    let (profile, costs, index) = costs(TRAIN, None);
    let found = finding("layout-copies");
    let context = HoverContext { findings: &[(&found, Some(&profile))], ..HoverContext::default() };
    let offset = index.text().find("conv(x)").unwrap();
    let shown = hover(&profile, context, &costs, &index, offset).unwrap();
    expect![[r#"
            50 ms (50% of the iteration) · most expensive line
            The convolution pads: 5.0 ms per iteration (5%) · layout-copies
            Pass padding=0 to Conv2d.
            net.py:1 it is made here
            Fix available as a code action: Use channels_last memory format
            forward 20 ms · backward 30 ms
            holds 80 MB (67% of peak memory): activations 80 MB
            Layer: conv Conv2d 65 ms (65%) · 2.0 million parameters

            Operators    time       inputs                   of peak
            convolution  20 ms fwd  [32, 3, 224, 224] float  compute 50%

            most expensive kernel: sm90_xmma_fprop<float*, _x_> 10 ms · occupancy 62%

            measured on NVIDIA H200, PyTorch 2.15.0"#]]
    .assert_eq(&shown.plain);
    assert!(shown.markdown.contains("Pass `padding=0` to `Conv2d`."), "{}", shown.markdown);
}

#[test]
fn hovers_have_a_maximum_length() {
    let (mut profile, costs, index) = costs(TRAIN, None);
    add_utilization(&mut profile, true);
    profile.notes = vec!["a note".to_owned(); 9];
    for line in profile.lines.iter_mut().flatten() {
        line.operators = line.operators.iter().cycle().take(9).cloned().collect();
    }
    let found = [finding("a"), finding("b"), finding("c")];
    let found: Vec<_> = found.iter().map(|one| (one, Some(&profile))).collect();
    let text = index.text();
    for findings in [&found[..0], &found[..1], &found[..]] {
        let context = HoverContext { findings, ..HoverContext::default() };
        for (at, _) in text.match_indices('\n') {
            let Some(shown) = hover(&profile, context, &costs, &index, at) else { continue };
            let lines = shown.plain.lines().filter(|line| !line.is_empty()).count();
            assert!(lines <= MAX_LINES, "{lines} lines:\n{}", shown.plain);
            assert!(shown.plain.contains("measured on NVIDIA"), "{}", shown.plain);
        }
    }
}

#[test]
fn a_changed_line() {
    let today = profile(TRAIN).0.replace("optimizer.step()", "optimizer.step(1)");
    expect![[r#"
            was 20 ms (20% of the iteration) · 2nd most expensive line
            measured before this line changed
            optimizer 20 ms

            measured on NVIDIA H200, PyTorch 2.15.0"#]]
    .assert_eq(&at(&today, "step(1)").unwrap().plain);
}

#[test]
fn no_hover_without_a_measurement() {
    check("super()", expect![["nothing"]]);
    check("# One step", expect![["nothing"]]);
}
