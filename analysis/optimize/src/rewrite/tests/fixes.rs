//! Edits that fix a finding.

use expect_test::expect;

use super::*;

mod accumulated_loss;

/// Requests an edit at lines of `train.py`.
fn at(kind: EditKind, lines: &'static [(&'static str, u32)]) -> Request<'static> {
    Request { kind, lines, count: None }
}

const VALIDATES: &str = "\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
opt = torch.optim.SGD(model.parameters())


def validate(model, loader):
    total = 0
    for x, y in loader:
        total += nn.functional.mse_loss(model(x), y).item()
    return total


for epoch in range(3):
    for x, y in train_loader:
        loss = model(x).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(validate(model, val_loader))
";

const INLINE: &str = "\
import torch
from torch import nn

model = nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters())

for epoch in range(3):
    for x, y in train_loader:
        loss = model(x).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    for x, y in val_loader:
        # how good is it?
        print(model(x).sum().item())
";

#[test]
fn validation_without_gradients() {
    check(
        EditKind::NoGradInValidation,
        VALIDATES,
        expect![[r#"

        +@torch.no_grad()
         def validate(model, loader):
    "#]],
    );
    check(
        EditKind::NoGradInValidation,
        INLINE,
        expect![[r#"
                 opt.step()
        -    for x, y in val_loader:
        -        # how good is it?
        -        print(model(x).sum().item())
        +    with torch.no_grad():
        +        for x, y in val_loader:
        +            # how good is it?
        +            print(model(x).sum().item())

    "#]],
    );
    for (from, to) in [
        ("def validate", "@torch.inference_mode()\ndef validate"),
        ("        total +=", "        with torch.no_grad():\n            total +="),
    ] {
        check_refused(
            EditKind::NoGradInValidation,
            &VALIDATES.replace(from, to),
            if from.starts_with("def") {
                expect!["done: train.py:11 already validates without gradients"]
            } else {
                expect!["done: train.py:10 already validates without gradients"]
            },
        );
    }
    let yields = VALIDATES.replace("    return total", "    yield total");
    check_refused(
        EditKind::NoGradInValidation,
        &yields,
        expect!["train.py:8 yields, and a generator would keep gradients disabled outside of it"],
    );
    check_refused(
        EditKind::NoGradInValidation,
        PLAIN,
        expect!["no validation code was found here"],
    );
}

#[test]
fn validation_without_a_typical_name_is_found_by_its_line() {
    let script = VALIDATES.replace("validate", "look").replace("val_loader", "other");
    let request = at(EditKind::NoGradInValidation, &[("train.py", 11)]);
    check_files(
        &[("train.py", &script)],
        request,
        expect![[r#"

        +@torch.no_grad()
         def look(model, loader):
    "#]],
    );
    // The training loop is never validation, whatever line is requested.
    check_refused_files(
        &[("train.py", &script)],
        at(EditKind::NoGradInValidation, &[("train.py", 17)]),
        expect!["train.py:17 appears to contribute to a loss, so it needs its gradients"],
    );
}

#[test]
fn validation_in_evaluation_mode() {
    check(
        EditKind::EvalModeInValidation,
        VALIDATES,
        expect![[r#"
             total = 0
        +    model.eval()
             for x, y in loader:
                 total += nn.functional.mse_loss(model(x), y).item()
        +    model.train()
             return total
    "#]],
    );
    let called = VALIDATES.replace("    print(validate", "    model.eval()\n    print(validate");
    check_refused(
        EditKind::EvalModeInValidation,
        &called,
        expect!["done: the model of train.py:10 is already in evaluation mode"],
    );
    let returns = VALIDATES.replace("        total +=", "        return 1\n        total +=");
    check_refused(
        EditKind::EvalModeInValidation,
        &returns,
        expect!["train.py:10 returns in between, so the code after it would not run"],
    );
}

#[test]
fn anomaly_detection_is_disabled() {
    let switch = PLAIN.replace("device =", "torch.autograd.set_detect_anomaly(True)\ndevice =");
    check(
        EditKind::RemoveAnomalyDetection,
        &switch,
        expect![[r#"

        -torch.autograd.set_detect_anomaly(True)
        +torch.autograd.set_detect_anomaly(False)
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    "#]],
    );
    let block = PLAIN.replace(
        "        loss.backward()",
        "        with torch.autograd.detect_anomaly():\n            loss.backward()",
    );
    check(
        EditKind::RemoveAnomalyDetection,
        &block,
        expect![[r#"
                 optimizer.zero_grad()
        -        with torch.autograd.detect_anomaly():
        +        with torch.autograd.set_detect_anomaly(False):
                     loss.backward()
    "#]],
    );
    check_refused(
        EditKind::RemoveAnomalyDetection,
        &switch.replace("(True)", "(args.debug)"),
        expect!["train.py:5 takes it from `args.debug`: disable it there"],
    );
    check_refused(
        EditKind::RemoveAnomalyDetection,
        PLAIN,
        expect!["the program does not enable anomaly detection"],
    );
}

#[test]
fn persistent_workers() {
    let kind = EditKind::PersistentWorkers;
    let with = |arguments: &str| PLAIN.replace("shuffle=True", arguments);
    let shown: String =
        ["num_workers=4", "num_workers=args.workers", "num_workers=2, persistent_workers=False"]
            .iter()
            .map(|arguments| {
                let after = edited(&[("train.py", &with(arguments))], request_for(kind));
                let text =
                    after["train.py"].split("loader = ").nth(1).unwrap_or_default().to_owned();
                let call = text.split("\nmodel").next().unwrap_or_default();
                let words: Vec<&str> = call.split_whitespace().collect();
                format!("{}\n", words.join(" "))
            })
            .collect();
    expect![[r#"
        DataLoader(data, batch_size=32, num_workers=4, persistent_workers=True)
        DataLoader( data, batch_size=32, num_workers=args.workers, persistent_workers=args.workers > 0, )
        DataLoader(data, batch_size=32, num_workers=2, persistent_workers=True)
    "#]]
    .assert_eq(&shown);
    check_refused(kind, PLAIN, expect!["train.py:6 has no workers to keep"]);
    check_refused(kind, &with("num_workers=0"), expect!["train.py:6 has no workers to keep"]);
    check_refused(
        kind,
        &with("num_workers=4, **more"),
        expect![
            "train.py:6 passes starred arguments to the DataLoader, which may already set persistent_workers"
        ],
    );
}

#[test]
fn non_blocking_copies() {
    check(
        EditKind::NonBlockingCopy,
        PLAIN,
        expect![[r#"
             for x, y in loader:
        -        x, y = x.to(device), y.to(device)
        +        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                 # forward
    "#]],
    );
    check_refused_files(
        &[("train.py", PLAIN)],
        at(EditKind::NonBlockingCopy, &[("train.py", 7)]),
        expect!["no batch is copied to a GPU here"],
    );
}

const ACCUMULATES: &str = "\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(nn.Linear(4, 4))
opt = torch.optim.SGD(model.parameters())

for i, (x, y) in enumerate(loader):
    out = model(x)
    loss = nn.functional.mse_loss(out, y) / 4
    loss.backward()
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        opt.step()
        opt.zero_grad()
";

#[test]
fn gradients_are_synchronized_once_per_step() {
    let kind = EditKind::Accumulate;
    check(
        kind,
        ACCUMULATES,
        expect![[r#"
             from torch.nn.parallel import DistributedDataParallel as DDP
            +from contextlib import nullcontext

            …
             for i, (x, y) in enumerate(loader):
            -    out = model(x)
            -    loss = nn.functional.mse_loss(out, y) / 4
            -    loss.backward()
            +    with nullcontext() if (i + 1) % 4 == 0 or i + 1 == len(loader) else model.no_sync():
            +        out = model(x)
            +        loss = nn.functional.mse_loss(out, y) / 4
            +        loss.backward()
                 if (i + 1) % 4 == 0 or i + 1 == len(loader):
        "#]],
    );
    // The model is not wrapped in every run.
    check(
        kind,
        &ACCUMULATES.replace(
            "model = DDP(nn.Linear(4, 4))",
            "model = nn.Linear(4, 4)\nif many:\n    model = DDP(model)",
        ),
        expect![[r#"
             from torch.nn.parallel import DistributedDataParallel as DDP
            +from contextlib import nullcontext

            …
             for i, (x, y) in enumerate(loader):
            -    out = model(x)
            -    loss = nn.functional.mse_loss(out, y) / 4
            -    loss.backward()
            +    with nullcontext() if (i + 1) % 4 == 0 or i + 1 == len(loader) or not isinstance(model, DDP) else model.no_sync():
            +        out = model(x)
            +        loss = nn.functional.mse_loss(out, y) / 4
            +        loss.backward()
                 if (i + 1) % 4 == 0 or i + 1 == len(loader):
        "#]],
    );
    check_refused(
        kind,
        &ACCUMULATES.replace("    loss.backward()", "    loss.backward()\n    i += 1"),
        expect!["train.py:12 reassigns `i` before the optimizer's condition uses it"],
    );
    check_refused(
        kind,
        &ACCUMULATES.replace("DDP(nn.Linear(4, 4))", "nn.Linear(4, 4)"),
        expect!["no DistributedDataParallel model was found here"],
    );
    check_refused(
        kind,
        &ACCUMULATES.replace("    if (i + 1) % 4 == 0 or i + 1 == len(loader):", "    if True:"),
        expect!["train.py:12 steps under a condition that is always true"],
    );
    check_refused(
        kind,
        &ACCUMULATES.replace("i + 1 == len(loader)", "scheduler.is_due()"),
        expect!["train.py:12 steps under a condition with a call, which would run twice"],
    );
    check_refused(kind, PLAIN, expect!["no DistributedDataParallel model was found here"]);
}

#[test]
fn cudnn_autotuning() {
    let kind = EditKind::CudnnBenchmark;
    check(
        kind,
        PLAIN,
        expect![[r#"

        +torch.backends.cudnn.benchmark = True
        +
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    "#]],
    );
    let on = PLAIN.replace("device =", "torch.backends.cudnn.benchmark = True\ndevice =");
    check_refused(kind, &on, expect!["done: train.py:5 already enables it"]);
    check(
        kind,
        &on.replace("= True", "= False"),
        expect![[r#"

        -torch.backends.cudnn.benchmark = False
        +torch.backends.cudnn.benchmark = True
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    "#]],
    );
    check_files(
        &[("train.py", &on)],
        at(kind, &[("train.py", 5)]),
        expect![[r#"

        -torch.backends.cudnn.benchmark = True
        +torch.backends.cudnn.benchmark = False
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    "#]],
    );
    check_refused(
        kind,
        &PLAIN.replace("device =", "torch.backends.cudnn.deterministic = True\ndevice ="),
        expect!["train.py:5 requests deterministic results"],
    );
}

const BLOCK: &str = "\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, bias=True)
        self.bn2 = nn.BatchNorm2d(8)
        self.relu1 = nn.ReLU()
        self.relu2 = nn.ReLU()
        self.relu3 = nn.ReLU()
        self.tail = nn.Sequential(
            nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Sigmoid(), nn.ReLU()
        )

    def forward(self, x):
        out = self.relu1(self.bn1(self.conv1(x)))
        y = out
        out = self.conv2(out)
        out = self.bn2(out)
        out = self.relu2(out)
        y = self.relu3(y)
        return self.tail(out + y)


model = Block()
";

#[test]
fn convolutions_without_bias() {
    check(
        EditKind::WithoutBias,
        BLOCK,
        expect![[r#"
                     super().__init__()
            -        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
            +        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
                     self.bn1 = nn.BatchNorm2d(8)
            -        self.conv2 = nn.Conv2d(8, 8, 3, bias=True)
            +        self.conv2 = nn.Conv2d(8, 8, 3, bias=False)
                     self.bn2 = nn.BatchNorm2d(8)
            …
                     self.tail = nn.Sequential(
            -            nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Sigmoid(), nn.ReLU()
            +            nn.Conv2d(
            +                8,
            +                8,
            +                1,
            +                bias=False,
            +            ), nn.BatchNorm2d(8), nn.ReLU(), nn.Sigmoid(), nn.ReLU()
                     )
        "#]],
    );
    for line in [8, 9, 20] {
        let lines: &'static [(&str, u32)] = match line {
            8 => &[("train.py", 8)],
            9 => &[("train.py", 9)],
            _ => &[("train.py", 20)],
        };
        let (texts, entry) = project(&[("train.py", BLOCK)]);
        let edit = rewrite(&texts, &entry, &at(EditKind::WithoutBias, lines)).expect("made");
        assert_eq!(edit.files[0].lines(BLOCK), [8], "asked for at line {line}");
    }
    check_refused(
        EditKind::WithoutBias,
        PLAIN,
        expect!["no layer here is followed only by batch norm"],
    );
    let twice = BLOCK.replace("y = out\n", "y = self.conv1(x)\n");
    let (texts, entry) = project(&[("train.py", &twice)]);
    let edit = rewrite(&texts, &entry, &request_for(EditKind::WithoutBias)).expect("made");
    assert!(!edit.files[0].lines(&twice).contains(&8), "its bias is needed elsewhere");
}

#[test]
fn activations_in_place() {
    // `y` is still the same tensor as `out` when it is activated, so it is not changed. A sigmoid
    // needs its output.
    check(
        EditKind::InPlaceActivation,
        BLOCK,
        expect![[r#"
                     self.bn2 = nn.BatchNorm2d(8)
            -        self.relu1 = nn.ReLU()
            -        self.relu2 = nn.ReLU()
            +        self.relu1 = nn.ReLU(inplace=True)
            +        self.relu2 = nn.ReLU(inplace=True)
                     self.relu3 = nn.ReLU()
                     self.tail = nn.Sequential(
            -            nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Sigmoid(), nn.ReLU()
            +            nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Sigmoid(), nn.ReLU()
                     )
        "#]],
    );
    check_refused(
        EditKind::InPlaceActivation,
        "import torch\nfrom torch import nn\nmodel = nn.Sequential(nn.Linear(4, 4), nn.ReLU(True))\n",
        expect!["done: train.py:3 already works in place"],
    );
    let shared = BLOCK.replace("y = self.relu3(y)", "y = self.relu2(y)");
    let (texts, entry) = project(&[("train.py", &shared)]);
    let edit = rewrite(&texts, &entry, &request_for(EditKind::InPlaceActivation)).expect("made");
    assert!(!edit.files[0].lines(&shared).contains(&13), "it activates what is needed, too");
}
