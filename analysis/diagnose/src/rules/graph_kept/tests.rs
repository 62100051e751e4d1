use super::*;
use crate::harness::{Case, lines_in};
use ridgeline_graph::graph::TaskKind;
use ridgeline_graph::memory::BlockKind;

/// A training loop whose body ends with these statements, with `total` and `losses` to add to.
fn program(end: &str) -> String {
    let end = end.replace('\n', "\n        ");
    format!(
        "\
import torch
from torch import nn
model = nn.Linear(4, 4)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, history = [], {{'loss': 0.0}}
for epoch in range(3):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {end}
print(total)
"
    )
}

#[track_caller]
fn check(end: &str, expected: &[u32]) {
    assert_eq!(lines_in(&GraphKept, &program(end)), expected, "{end}");
}

#[test]
fn values_accumulated_with_their_graph() {
    check("total += loss", &[15]);
    check("total = total + loss / 4", &[15]);
    check("losses.append(loss)", &[15]);
    check("history['loss'] += loss", &[15]);
    check("total += out.softmax(dim=-1).max(dim=-1).values.mean()", &[15]);
    check("if step % 10 == 0:\n    losses.append(loss)", &[16]);
    check("extra = criterion(out, y)\ntotal += extra", &[16]);
    check("losses.append((step, loss))", &[15]);
    check("losses.append({'step': step, 'loss': loss})", &[15]);
    check("losses += [loss]", &[15]);
    check("total = 0.9 * total + 0.1 * loss", &[15]);
    check("total = 0.1 * loss + total * 0.9", &[15]);
}

#[test]
fn containers_are_reported_without_a_fix() {
    let found = |loss: &str| {
        let text = program("losses.append(out)").replace("loss.backward()", loss);
        Case::new(&text).unmeasured(&GraphKept).into_iter().map(|one| one.fix).next()
    };
    assert_eq!(found("out.mean().backward()"), Some(Some(EditKind::DetachAccumulated)));
    assert_eq!(found("out[\"loss\"].backward()"), Some(None));
    assert_eq!(found("(out.loss / 2).backward()"), Some(None));
    let text = "def train(loader):\n    outputs = []\n    for batch in loader:\n        \
                    out = model(batch)\n        (out['loss'] / 2).backward()\n        \
                    outputs.append(out)\n\ntrain(data)\n";
    let found = Case::new(text).unmeasured(&GraphKept);
    assert_eq!(found.iter().map(|one| one.fix).collect::<Vec<_>>(), [None]);
}

#[test]
fn values_accumulated_without_their_graph() {
    for right in [
        "total += loss.item()",
        "total += loss.detach()",
        "total += float(loss)",
        "total += loss.data",
        "total += len(x)",
        "total += (out.argmax(1) == y).sum()",
        "losses.append(loss.item())",
        "losses.append(loss.detach().cpu())",
        "losses.append(step)",
        "losses.append((step, loss.item()))",
        "losses.append({'loss': loss.detach(), 'step': step})",
        "losses += [float(loss)]",
        "with torch.no_grad():\n    total += loss",
        "loss = loss.item()\ntotal += loss",
        "mean = loss.detach()\ntotal += mean",
        "total += f(loss)",
        "total = 0.9 * total + 0.1 * loss.item()",
        "total = 0.9 * loss",
    ] {
        check(right, &[]);
    }
}

#[test]
fn emptied_or_backpropagated_sums_are_not_reported() {
    check("total = 0.0\ntotal += loss", &[]);
    check("losses.append(loss)\nlosses.clear()", &[]);
    check("losses.append(loss)\nif len(losses) > 9:\n    losses.pop(0)", &[]);
    check("losses.append(loss)\nlosses[:] = losses[-9:]", &[]);
    check("losses.append(loss)\ndel losses[:-9]", &[]);
    check("total += loss\nif step % 4 == 0:\n    total.backward()", &[]);
    check("total += loss\nmean = total / 4\nmean.backward()", &[]);
    let text = "\
for x, y in loader:
    losses = []
    for t in range(8):
        losses.append(criterion(model(x[t]), y[t]))
    loss = torch.stack(losses).mean()
    loss.backward()
";
    assert_eq!(lines_in(&GraphKept, text), [0; 0]);
}

#[test]
fn bounded_or_unknown_lists_are_not_reported() {
    let text = program("window.append(loss)");
    let bounded = text.replace("losses, history", "window = deque(maxlen=9)\nlosses, history");
    assert_eq!(lines_in(&GraphKept, &bounded), [0; 0]);
    assert_eq!(lines_in(&GraphKept, &text), [0; 0]);
}

/// A training loop that passes its losses to a meter with this `update` method.
fn with_meter(update: &str, call: &str) -> String {
    let update = update.replace('\n', "\n        ");
    let meter = format!(
        "class Meter:\n    def __init__(self):\n        self.reset()\n    def reset(self):\n        \
             self.sum, self.count, self.all = 0, 0, []\n    def update(self, value, n=1):\n        {update}\n"
    );
    let text = program(call).replace("total = 0.0", "meter = Meter()");
    format!("{meter}{text}")
}

#[test]
fn values_accumulated_by_a_meter() {
    let check = |update: &str, call: &str, expected: &[u32]| {
        let text = with_meter(update, call);
        let line = |mark: &str| 1 + text.lines().take_while(|one| !one.contains(mark)).count();
        let found = Case::new(&text).unmeasured(&GraphKept);
        let lines: Vec<u32> = found.iter().map(|one| one.at.line).collect();
        let shift = line("import torch") as u32 - 1;
        assert_eq!(lines, expected.iter().map(|at| at + shift).collect::<Vec<_>>(), "{text}");
        for one in found {
            assert_eq!(one.related[0].0.line, line("value * n") as u32, "{text}");
        }
    };
    let sum = "self.sum += value * n\nself.count += n\nself.avg = self.sum / self.count";
    check(sum, "meter.update(loss, x.size(0))", &[15]);
    check(sum, "meter.update(value=loss)", &[15]);
    check("self.all.append(value * n)", "meter.update(loss)", &[15]);
    check("self.sum = 0.9 * self.sum + value * n", "meter.update(loss)", &[15]);
    for right in ["loss.item()", "loss.detach()", "float(loss)", "len(x)"] {
        check(sum, &format!("meter.update({right}, len(x))"), &[]);
    }
    check(sum, "meter.update(loss)\nmeter.reset()", &[]);
    check(sum, "meter = Meter()\nmeter.update(loss)", &[]);
    check(&format!("value = float(value)\n{sum}"), "meter.update(loss)", &[]);
    check("with torch.no_grad():\n    self.sum += value * n", "meter.update(loss)", &[]);
    check("self.sum += value.item() * n", "meter.update(loss)", &[]);
    check("self.sum += value.data * n", "meter.update(loss)", &[]);
    check("self.last = value * n", "meter.update(loss)", &[]);
    check("self.all.append(value)\nself.all = self.all[-9:]", "meter.update(loss)", &[]);
}

#[test]
fn library_meters_are_unknown() {
    let text = with_meter("self.sum += value * n", "meter.update(loss)");
    let text = text.replace("class Meter:", "class Other:");
    assert_eq!(lines_in(&GraphKept, &format!("from metrics import Meter\n{text}")), [0; 0]);
}

#[test]
fn training_method_called_in_a_loop() {
    let check = |end: &str, other: &str, expected: &[u32]| {
        let text = format!(
            "class Trainer:\n    def __init__(self):\n        self.losses, self.mean = [], 0.0\n    \
                 def step(self, x, y):\n        loss = criterion(model(x), y)\n        loss.backward()\n        \
                 {end}\n    def fit(self):\n        {other}\n\nTrainer().fit()\n"
        );
        assert_eq!(lines_in(&GraphKept, &text), expected, "{text}");
    };
    let fit = "for x, y in loader:\n            self.step(x, y)";
    check("self.losses.append(loss)", fit, &[7]);
    check("self.mean = 0.9 * self.mean + 0.1 * loss", fit, &[7]);
    check("self.losses.append(loss.item())", fit, &[]);
    check("self.losses.append(loss)", "self.step(1, 2)", &[]);
    check("self.losses = [loss]", fit, &[]);
    let emptied = format!("{fit}\n            self.losses.clear()");
    check("self.losses.append(loss)", &emptied, &[]);
}

#[test]
fn training_step_that_returns_its_loss() {
    let text = |given: &str| {
        format!(
            "\
def step(model, x, y):
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return {given}

def train(model, loader):
    total = 0.0
    for x, y in loader:
        total += step(model, x, y)
    return total

train(model, loader)
"
        )
    };
    assert_eq!(lines_in(&GraphKept, &text("loss")), [10]);
    assert_eq!(lines_in(&GraphKept, &text("loss.item()")), [0; 0]);
}

#[test]
fn cost_of_a_variable_is_what_its_assignment_retains() {
    let text = program("losses.append((step, out))  # kept");
    let text = text.replace("out = model(x)", "out = model(x)  # made");
    let mut case = Case::new(&text);
    let at = case.line("made");
    let allocated = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, Some(at));
    let after = case.host(TaskKind::HostOperator, 1e6, Phase::Backward, None);
    case.block(4e6, BlockKind::Activations, Some(allocated), None);
    case.block(8e6, BlockKind::Activations, Some(allocated), Some(after));
    case.block(4e6, BlockKind::Other, None, None);
    case.ran("kept", 1.0);
    let found = case.finds(&GraphKept, "kept");
    assert_eq!((found.cost, found.fix), (Some(Cost::bytes(8e6)), None));
}

#[test]
fn model_outputs_of_earlier_iterations_count() {
    let found = |before: u32| {
        let text = program("losses.append(out)  # kept");
        let mut case = Case::new(&text);
        let elsewhere = case.line("kept");
        case.ran("kept", 1.0);
        case = case.module("", "Net", 3);
        let at = Some((elsewhere.0, 3));
        let allocated = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, at);
        case.block(4e6, BlockKind::Activations, Some(allocated), None);
        case.graph.memory.blocks[0].module = Some(0);
        (0..before).for_each(|_| case.block(4e6, BlockKind::Other, None, None));
        case.finds(&GraphKept, "kept").cost
    };
    assert_eq!(found(3), Some(Cost::bytes(16e6)));
    // The variable holds the last one until the next is computed.
    assert_eq!(found(1), None);
}

#[test]
fn cost_is_what_the_line_retains() {
    let text = program("total += out.softmax(dim=-1).mean()  # kept");
    let mut case = Case::new(&text);
    let at = case.line("kept");
    let softmax = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, Some(at));
    let after = case.host(TaskKind::HostOperator, 1e6, Phase::Optimizer, None);
    case.block(4e6, BlockKind::Activations, Some(softmax), None);
    case.block(8e6, BlockKind::Activations, Some(softmax), Some(after));
    case.block(16e6, BlockKind::Weights, None, None);
    // Two earlier iterations.
    case.block(4e6, BlockKind::Other, None, None);
    case.block(4e6, BlockKind::Other, None, None);
    case.block(5e6, BlockKind::Other, None, None);
    // The model's output of the same size, from this and the previous iteration.
    let forward = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, None);
    case.block(4e6, BlockKind::Activations, Some(forward), None);
    case.block(4e6, BlockKind::Other, None, None);
    assert_eq!(case.measured(&GraphKept), [], "it did not run");
    case.ran("kept", 1.0);
    let found = case.finds(&GraphKept, "kept");
    assert_eq!(found.cost, Some(Cost::bytes(12e6)));
    assert!(found.why.contains("grows by 4.0 MB"), "{}", found.why);
    assert!(found.message.starts_with("`total` retains"), "{}", found.message);
}
