//! Programs that cannot run in several processes.

use expect_test::expect;

use super::*;

/// Returns the reasons of refusals, one per line.
fn reasons(texts: &[String]) -> String {
    let reason = |text: &String| {
        let (texts, entry) = project(&[("train.py", text)]);
        match rewrite(&texts, &entry, &request_for(PARALLEL)) {
            Ok(rewrite) => panic!("made {rewrite:#?} of {text}"),
            Err(Refusal::Done(why)) => format!("done: {why}\n"),
            Err(Refusal::NotUnderstood(why)) => format!("{why}\n"),
        }
    };
    texts.iter().map(reason).collect()
}

#[track_caller]
fn with(from: &str, to: &str) -> String {
    let plain = plain();
    assert!(plain.contains(from), "{from}");
    plain.replace(from, to)
}

#[test]
fn refused_programs() {
    let texts = [
        with("criterion = ", "model = nn.parallel.DistributedDataParallel(model)\ncriterion = "),
        with("criterion = ", "model = nn.DataParallel(model)\ncriterion = "),
        with("criterion = ", "model = torch.compile(model)\ncriterion = "),
        with("'cuda' if", "'cuda:1' if"),
        with(".to(device)\ncriterion", ".cuda(0)\ncriterion"),
        with("nn.Linear(8, 10)", "nn.LazyLinear(10)"),
        with("criterion = ", "criterion, accelerator = None, accelerate.Accelerator()\n#")
            .replace("import torch\n", "import torch\nimport accelerate\n"),
        with("criterion = ", "writer = SummaryWriter()\ncriterion = "),
        with("    print(epoch", "    open('log', 'a').write('x')\n    print(epoch"),
        with("    print(epoch", "    wandb.init()\n    print(epoch")
            .replace("import torch\n", "import torch\nimport wandb\n"),
        with(
            "criterion = ",
            "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\ncriterion = ",
        ),
        with("criterion = ", "second = torch.optim.SGD(model.parameters(), lr=1)\ncriterion = "),
        with(
            "        loss.backward()",
            "        torch.autograd.grad(loss, x)\n        loss.backward()",
        ),
        with("        loss.backward()", "        loss.backward()\n        loss.backward()"),
        with("        out = model(x)\n", "        out = model(x) + model(y)\n"),
        with(
            "        out = model(x)\n",
            "        for _ in range(2):\n            out = model(x)\n",
        ),
        with("        out = model(x)\n", "        out = model.predict(x)\n"),
    ];
    expect![[r#"
        done: train.py:8 already trains with several processes
        train.py:8 uses DataParallel: remove it first
        train.py:8 compiles the model, which has to be wrapped first: edit it by hand
        train.py names a GPU (`cuda:`), and each process needs its own
        train.py:7 names a GPU, and each process needs its own
        train.py:7 creates a lazy layer, which has no parameters until its first call
        accelerate (train.py:9) trains on several GPUs itself: start it with `accelerate launch --multi_gpu`
        train.py:8 writes a log, which every process would do
        train.py:21 opens a file for writing, which every process would do
        train.py:22 writes a log, which every process would do
        train.py:8 changes the learning rate by a value that may differ between processes
        the program has several optimizers
        train.py:19 calls torch.autograd.grad, which DistributedDataParallel does not support
        the program calls backward() in several places
        the training step calls models in several places, which this edit does not support
        train.py:16 calls the model several times for one backward pass
        train.py:15 calls a method of the model, and DistributedDataParallel only synchronizes gradients of `forward`
    "#]].assert_eq(&reasons(&texts));
}

#[test]
fn refused_loaders_and_loops() {
    let texts = [
        with("shuffle=True", "sampler=mine"),
        with("shuffle=True", "batch_sampler=mine"),
        with("shuffle=True", "shuffle=not debug"),
        with("shuffle=True", "**options"),
        with("loader = ", "other = DataLoader(data)\nloader = "),
        with("DataLoader(data,", "wrap(DataLoader)(data,").replace("= wrap", "= other"),
        with(
            "DataLoader(data, batch_size=32, shuffle=True)",
            "wrap(DataLoader(data, shuffle=True))",
        ),
        with("loader = ", "data = MNIST('.', download=True)\nloader = "),
        with("device = ", "class Words(torch.utils.data.IterableDataset):\n    pass\n\ndevice = "),
        with("for epoch in range(3)", "while True"),
        with("for epoch in range(3)", "for name in names"),
        with("    print(epoch", "    if loss < 0.1:\n        break\n    print(epoch"),
        with("    print(epoch", "    if time() > late:\n        model(x)\n    print(epoch"),
        with("    print(epoch", "    if loss < 0.1:\n        validate(model)\n    print(epoch")
            .replace("device = ", "def validate(net):\n    net(1)\n\ndevice = "),
        with(
            "    print(epoch",
            "    if loss < best:\n        bad = 0\n    else:\n        bad += 1\n    if bad > 5:\n        break\n    print(epoch",
        ),
        with("        # forward", "        if y:\n            continue"),
        with("        loss.backward()", "        if loss.isfinite():\n            loss.backward()"),
        with(
            "        loss.backward()",
            "        try:\n            loss.backward()\n        except RuntimeError:\n            pass",
        ),
        with("    for x, y in loader:", "    for x, y in batches():"),
        with("criterion = ", "import other\ncriterion = "),
    ];
    expect![[r#"
        train.py:6 has a sampler of its own
        train.py:6 has a sampler of its own
        train.py:6 decides elsewhere whether it shuffles
        train.py:6 passes the arguments of the DataLoader in an unsupported form
        the program has several DataLoaders for training
        no DataLoader was found in the program
        train.py:6 creates the DataLoader inside a larger expression: assign it to a variable first
        train.py:6 downloads data, which every process would do
        train.py:5 is an IterableDataset, which a DistributedSampler cannot divide
        train.py:11 goes through the DataLoader several times, in a loop that counts no epochs
        train.py:11 goes through the DataLoader several times, in a loop that counts no epochs
        train.py:22 depends on a value that may differ between processes, and the others would wait
        train.py:22 depends on a value that may differ between processes, and the others would wait
        train.py:25 depends on a value that may differ between processes, and the others would wait
        train.py:26 depends on a value that may differ between processes, and the others would wait
        train.py:15 depends on a value that may differ between processes, and the others would wait
        train.py:20 depends on a value that may differ between processes, and the others would wait
        train.py:20 is in a `try` block: a process that skips a step would make the others wait
        train.py:19 is not in a `for` loop over the DataLoader
        train.py:7 runs before the last import, where no process group can be started
    "#]]
    .assert_eq(&reasons(&texts));
}

#[test]
fn refused_uses_of_the_model() {
    let texts = [
        with("    print(epoch", "    model.report()\n    print(epoch"),
        with("    print(epoch", "    kept = [model]\n    print(epoch"),
        with("    print(epoch", "    export(model)\n    print(epoch"),
        with("    print(epoch", "    model = other\n    print(epoch"),
        with("    print(epoch", "    holder.model = model\n    print(epoch"),
        with("    print(epoch", "    [torch.save(model, 'a')]\n    print(epoch"),
        with("    print(epoch", "    torch.save(model, 'a')\n    torch.load('a')\n    print(epoch"),
        with(
            "device = ",
            "class Own:\n    def __init__(self):\n        self.module = 1\n\ndevice = ",
        ),
    ];
    expect![[r#"
        train.py:21 uses `model.report`, which DistributedDataParallel does not have
        train.py:21 uses `model`, the wrapped model, in a way that is not supported
        train.py:21 passes `model`, the wrapped model, to other code
        train.py:21 assigns `model` again after it was wrapped
        train.py:21 stores `model`, which is the wrapped model
        train.py:21 saves a file in every process: make it a statement of its own
        train.py:22 loads a file that another process may still be writing: edit it by hand
        train.py has an attribute `module`, as the wrapped model has
    "#]]
    .assert_eq(&reasons(&texts));
}

#[test]
fn providers_and_notebooks() {
    let provider = "def skyline_model_provider():\n    return model\n";
    check_refused(PARALLEL, provider, expect!["a provider does not run its own training loop"]);
    let cells = [("train.ipynb#1", "import torch"), ("train.ipynb#2", "loss.backward()")];
    check_refused_files(
        &cells,
        request_for(PARALLEL),
        expect!["torchrun does not start notebooks"],
    );
}
