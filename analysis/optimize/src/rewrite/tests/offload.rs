//! Activations in host memory: `torch.autograd.graph.save_on_cpu`.

use expect_test::expect;

use super::*;

const OFFLOAD: EditKind = EditKind::Offload;

#[test]
fn a_plain_script() {
    check(
        OFFLOAD,
        PLAIN,
        expect![[r#"
                 # forward
        -        out = model(x)
        +        with torch.autograd.graph.save_on_cpu(pin_memory=True):
        +            out = model(x)

    "#]],
    );
}

#[test]
fn in_functions_and_methods() {
    let function = "import torch as th\n\n\ndef loss_of(net, x, y):\n    out = net(x)\n    return (out - y).square().mean()\n\n\ndef main():\n    net = th.nn.Linear(8, 2).cuda()\n    opt = th.optim.SGD(net.parameters(), lr=1)\n    for x, y in data:\n        loss = loss_of(net, x, y)\n        opt.zero_grad()\n        loss.backward()\n        opt.step()\n\n\nmain()\n";
    check(
        OFFLOAD,
        function,
        expect![[r#"
         def loss_of(net, x, y):
        -    out = net(x)
        +    with th.autograd.graph.save_on_cpu(pin_memory=True):
        +        out = net(x)
             return (out - y).square().mean()
    "#]],
    );
    let method = "from torch import nn, optim\n\nclass Trainer:\n    def __init__(self):\n        self.model = nn.Linear(8, 2).cuda()\n        self.optimizer = optim.SGD(self.model.parameters(), lr=1)\n\n    def step(self, x, y):\n        out = self.model(\n            input=x,\n        )\n        loss = (out - y).square().mean()\n        loss.backward()\n        self.optimizer.step()\n        self.optimizer.zero_grad()\n\ntrainer = Trainer()\nfor x, y in data:\n    trainer.step(x, y)\n";
    check(
        OFFLOAD,
        method,
        expect![[r#"
        +import torch
         from torch import nn, optim
        …
             def step(self, x, y):
        -        out = self.model(
        -            input=x,
        -        )
        +        with torch.autograd.graph.save_on_cpu(pin_memory=True):
        +            out = self.model(
        +                input=x,
        +            )
                 loss = (out - y).square().mean()
    "#]],
    );
    let two = "import torch\nfrom torch import nn\n\nfirst = nn.Linear(8, 2).cuda()\nsecond = nn.Linear(2, 2).cuda()\nfor x, y in data:\n    hidden = first(x)\n    print(hidden.shape)\n    loss = (second(hidden) - y).square().mean()\n    loss.backward()\n    optimizer.step()\n";
    check(
        OFFLOAD,
        two,
        expect![[r#"
         for x, y in data:
        -    hidden = first(x)
        +    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        +        hidden = first(x)
             print(hidden.shape)
        -    loss = (second(hidden) - y).square().mean()
        +    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        +        loss = (second(hidden) - y).square().mean()
             loss.backward()
    "#]],
    );
}

#[test]
fn only_the_training_step_changes() {
    let evaluation = "\nmodel.eval()\nwith torch.no_grad():\n    out = model(x)\n";
    check(
        OFFLOAD,
        &(PLAIN.to_owned() + evaluation),
        expect![[r#"
                 # forward
        -        out = model(x)
        +        with torch.autograd.graph.save_on_cpu(pin_memory=True):
        +            out = model(x)

    "#]],
    );
}

#[test]
fn refusals() {
    let with = |from: &str, to: &str| PLAIN.replace(from, to);
    let step = "        out = model(x)\n\n        loss = criterion(out, y)  # the loss\n";
    let texts = [
        with(
            "        out = model(x)\n",
            "        with torch.autograd.graph.save_on_cpu():\n            out = model(x)\n",
        ),
        with(
            "        out = model(x)\n",
            "        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n            out = model(x)\n",
        ),
        with(
            "        out = model(x)\n",
            "        out = torch.utils.checkpoint.checkpoint(model, x)\n",
        ),
        with("criterion = ", "model = torch.compile(model)\ncriterion = "),
        with("criterion = ", "model.compile()\ncriterion = "),
        with(step, "").replace("loss.backward()", "criterion(model(x), y).backward()"),
        with("        out = model(x)\n", "        a = 1; out = model(x)\n"),
    ];
    let reasons = texts.iter().map(|text| {
        let (texts, entry) = project(&[("train.py", text)]);
        match rewrite(&texts, &entry, &request_for(OFFLOAD)) {
            Ok(rewrite) => panic!("made {rewrite:#?} of {text}"),
            Err(Refusal::Done(why)) => format!("done: {why}\n"),
            Err(Refusal::NotUnderstood(why)) => format!("{why}\n"),
        }
    });
    let expected = expect![[r#"
        done: train.py:15 already offloads activations
        train.py:15 already changes how tensors are saved for the backward pass
        train.py:15 recomputes activations, which then need not be offloaded
        train.py:8 compiles the model: the compiler decides what is saved for the backward pass
        train.py:8 compiles the model: the compiler decides what is saved for the backward pass
        train.py:16 calls the model inside a larger statement: assign its output to a variable first
        train.py:15 has several statements on one line: put each on its own line
    "#]];
    expected.assert_eq(&reasons.collect::<String>());
}
