//! CUDA graphs: `torch.compile` with `mode="reduce-overhead"`.

use expect_test::expect;

use super::*;

const GRAPHS: EditKind = EditKind::CudaGraphs;

/// A script with these statements in its loop.
fn script(loop_body: &str) -> String {
    let body: String = loop_body.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "import torch\nfrom torch import nn\n\nmodel = nn.Linear(8, 2).cuda()\ncriterion = nn.MSELoss()\n\
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nhidden = None\nseen = []\nfor i, (x, y) in \
         enumerate(data):\n{body}"
    )
}

const STEP: &str =
    "loss = criterion(out, y)\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()";

#[test]
fn a_plain_script() {
    check(
        GRAPHS,
        PLAIN,
        expect![[r#"
             model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
            +model = torch.compile(model, mode='reduce-overhead')
             criterion = nn.CrossEntropyLoss()
        "#]],
    );
}

#[test]
fn a_model_that_is_saved() {
    let text = PLAIN.to_owned() + "torch.save(model.state_dict(), 'model.pt')\n";
    check(
        GRAPHS,
        &text,
        expect![[r#"
         model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
        +model.compile(mode='reduce-overhead')
         criterion = nn.CrossEntropyLoss()
    "#]],
    );
}

#[test]
fn in_functions_and_methods() {
    let main = "import torch as th\n\n\ndef train(net, opt):\n    for x, y in data:\n        opt.zero_grad(set_to_none=True)\n        loss = (net(x) - y).square().mean()\n        loss.backward()\n        opt.step()\n\n\ndef main():\n    net = th.nn.Linear(8, 2).cuda()\n    opt = th.optim.SGD(net.parameters(), lr=1)\n    train(net, opt)\n\n\nmain()\n";
    check(
        GRAPHS,
        main,
        expect![[r#"
             net = th.nn.Linear(8, 2).cuda()
        +    net = th.compile(net, mode="reduce-overhead")
             opt = th.optim.SGD(net.parameters(), lr=1)
    "#]],
    );
    let method = "from torch import nn, optim\n\nclass Trainer:\n    def __init__(self):\n        self.model = nn.Linear(8, 2).cuda()\n        self.optimizer = optim.SGD(self.model.parameters(), lr=1)\n\n    def step(self, x, y):\n        loss = (self.model(x) - y).square().mean()\n        loss.backward()\n        self.optimizer.step()\n        self.optimizer.zero_grad()\n        return loss.item()\n\ntrainer = Trainer()\nfor x, y in data:\n    trainer.step(x, y)\n";
    check(
        GRAPHS,
        method,
        expect![[r#"
        +import torch
         from torch import nn, optim
        …
                 self.model = nn.Linear(8, 2).cuda()
        +        self.model = torch.compile(self.model, mode="reduce-overhead")
                 self.optimizer = optim.SGD(self.model.parameters(), lr=1)
    "#]],
    );
}

/// Checks the reasons of refusals.
#[track_caller]
fn check_each_refused(texts: &[String], expected: Expect) {
    let reasons = texts.iter().map(|text| {
        let (texts, entry) = project(&[("train.py", text)]);
        match rewrite(&texts, &entry, &request_for(GRAPHS)) {
            Ok(rewrite) => panic!("made {rewrite:#?} of {text}"),
            Err(Refusal::Done(why)) => format!("done: {why}\n"),
            Err(Refusal::NotUnderstood(why)) => format!("{why}\n"),
        }
    });
    expected.assert_eq(&reasons.collect::<String>());
}

/// A script that compiles its model with a statement.
fn compiled(statement: &str) -> String {
    let made = "nn.Linear(8, 2).cuda()\n";
    script(&format!("out = model(x)\n{STEP}")).replace(made, &format!("{made}{statement}\n"))
}

#[test]
fn a_compiled_model_gets_the_mode() {
    check(
        GRAPHS,
        &compiled("model = torch.compile(model)"),
        expect![[r#"
         model = nn.Linear(8, 2).cuda()
        -model = torch.compile(model)
        +model = torch.compile(model, mode="reduce-overhead")
         criterion = nn.MSELoss()
    "#]],
    );
    let default = compiled("model = torch.compile(model, mode='default', dynamic=False)");
    check(
        GRAPHS,
        &default,
        expect![[r#"
         model = nn.Linear(8, 2).cuda()
        -model = torch.compile(model, mode='default', dynamic=False)
        +model = torch.compile(model, mode='reduce-overhead', dynamic=False)
         criterion = nn.MSELoss()
    "#]],
    );
    check(
        GRAPHS,
        &compiled("model.compile(fullgraph=True)"),
        expect![[r#"
         model = nn.Linear(8, 2).cuda()
        -model.compile(fullgraph=True)
        +model.compile(fullgraph=True, mode="reduce-overhead")
         criterion = nn.MSELoss()
    "#]],
    );
}

#[test]
fn other_ways_to_compile() {
    let statements = [
        "model = torch.compile(model, mode='reduce-overhead')",
        "model = torch.compile(model, mode=\"max-autotune\")",
        "model = torch.compile(model, mode='max-autotune-no-cudagraphs')",
        "model = torch.compile(model, backend='eager')",
        "model = torch.compile(model, **options)",
        "criterion = torch.compile(criterion)",
        "model = torch.jit.script(model)",
        "model = nn.parallel.DistributedDataParallel(model)",
        "hooks = torch.autograd.graph.save_on_cpu()",
        "@torch.compile\ndef f(x):\n    return x",
    ];
    check_each_refused(
        &statements.map(compiled),
        expect![[r#"
            done: train.py:5 already uses CUDA graphs
            done: train.py:5 already uses CUDA graphs
            train.py:5 compiles the model with another mode: change it to 'reduce-overhead' there
            train.py:5 compiles the model with `backend`, which decides about CUDA graphs
            train.py:5 passes starred arguments to torch.compile
            train.py:5 compiles something other than the model
            train.py:5 runs the model with TorchScript, which torch.compile does not support
            train.py:5 trains on several GPUs, where this edit was not tried
            train.py:5 changes how tensors are saved for the backward pass, which the compiler decides
            train.py:5 compiles with a decorator: set the mode there
        "#]],
    );
}

#[test]
fn outputs_that_are_used_at_once() {
    for body in [
        "out = model(x)\nseen.append(out.argmax(1))",
        "out = model(x)\nseen.append(out.detach().clone())",
        "out = model(x)\nseen.append(out.shape)",
        "out = model(x)\nseen.append(out.mean().item())",
        "out = model(model(x))",
        "hidden = model(x)\nout = model(hidden)",
    ] {
        let text = script(&format!("{body}\n{STEP}"));
        let (texts, entry) = project(&[("train.py", &text)]);
        let rewrite = rewrite(&texts, &entry, &request_for(GRAPHS));
        assert!(rewrite.is_ok(), "{body}: {rewrite:?}");
    }
}

#[test]
fn outputs_that_are_kept() {
    let bodies = [
        "out = model(x)\nseen.append(out)",
        "out = model(x)\nkept = out.detach()\nseen.append((i, kept[0]))",
        "seen.append(model(x))\nout = model(x)",
        "out = model(x)\nseen[i] = out",
        "out, hidden = model(x, hidden)\nhidden = hidden.detach()",
        "out = model(x, hidden)\nhidden = out.detach()",
    ];
    check_each_refused(
        &bodies.map(|body| script(&format!("{body}\n{STEP}"))),
        expect![[r#"
        train.py:11 stores an output of the model, and a CUDA graph would overwrite it in the next iteration: clone() it first
        train.py:12 stores an output of the model, and a CUDA graph would overwrite it in the next iteration: clone() it first
        train.py:10 stores an output of the model, and a CUDA graph would overwrite it in the next iteration: clone() it first
        train.py:11 stores an output of the model, and a CUDA graph would overwrite it in the next iteration: clone() it first
        train.py:10 passes `hidden`, an output of the model, to its next call, and a CUDA graph would overwrite it in the next iteration: clone() it first
        train.py:10 passes `hidden`, an output of the model, to its next call, and a CUDA graph would overwrite it in the next iteration: clone() it first
    "#]],
    );
    let training = script(&format!("out = model(x)\n{STEP}"));
    let functions = [
        "def evaluate(batches):\n    return torch.cat([model(x) for x in batches])\n\nevaluate(data)\n",
        "def predict(x):\n    return model(x)\n\nprint(predict(x))\n",
        "def predictions():\n    for x, _ in data:\n        yield model(x)\n\nprint(list(predictions()))\n",
    ];
    check_each_refused(
        &functions.map(|function| format!("{training}\n{function}")),
        expect![[r#"
        train.py:17 collects outputs of the model, and a CUDA graph would overwrite it in the next iteration: clone() it first
        train.py:17 returns an output of the model, and a CUDA graph would overwrite it in the next iteration: clone() it first
        train.py:18 returns an output of the model, and a CUDA graph would overwrite it in the next iteration: clone() it first
    "#]],
    );
}

#[test]
fn gradients_that_are_kept() {
    let bodies = [
        "criterion(model(x), y).backward()\nif i % 4 == 3:\n    optimizer.step()\n    optimizer.zero_grad()",
        "optimizer.zero_grad(set_to_none=False)\ncriterion(model(x), y).backward()\noptimizer.step()",
        "criterion(model(x), y).backward()\noptimizer.step()",
        "optimizer.zero_grad()\nfor part in x.split(4):\n    criterion(model(part), y).backward()\noptimizer.step()",
        "optimizer.zero_grad()\ncriterion(model(x), y).backward()\ncriterion(model(y), x).backward()\noptimizer.step()",
    ];
    check_each_refused(
        &bodies.map(script),
        expect![[r#"
        train.py:12 accumulates gradients over several iterations, and a CUDA graph would overwrite them
        train.py:10 keeps gradients instead of setting them to None, and a CUDA graph would overwrite them: apply `zero-grad-none` first
        train.py:10 calls backward() without an optimizer step and a zero_grad() next to it
        train.py:12 calls backward() without an optimizer step and a zero_grad() next to it
        the program calls backward() in several places, and a CUDA graph would overwrite the gradients of the first
    "#]],
    );
}
