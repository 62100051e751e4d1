//! Edits of models: compilation, channels_last, checkpoints.

use expect_test::expect;

use super::*;

const COMPILE: EditKind = EditKind::Compile;
const LAST: EditKind = EditKind::ChannelsLast;

#[test]
fn a_plain_script() {
    check(
        COMPILE,
        PLAIN,
        expect![[r#"
         model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
        +model = torch.compile(model)
         criterion = nn.CrossEntropyLoss()
    "#]],
    );
    check(
        LAST,
        PLAIN,
        expect![[r#"
         loader = DataLoader(data, batch_size=32, shuffle=True)
        -model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
        +model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device, memory_format=torch.channels_last)
         criterion = nn.CrossEntropyLoss()
        …
             for x, y in loader:
        -        x, y = x.to(device), y.to(device)
        +        x, y = x.to(device, memory_format=torch.channels_last), y.to(device)
                 # forward
    "#]],
    );
}

#[test]
fn a_model_passed_as_an_argument() {
    let files = [
        (
            "main.py",
            "from net import Net\nimport engine\nimport torch as th\n\ndef main(args):\n    model = Net()\n    model.load_weights(args.weights)\n    model = model.cuda()\n    opt = th.optim.SGD(model.parameters(), lr=1)\n    engine.train(model, opt)\n\nmain(read())\n",
        ),
        (
            "engine.py",
            "def train(net, opt):\n    for x, y in data:\n        x = x.cuda()\n        loss = loss_fn(net(x), y)\n        loss.backward()\n        opt.step()\n",
        ),
        (
            "net.py",
            "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        self.conv = nn.Conv2d(1, 1, 1)\n",
        ),
    ];
    check_files(
        &files,
        request_for(COMPILE),
        expect![[r#"
        == main.py
             model = model.cuda()
        +    model = th.compile(model)
             opt = th.optim.SGD(model.parameters(), lr=1)
    "#]],
    );
    check_files(
        &files,
        request_for(LAST),
        expect![[r#"
            == main.py
                 model.load_weights(args.weights)
            -    model = model.cuda()
            +    model = model.cuda().to(memory_format=th.channels_last)
                 opt = th.optim.SGD(model.parameters(), lr=1)
            == engine.py
            +import torch
            +
            +
             def train(net, opt):
            …
                     x = x.cuda()
            -        loss = loss_fn(net(x), y)
            +        loss = loss_fn(net(x.to(memory_format=torch.channels_last)), y)
                     loss.backward()
        "#]],
    );
}

#[test]
fn a_model_without_a_name() {
    let script = "\
import torch
class Trainer:
    def __init__(self, model):
        self.net = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(self, x):
        loss = self.net(x).sum()
        loss.backward()
        self.opt.step()
class Direct:
    pass
def train(model):
    for x in data:
        Trainer(model).step(x)
train(Net(3).to('cpu'))
";
    check(
        COMPILE,
        script,
        expect![[r#"
                 self.net = model
        +        self.net = torch.compile(self.net)
                 self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
    "#]],
    );
}

/// Noise is not an image, and accelerate takes the loss as an argument.
#[test]
fn noise_and_accelerate() {
    let script = "\
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)).to(device)
for x in data:
    noise = torch.randn(8, 100).to(device)
    x = x.to(device)
    loss = model(x) + model(noise)
    accelerator.backward(loss.sum())
";
    check(
        LAST,
        script,
        expect![[r#"
         accelerator = Accelerator()
        -model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)).to(device)
        +model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)).to(device, memory_format=torch.channels_last)
         for x in data:
             noise = torch.randn(8, 100).to(device)
        -    x = x.to(device)
        +    x = x.to(device, memory_format=torch.channels_last)
             loss = model(x) + model(noise)
    "#]],
    );
    check(
        COMPILE,
        script,
        expect![[r#"
         model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)).to(device)
        +model = torch.compile(model)
         for x in data:
    "#]],
    );
}

/// Saved models depend on parameter names, which `torch.compile` changes.
#[test]
fn a_model_that_is_saved() {
    let script = "import torch\nmodel = torch.nn.Linear(1, 1)\nopt = torch.optim.SGD(model.parameters(), 1)\nfor x in data:\n    loss = model(x)\n    loss.backward()\n    opt.step()\ntorch.save(model.state_dict(), 'm.pt')\n";
    check(
        COMPILE,
        script,
        expect![[r#"
         model = torch.nn.Linear(1, 1)
        +model.compile()
         opt = torch.optim.SGD(model.parameters(), 1)
    "#]],
    );
}

#[test]
fn a_provider() {
    let script = include_str!("../../../../../demo-projects/resnet/skyline_provider.py");
    check(
        COMPILE,
        script,
        expect![[r#"
         def skyline_model_provider():
        -    return resnet50().to(DEVICE).train()
        +    return torch.compile(resnet50().to(DEVICE).train())

    "#]],
    );
    let files = [
        ("skyline_provider.py", script),
        ("model.py", include_str!("../../../../../demo-projects/resnet/model.py")),
    ];
    check_files(
        &files,
        request_for(LAST),
        expect![[r#"
        == skyline_provider.py
         def skyline_model_provider():
        -    return resnet50().to(DEVICE).train()
        +    return resnet50().to(DEVICE, memory_format=torch.channels_last).train()

        …
                 optimizer.zero_grad()
        -        loss = criterion(model(images), labels)
        +        loss = criterion(model(images.to(memory_format=torch.channels_last)), labels)
                 loss.backward()
    "#]],
    );
}

#[test]
fn checkpoints_at_lines() {
    let model = include_str!("../../../../../demo-projects/resnet/model.py");
    let line = 1 + model.lines().position(|line| line.contains("x = self.layer2(x)")).unwrap_or(0);
    let line = u32::try_from(line).unwrap_or(0);
    let files = [
        ("train.py", include_str!("../../../../../demo-projects/resnet/train.py")),
        ("model.py", model),
    ];
    let lines = [("model.py", line - 1), ("model.py", line)];
    let request = Request { kind: EditKind::Checkpoint, lines: &lines, count: None };
    check_files(
        &files,
        request,
        expect![[r#"
            == model.py
             from torch import Tensor, nn
            +from torch.utils.checkpoint import checkpoint

            …

            -        x = self.layer1(x)
            -        x = self.layer2(x)
            +        x = checkpoint(self.layer1, x, use_reentrant=False)
            +        x = checkpoint(self.layer2, x, use_reentrant=False)
                     x = self.layer3(x)
        "#]],
    );
    // A chain is recomputed from its inputs. A line without a call is skipped.
    let nested = [("model.py", line - 4), ("model.py", 1)];
    let request = Request { kind: EditKind::Checkpoint, lines: &nested, count: None };
    check_files(
        &files,
        request,
        expect![[r#"
            == model.py
             from torch import Tensor, nn
            +from torch.utils.checkpoint import checkpoint

            …
                 def forward(self, x: Tensor) -> Tensor:
            -        x = self.relu(self.bn1(self.conv1(x)))
            +        x = checkpoint(lambda x: self.relu(self.bn1(self.conv1(x))), x, use_reentrant=False)
                     x = self.maxpool(x)
        "#]],
    );
    let lines = [("train.py", 1)];
    let request = Request { kind: EditKind::Checkpoint, lines: &lines, count: None };
    check_refused_files(&files, request, expect!["train.py:1 does not call a module of the model"]);
}

#[test]
fn checkpoints_of_repeated_blocks() {
    let files = [
        ("train.py", include_str!("../../../../../demo-projects/gpt/train.py")),
        ("model.py", include_str!("../../../../../demo-projects/gpt/model.py")),
    ];
    check_files(
        &files,
        request_for(EditKind::Checkpoint),
        expect![[r#"
        == model.py
         from torch.nn import functional as F
        +from torch.utils.checkpoint import checkpoint

        …
                 for block in self.blocks:
        -            x = block(x)
        +            x = checkpoint(block, x, use_reentrant=False)
                 logits = self.head(self.norm(x))
    "#]],
    );
}
