//! Losses that are accumulated with their autograd graphs.

use super::*;

const DETACH: EditKind = EditKind::DetachAccumulated;

/// Returns a training loop with lines after the step.
fn loop_with(body: &str) -> String {
    let lines: String = body.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "import torch\nmodel = torch.nn.Linear(4, 4)\nopt = torch.optim.SGD(model.parameters())\n\
         total = 0\nlosses = []\nfor x, y in loader:\n    loss = model(x).sum()\n    \
         opt.zero_grad()\n    loss.backward()\n    opt.step()\n{lines}"
    )
}

#[test]
fn accumulated_losses_are_detached() {
    let layouts = [
        "total += loss",
        "total = total + loss",
        "total += loss * x.size(0)",
        "total += (loss / 4)",
        "losses.append(loss)",
        "stats['loss'] += loss",
        "mean = 0.9 * mean + 0.1 * loss",
    ];
    let shown: String = layouts
        .iter()
        .map(|layout| {
            let after = edited(&[("train.py", &loop_with(layout))], request_for(DETACH));
            format!("{}\n", after["train.py"].lines().last().unwrap_or_default().trim())
        })
        .collect();
    expect![[r#"
        total += loss.detach()
        total = total + loss.detach()
        total += loss.detach() * x.size(0)
        total += (loss.detach() / 4)
        losses.append(loss.detach())
        stats['loss'] += loss.detach()
        mean = 0.9 * mean + 0.1 * loss.detach()
    "#]]
    .assert_eq(&shown);
}

#[test]
fn losses_without_a_graph_are_not_changed() {
    for (body, expected) in [
        (
            "total += loss.item()",
            expect!["done: train.py:11 already accumulates it without its graph"],
        ),
        (
            "total += float(loss)",
            expect!["done: train.py:11 already accumulates it without its graph"],
        ),
        (
            "total += loss.data * 2",
            expect!["done: train.py:11 already accumulates it without its graph"],
        ),
        ("print(loss)", expect!["no loss that requires a gradient is accumulated here"]),
    ] {
        check_refused(DETACH, &loop_with(body), expected);
    }
}

#[test]
fn variables_with_a_backward_pass_keep_their_graph() {
    let script = "\
import torch
model = torch.nn.Linear(4, 4)
loss = 0
for x in loader:
    part = model(x).sum()
    loss += part
    loss = loss + part
loss.backward()
";
    check_refused(DETACH, script, expect!["no loss that requires a gradient is accumulated here"]);
    let summed = loop_with("losses.append(loss)\nsum(losses).backward()");
    let (texts, entry) = project(&[("train.py", &summed)]);
    let edit = rewrite(&texts, &entry, &request_for(DETACH));
    assert!(matches!(edit, Err(Refusal::NotUnderstood(_))), "{edit:?}");
}

#[test]
fn only_requested_lines_are_changed() {
    let script = loop_with("total += loss\nlosses.append(loss)");
    let request = at(DETACH, &[("train.py", 12)]);
    let (texts, entry) = project(&[("train.py", &script)]);
    let edit = rewrite(&texts, &entry, &request).expect("made");
    assert_eq!(edit.files[0].lines(&script), [12]);
    check_refused_files(
        &[("train.py", &script)],
        at(DETACH, &[("train.py", 7)]),
        expect!["no loss that requires a gradient is accumulated here"],
    );
}

#[test]
fn all_values_at_the_line_of_a_finding_are_detached() {
    let script = loop_with("total += criterion(model(x), y)\ntotal += (x * 2)");
    let of = |line: u32| {
        let lines: &'static [(&str, u32)] =
            if line == 11 { &[("train.py", 11)] } else { &[("train.py", 12)] };
        let (texts, entry) = project(&[("train.py", &script)]);
        rewrite(&texts, &entry, &at(DETACH, lines))
    };
    let edit = of(11).expect("made");
    assert!(edit.files[0].applied(&script).contains("total += criterion(model(x), y).detach()\n"));
    assert!(matches!(of(12), Err(Refusal::NotUnderstood(_))));
}

#[test]
fn dictionaries_of_tensors_are_not_detached() {
    let edit = |loss: &str, added: &str| {
        let script = loop_with(&format!("out = model(x)\n({loss} / 2).backward()\n{added}"));
        let (texts, entry) = project(&[("train.py", &script)]);
        rewrite(&texts, &entry, &at(DETACH, &[("train.py", 13)]))
    };
    for loss in ["out[\"loss\"]", "out.loss", "out[0]", "sum(out.items())"] {
        let refused = edit(loss, "losses.append(out)");
        assert!(matches!(refused, Err(Refusal::NotUnderstood(_))), "{loss}: {refused:?}");
    }
    assert!(edit("out.mean()", "losses.append(out)").is_ok());
    assert!(edit("out.data.T.mean()", "losses.append(out)").is_ok());
}

#[test]
fn values_accumulated_by_a_meter_are_detached() {
    let meter = "class Meter:\n    def __init__(self):\n        self.sum = 0\n    \
                 def update(self, value):\n        self.sum += value\n";
    let edit = |call: &str| {
        let script =
            format!("{}{meter}", loop_with(call)).replace("losses = []", "meter = Meter()");
        let (texts, entry) = project(&[("train.py", &script)]);
        let edit = rewrite(&texts, &entry, &at(DETACH, &[("train.py", 11)]));
        edit.map(|edit| {
            edit.files[0].applied(&script).lines().nth(10).unwrap_or_default().to_owned()
        })
    };
    assert_eq!(edit("meter.update(loss)").expect("made"), "    meter.update(loss.detach())");
    assert!(edit("meter.update(loss.item())").is_err());
    assert!(edit("other.update(loss)").is_err());
}
